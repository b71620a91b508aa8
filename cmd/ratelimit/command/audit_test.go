package command

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

const (
	annToken     = "the-token-of-ann-of-the-tests"
	limitedToken = "a-token-for-another-limit"
	decideToken  = "a-token-that-only-decides"
)

const auditAccess = `
tokens:
  - {name: ann, token: ` + annToken + `, may: [decide, settle, read, write]}
  - {name: limited, token: ` + limitedToken + `, may: [decide, settle, read, write],
     limits: [other]}
  - {name: decider, token: ` + decideToken + `, may: [decide]}
certificates:
  - {name: billing, subject: CN=billing, may: [decide, settle, read, write]}
  - {name: jobs, subject: CN=jobs, may: [decide, settle, read, write], limits: [other]}
`

var auditFlags = []string{"--limit=tokens=9/1h", "--limit=other=9/1h", "--block=blocked=1h"}

// An actor sends requests with a credential.
type actor struct {
	*testing.T
	client    *http.Client
	base      string
	token     string
	form      string // the token of forms of the page
	key       string // of this request
	tokenFile string // for commands
}

func (a *actor) send(method, path, kind, body string) (status int, text string) {
	a.Helper()
	r, err := http.NewRequestWithContext(a.Context(), method, a.base+path, strings.NewReader(body))
	if err != nil {
		a.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	if a.token != "" {
		r.SetBasicAuth("me", a.token)
	}
	res, err := a.client.Do(r)
	if err != nil {
		a.Fatal(err)
	}
	defer res.Body.Close()
	read, err := io.ReadAll(res.Body)
	if err != nil {
		a.Fatal(err)
	}
	return res.StatusCode, string(read)
}

func (a *actor) post(path, body string) int {
	a.Helper()
	body = strings.ReplaceAll(body, "$K", a.key)
	status, _ := a.send(http.MethodPost, path, "application/json", body)
	return status
}

// held returns the ID of 2 tokens that are held.
func (a *actor) held() string {
	a.Helper()
	_, text := a.send(http.MethodPost, "/v1/decide", "application/json",
		`{"hold_ms":0,"claims":[{"limit":"tokens","n":2,"key":"`+a.key+`"}]}`)
	var answer struct{ ID string }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.ID == "" {
		a.Fatalf("%v: %s", err, text)
	}
	return answer.ID
}

// act sends an action on the page.
func (a *actor) act(form url.Values) int {
	a.Helper()
	key := base64.RawURLEncoding.EncodeToString([]byte(a.key))
	form.Set("token", a.form)
	form.Set("confirmed", "yes")
	if form.Get("id") == "" {
		form.Set("key", key)
		form.Set("query", key)
	}
	status, _ := a.send(http.MethodPost, "/dashboard/act", "application/x-www-form-urlencoded",
		form.Encode())
	return status
}

// command runs a command at the service, and returns 0 for a request that is made by nobody.
func (a *actor) command(args ...string) {
	a.Helper()
	args = append(args, "--url="+a.base)
	if a.token != "" {
		args = append(args, "--token-file="+a.tokenFile)
	}
	run(a.Context(), args, io.Discard, io.Discard)
}

// An auditWrite is a write, whose key has 7 of 9 tokens left. done is its event if it is done:
// action, door, path and status, and then the changes.
type auditWrite struct {
	do   func(a *actor, id string)
	done string
}

var auditWrites = []auditWrite{
	{func(a *actor, _ string) { a.post("/v1/force", `{"limit":"tokens","key":"$K","n":5}`) },
		"force api /v1/force 200: tokens units=5 7>2"},
	{func(a *actor, _ string) {
		a.post("/v1/block", `{"limit":"blocked","key":"$K","for_ms":60000}`)
	}, "block api /v1/block 200: blocked for=60000 3600000>0"},
	{func(a *actor, _ string) { a.post("/v1/reset", `{"limit":"tokens","key":"$K"}`) },
		"reset api /v1/reset 204: tokens 7>9"},
	{func(a *actor, _ string) { a.post("/v1/reset", `{"key":"$K"}`) },
		"reset api /v1/reset 204: tokens 7>9, other 9>9"},
	{func(a *actor, id string) { a.post("/v1/settle", `{"id":"`+id+`","used":3}`) },
		"settle api /v1/settle 204: tokens held=2 units=3"},
	{func(a *actor, id string) { a.post("/v1/settle", `{"id":"`+id+`"}`) },
		"settle api /v1/settle 204: tokens held=2 units=2"},
	{func(a *actor, id string) { a.post("/v1/settle", `{"id":"`+id+`","used":0}`) },
		"release api /v1/settle 204: tokens held=2 units=0"},
	{func(a *actor, _ string) {
		a.act(url.Values{"action": {"reset"}, "limit": {"tokens"}})
	}, "reset page /dashboard/ 200: tokens 7>9"},
	{func(a *actor, _ string) {
		a.act(url.Values{"action": {"block"}, "limit": {"blocked"}, "for": {"1m"}})
	}, "block page /dashboard/ 200: blocked for=60000 3600000>0"},
	{func(a *actor, id string) { a.act(url.Values{"action": {"release"}, "id": {id}}) },
		"release page /dashboard/ 200: tokens"},
}

// commandWrites are those of the command line, which sends requests of the API.
var commandWrites = []auditWrite{
	{func(a *actor, _ string) { a.command("block", "blocked", a.key, "1m") },
		"block api /v1/block 200: blocked for=60000 3600000>0"},
	{func(a *actor, _ string) { a.command("reset", "--of-limit=tokens", a.key) },
		"reset api /v1/reset 204: tokens 7>9"},
	{func(a *actor, id string) { a.command("settle", id, "--used=1") },
		"settle api /v1/settle 204: tokens held=2 units=1"},
}

// shown returns an event as auditWrites have it, with its actor and outcome first.
func shown(e *audit.Event) string {
	text := fmt.Sprintf("%s:%s %s %s %s %s %d:", e.Actor.Kind, e.Actor.Name, e.Outcome, e.Action,
		e.Door, e.Path, e.Status)
	for i, c := range e.Changes {
		if i > 0 {
			text += ","
		}
		text += " " + c.Limit
		if c.Held != nil {
			text += fmt.Sprint(" held=", *c.Held)
		}
		if c.Units != nil {
			text += fmt.Sprint(" units=", *c.Units)
		}
		if c.ForMS != nil {
			text += fmt.Sprint(" for=", *c.ForMS)
		}
		if c.Before != nil {
			text += fmt.Sprintf(" %d>%d", c.Before.Remaining, c.After.Remaining)
		}
	}
	return text
}

// events returns the events of a file.
func events(t *testing.T, path string) (all []audit.Event) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var e audit.Event
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, e)
	}
	return all
}

