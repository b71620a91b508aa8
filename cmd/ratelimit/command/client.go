package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/cmd/internal/terminal"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/daemon"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/cmd/ratelimit/inspect"
)

// client has the flags of the commands that ask a service, or decide on a store as it does.
type client struct {
	URL       string `env:"RATELIMIT_URL" default:"http://127.0.0.1:8080" placeholder:"URL"`
	TokenFile string `env:"RATELIMIT_TOKEN_FILE" placeholder:"FILE"`
	JSON      bool   `name:"json"`

	Store  string             `placeholder:"URL"`
	Config string             `placeholder:"FILE"`
	Limit  []config.LimitFlag `placeholder:"[NAME=]MAX/WINDOW"`

	KeySecretFile string `placeholder:"FILE"`

	Audit     string `placeholder:"FILE"`
	AuditKeys bool
}

// clientHelp has the help of the flags of client.
var clientHelp = map[string]string{
	"url": "The service. Default: ${default}. Of https, the authorities are the system's, or " +
		"those of SSL_CERT_FILE.",
	"token-file": "File with a token of the service, which is its first word.",
	"json":       "Print the answer of the service as it is.",
	"store": "Decide on the store at this URL, without a service, under --config or " +
		"--limit.",
	"config":          "The limits for --store; see ratelimit serve.",
	"limit":           "A limit for --store; see ratelimit serve.",
	"key-secret-file": "The secret of keys in --store; see ratelimit serve.",
	"audit": "With --store, append an event of each write to this file; see ratelimit " +
		"serve.",
	"audit-keys": "Write keys to --audit.",
}

// errRefused ends a command whose request was refused, with exitRefused.
var errRefused = errors.New("refused")

// ask posts body to a path and returns the answer, of a service or of an API on --store.
func (c *client) ask(ctx context.Context, path string, body map[string]any) (
	status int, text []byte, err error,
) {
	posted, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	if c.Audit != "" && c.Store == "" {
		return 0, nil, errors.New("--audit needs --store: a service has an audit of its own")
	}
	if c.Store != "" {
		return c.answerOnStore(ctx, path, posted)
	}
	return send(ctx, http.MethodPost, c.URL, path, c.TokenFile, posted)
}

// send sends a request to a service, with the first token of a file if there is one.
func send(ctx context.Context, method, service, path, tokenFile string, body []byte) (
	status int, text []byte, err error,
) {
	const longest = 30 * time.Second
	return sendBy(ctx, &http.Client{Timeout: longest}, method, service, path, tokenFile, body)
}

func sendBy(
	ctx context.Context, by *http.Client, method, service, path, tokenFile string, body []byte,
) (status int, text []byte, err error) {
	address, err := url.JoinPath(service, path)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if tokenFile != "" {
		tokens, err := os.ReadFile(tokenFile)
		if err != nil {
			return 0, nil, err
		}
		// A name may follow the token, as in the files of the service.
		if words := strings.Fields(string(tokens)); len(words) > 0 {
			req.Header.Set("Authorization", "Bearer "+words[0])
		}
	}
	res, err := by.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	text, err = io.ReadAll(io.LimitReader(res.Body, 1<<20))
	return res.StatusCode, text, err
}

// answer is ask for an answer that is not a problem, whose detail is in the error.
func (c *client) answer(ctx context.Context, path string, body map[string]any) (
	status int, text []byte, err error,
) {
	if status, text, err = c.ask(ctx, path, body); err != nil {
		return 0, nil, err
	}
	if err := problemIn(path, status, text); err != nil {
		return 0, nil, err
	}
	return status, text, nil
}

// problemIn returns an error for an answer that is a problem, or that no service gives.
func problemIn(path string, status int, text []byte) error {
	var answer struct{ Title, Detail string }
	if err := json.Unmarshal(text, &answer); err != nil && len(text) > 0 {
		return fmt.Errorf("%s: status %d, and no answer of the service", path, status)
	}
	if status >= http.StatusBadRequest && status != http.StatusTooManyRequests {
		return fmt.Errorf("%s: status %d: %s", path, status,
			terminal.Line(cmp.Or(answer.Detail, answer.Title)))
	}
	return nil
}

// answerOnStore answers as a service on --store would.
func (c *client) answerOnStore(ctx context.Context, path string, body []byte) (int, []byte, error) {
	serve := daemon.Serve{Store: c.Store, Config: c.Config, Flags: config.Flags{Limit: c.Limit},
		KeySecretFile: c.KeySecretFile,
		AuditFlags:    daemon.AuditFlags{Audit: c.Audit, AuditKeys: c.AuditKeys}}
	if err := serve.AuditFlags.Validate(); err != nil {
		return 0, nil, err
	}
	return serve.AnswerBody(ctx, path, body)
}

// clientAnswer is what the commands read of answers.
type clientAnswer struct {
	ID      string
	Allowed bool
	Limits  []httpapi.LimitState

	ResetAfterMS int64 `json:"reset_after_ms"` // of a block
}

// run asks, and prints the answer with write, or as it is. A refusal is errRefused, and a problem
// an error with its detail.
func (c *client) run(
	ctx context.Context, k *kong.Context, path string, body map[string]any,
	write func(io.Writer, *clientAnswer),
) error {
	status, text, err := c.answer(ctx, path, body)
	if err != nil {
		return err
	}
	var answer clientAnswer
	if err := json.Unmarshal(text, &answer); err != nil && len(text) > 0 {
		return fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case c.JSON:
		_, _ = k.Stdout.Write(text)
	case len(text) > 0:
		write(k.Stdout, &answer)
	default:
		fmt.Fprintln(k.Stdout, "done")
	}
	if status == http.StatusTooManyRequests {
		return errRefused
	}
	return nil
}