// refusedAs returns the event of a write that is refused with a status: that of one without the
// right, whose body is read only as far as it says limit and key, or that under another limit.
func (w *auditWrite) refusedAs(status int, otherLimit bool) string {
	what, changes, _ := strings.Cut(w.done, ":")
	words := strings.Fields(what)
	var limits []string
	for change := range strings.SplitSeq(changes, ",") {
		fields := strings.Fields(change)
		limit := fields[0]
		if otherLimit && strings.HasPrefix(words[2], "/v1/settle") {
			limit = limit + " held=2 units=2"
		}
		if otherLimit && what == "block page /dashboard/ 200" {
			limit += " for=60000"
		}
		limits = append(limits, limit)
	}
	switch {
	case otherLimit:
	case words[0] == "release", words[0] == "settle":
		limits = nil
	case len(limits) > 1: // the request names none
		limits = []string{""}
	}
	action := words[0]
	if words[2] == "/v1/settle" {
		action = "settle" // the right of which is missing
	}
	text := fmt.Sprintf("%s %s %s %d:", action, words[1], words[2], status)
	if len(limits) > 0 {
		text += " " + strings.Join(limits, ", ")
	}
	return text
}

// A credentialOfTest is one, with the status of what it may not do.
type credentialOfTest struct {
	who, token, certificate string
	write, settle           int  // 0: it may
	otherLimit              bool // 403 is because of the limit
}

// TestAuditOfEachWrite: each write of the API, of commands and of the page leaves exactly one event
// for each kind of credential, whether it is done or refused, with who, what and how it was before
// and after; what reads and decides leaves none.
func TestAuditOfEachWrite(t *testing.T) {
	a := apitest.NewAuthority(t)
	for _, name := range []string{"own", "billing", "jobs", "stranger"} {
		a.Issue(name)
	}
	access := apitest.WriteFile(t, filepath.Join(t.TempDir(), "access.yaml"), auditAccess)
	for service, tt := range map[string]struct {
		args        []string
		credentials []credentialOfTest
	}{
		"tokens": {nil, []credentialOfTest{
			{"anyone:", "", "", 401, 0, false},
			{"unknown:", "a-token-that-nobody-has", "", 401, 0, false},
			{"token:write-token-file:c7355b97", apitest.Token, "", 0, 0, false},
			{"token:ann", annToken, "", 0, 0, false},
			{"token:limited", limitedToken, "", 403, 403, true},
			{"token:decider", decideToken, "", 403, 403, false},
		}},
		"certificates": {[]string{"--tls-cert=" + a.Path("own.pem"),
			"--tls-key=" + a.Path("own.key"), "--tls-client-ca=" + a.Path("ca.pem")},
			[]credentialOfTest{
				{"certificate:CN=stranger", "", "stranger", 401, 0, false},
				{"certificate:billing", "", "billing", 0, 0, false},
				{"certificate:jobs", "", "jobs", 403, 403, true},
				{"token:ann", annToken, "jobs", 0, 0, false},
			}},
	} {
		t.Run(service, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.jsonl")
			base, log, stop := start(t, slices.Concat(auditFlags, tt.args,
				[]string{"--access-file=" + access, "--audit=" + path, "--top-keys=5"})...)
			if tt.args != nil {
				base = "https" + strings.TrimPrefix(base, "http")
			}
			began := time.Now()
			want := auditAll(t, a, base, tt.credentials)
			stop()
			checkEvents(t, events(t, path), want, began)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			checkSecrets(t, string(text)+log.String(), annToken, limitedToken, decideToken)
			if strings.Contains(log.String(), `"msg":"write"`) {
				t.Errorf("the log has writes too: %s", log)
			}
		})
	}
}

// checkEvents compares events with those that are wanted, in their order.
func checkEvents(t *testing.T, got []audit.Event, want []string, began time.Time) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d events, want %d", len(got), len(want))
	}
	hashes := make(map[string]bool)
	for i, e := range got[:min(len(got), len(want))] {
		if text := shown(&e); text != want[i] {
			t.Errorf("got  %s\nwant %s", text, want[i])
		}
		if _, _, err := net.SplitHostPort(e.From); err != nil || e.Time.Before(began) ||
			e.Time.After(time.Now()) || (e.Error != "") != (e.Outcome != audit.Done) {
			t.Errorf("%+v", e)
		}
		own := make(map[string]bool)
		for _, c := range e.Changes {
			if len(c.Hash) != 32 || c.Key != "" || hashes[c.Hash] {
				t.Errorf("%+v: the hash is none, or that of another key", e)
			}
			own[c.Hash] = true
		}
		for hash := range own {
			hashes[hash] = true
		}
	}
}