// writeStates prints whether a request was admitted, and the state of each limit.
func writeStates(w io.Writer, d *clientAnswer) {
	verdict := "refused"
	if d.Allowed {
		verdict = "admitted"
	}
	if d.ID != "" {
		verdict += ", held as " + terminal.Value(d.ID)
	}
	fmt.Fprintln(w, verdict)
	if len(d.Limits) == 0 {
		fmt.Fprintln(w, "No limit applies.")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LIMIT\tADMITS\tLEFT\tOF\tRETRY AFTER")
	for _, l := range d.Limits {
		l.Name = terminal.Value(l.Name)
		admits, left, of, retry := "no", "", fmt.Sprint(l.Limit), ""
		if l.Counts != nil {
			left = fmt.Sprint(l.Remaining)
			retry = fmt.Sprint(time.Duration(l.RetryAfterMS) * time.Millisecond)
		}
		if l.Block {
			left, of = inspect.Blocked(!l.Allowed), ""
		}
		if l.Allowed {
			admits, retry = "yes", ""
		}
		if l.Never {
			retry = "never"
		}
		if l.Shadow {
			l.Name += " (shadow)"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", l.Name, admits, left, of, retry)
	}
	_ = t.Flush()
}

// demandFlags has what take and peek ask for.
type demandFlags struct {
	Entries []string `arg:"" optional:"" name:"name=value" sep:"none" help:"The entries."`
	Key     string   `placeholder:"KEY"`
	N       *int64   `name:"units" short:"n" placeholder:"N"`
}

// Validate is called by kong when it has parsed the command line.
func (d *demandFlags) Validate() error {
	if (d.Key == "") == (len(d.Entries) == 0) {
		return errors.New("give either entries such as tenant=acme, or --key")
	}
	_, err := inspect.ParseDescriptor(d.Entries)
	return err
}

// body returns the fields of the demand in a request.
func (d *demandFlags) body() (map[string]any, error) {
	body := make(map[string]any)
	if d.N != nil {
		body["n"] = *d.N
	}
	if d.Key != "" {
		body["key"] = d.Key
		return body, nil
	}
	entries, err := descriptorBody(d.Entries)
	body["descriptor"] = entries
	return body, err
}

// descriptorBody returns the descriptor of arguments such as tenant=acme in a request.
func descriptorBody(arguments []string) (map[string]string, error) {
	descriptor, err := inspect.ParseDescriptor(arguments)
	entries := make(map[string]string)
	for _, e := range descriptor {
		entries[e.Name] = e.Value
	}
	return entries, err
}

// takeCmd is "ratelimit take".
type takeCmd struct {
	client      `embed:""`
	demandFlags `embed:""`

	Hold time.Duration `placeholder:"DURATION"`
}

// Run takes or holds units.
func (c *takeCmd) Run(ctx context.Context, k *kong.Context) error {
	body, err := c.body()
	if err != nil {
		return err
	}
	if c.Hold > 0 {
		body["hold_ms"] = c.Hold.Milliseconds()
	}
	return c.run(ctx, k, "/v1/decide", body, writeStates)
}

// peekCmd is "ratelimit peek".
type peekCmd struct {
	client      `embed:""`
	demandFlags `embed:""`

	OfLimit string `placeholder:"NAME"`
}

// Validate is called by kong when it has parsed the command line.
func (c *peekCmd) Validate() error {
	if c.OfLimit != "" && c.Key == "" {
		return errors.New("--of-limit needs --key")
	}
	return c.demandFlags.Validate()
}

// Run prints what take would, and takes nothing.
func (c *peekCmd) Run(ctx context.Context, k *kong.Context) error {
	body, err := c.body()
	if err != nil {
		return err
	}
	if c.OfLimit != "" {
		body["limit"] = c.OfLimit
		body = map[string]any{"claims": []any{body}}
	}
	return c.run(ctx, k, "/v1/peek", body, writeStates)
}

// settleCmd is "ratelimit settle".
type settleCmd struct {
	client `embed:""`

	ID   string `arg:"" help:"The id of a hold."`
	Used *int64 `placeholder:"N"`
}

// Run ends what an id holds.
func (c *settleCmd) Run(ctx context.Context, k *kong.Context) error {
	body := map[string]any{"id": c.ID}
	if c.Used != nil {
		body["used"] = *c.Used
	}
	return c.run(ctx, k, "/v1/settle", body, writeStates)
}

// blockCmd is "ratelimit block".
type blockCmd struct {
	client `embed:""`

	Name string        `arg:"" name:"limit" help:"The limit, which is a block."`
	Key  string        `arg:"" help:"The key."`
	For  time.Duration `arg:"" help:"For how long, such as 15m."`
}

// Run blocks a key.
func (c *blockCmd) Run(ctx context.Context, k *kong.Context) error {
	body := map[string]any{"limit": c.Name, "key": c.Key, "for_ms": algorithm.BlockFor(c.For)}
	return c.run(ctx, k, "/v1/block", body, func(w io.Writer, a *clientAnswer) {
		fmt.Fprintln(w, "blocked for", time.Duration(a.ResetAfterMS)*time.Millisecond)
	})
}

// resetCmd is "ratelimit reset".
type resetCmd struct {
	client `embed:""`

	Key     string `arg:"" help:"The key."`
	OfLimit string `placeholder:"NAME"`
}

// Run deletes what is recorded and held for a key.
func (c *resetCmd) Run(ctx context.Context, k *kong.Context) error {
	body := map[string]any{"key": c.Key}
	if c.OfLimit != "" {
		body["limit"] = c.OfLimit
	}
	return c.run(ctx, k, "/v1/reset", body, writeStates)
}