// auditAll does each write with each credential, and what is no write, and returns the events that
// this leaves.
func auditAll(
	t *testing.T, authority *apitest.Authority, base string, credentials []credentialOfTest,
) (want []string) {
	t.Helper()
	first := &credentials[0]
	own := &actor{T: t, base: base, token: first.token, client: http.DefaultClient}
	if first.certificate != "" {
		own.client = authority.Client(first.certificate)
	}
	own.token = annToken
	_, index := own.send(http.MethodGet, "/dashboard/", "", "")
	own.form = pageToken.FindStringSubmatch(index)[1]
	for _, c := range credentials {
		a := &actor{T: t, base: base, token: c.token, form: own.form, client: http.DefaultClient}
		writes := auditWrites
		if c.certificate == "" {
			writes = slices.Concat(auditWrites, commandWrites)
			a.tokenFile = apitest.TokenFile(t, c.token+" a name")
		} else {
			a.client = authority.Client(c.certificate)
		}
		for i, w := range writes {
			own.key = fmt.Sprint(apitest.Secret, "-", c.who, "-", i)
			a.key = own.key
			id := own.held()
			needsSettle := strings.Contains(w.done, "/v1/settle")
			status := c.write
			if needsSettle {
				status = c.settle
			}
			w.do(a, id)
			if status == 0 {
				want = append(want, c.who+" done "+w.done)
			} else {
				want = append(want, c.who+" refused "+w.refusedAs(status, c.otherLimit))
			}
		}
		if c.otherLimit || c.who == "token:decider" {
			continue // whose reads and decisions are refused
		}
		for path, body := range map[string]string{"/v1/decide": `{"key":"$K"}`,
			"/v1/peek": `{"key":"$K"}`, "/v1/check": "", "/v1/settle": `{"id":"no id"}`} {
			a.post(path, body)
		}
		if c.write == 0 {
			a.post("/v1/explain", `{"descriptor":{"key":"$K"}}`)
			a.post("/v1/force", `{"limit":"none","key":"$K","n":1}`)
			a.post("/v1/reset", `{`)
			for _, path := range []string{"/metrics", "/v1/top-keys", "/dashboard/", "/healthz"} {
				a.send(http.MethodGet, path, "", "")
			}
		}
	}
	return want
}

// TestAuditKeys: with --audit-keys an event has the key, and a failed write its error.
func TestAuditKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	base, _, stop := start(t, "--limit=tokens=9/1h", "--audit="+path, "--audit-keys",
		"--store=redis://"+unusedAddr(t), "--on-failure=closed")
	post(t, base+"/v1/reset", apitest.One("tokens", ""))
	stop()
	got := events(t, path)
	if len(got) != 1 || got[0].Changes[0].Key != apitest.Secret || got[0].Outcome != audit.Failed ||
		got[0].Status != 503 || got[0].Error == "" ||
		strings.Contains(got[0].Error, apitest.Secret) {
		t.Errorf("%+v", got)
	}
}

// TestAuditOfCommand: a command with a store of its own leaves an event of who runs it.
func TestAuditOfCommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	own := []string{"--store=memory", "--limit=tokens=9/1h"}
	for _, args := range [][]string{{"reset", apitest.Secret}, {"peek", "--key=" + apitest.Secret},
		{"take", "--key=" + apitest.Secret}} {
		args = slices.Concat(args, own, []string{"--audit=" + path})
		if code := run(t.Context(), args, io.Discard, os.Stderr); code != exitOK {
			t.Fatalf("%v: code %d", args, code)
		}
	}
	u, err := user.Current()
	if err != nil {
		t.Skip(err)
	}
	got := events(t, path)
	want := "user:" + u.Username + " done reset command /v1/reset 204: tokens 9>9"
	if len(got) != 1 || shown(&got[0]) != want || got[0].Changes[0].Hash != "" {
		t.Errorf("%+v, want %s", got, want)
	}
	for _, args := range [][]string{{"reset", "a", "--audit=" + path},
		{"reset", "a", "--audit-keys", "--store=memory"},
		{"reset", "a", "--store=memory", "--audit=" + t.TempDir()}} {
		var stderr strings.Builder
		if code := run(t.Context(), args, io.Discard, &stderr); code != exitError ||
			!strings.Contains(stderr.String(), "audit") {
			t.Errorf("%v: code %d: %s", args, code, stderr.String())
		}
	}
}

// TestAuditOnStdout: - is standard output, which has nothing else.
func TestAuditOnStdout(t *testing.T) {
	out := new(apitest.Log)
	base, _, stop := startTo(t, out, "--limit=tokens=9/1h", "--audit=-")
	post(t, base+"/v1/reset", apitest.One("tokens", ""))
	stop()
	if lines := strings.Split(out.String(), "\n"); len(lines) != 2 ||
		!strings.HasPrefix(lines[0], `{"time":`) || lines[1] != "" {
		t.Errorf("%q", lines)
	}
}
