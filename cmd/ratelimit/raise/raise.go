// Package raise has the command that writes temporary exceptions into an included file of limits.
package raise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/truewindow/ratelimit/cmd/internal/terminal"
	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/inspect"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

// Raise is "ratelimit raise", for package kong.
type Raise struct {
	Entries []string `arg:"" name:"name=value" sep:"none" help:"What requests have, as in when."`
	File    string   `required:"" placeholder:"FILE"`
	Config  string   `placeholder:"FILE"`
	Limit   string   `required:"" placeholder:"NAME"`
	Max     string   `placeholder:"MAX"`
	Until   string   `placeholder:"TIME"`
	For     string   `placeholder:"DURATION"`
	End     bool
	Audit   string `placeholder:"FILE"`

	when  rules.Descriptor
	until time.Time
	ended string // what --end has removed
}

// Help has the help of each flag, by name.
var Help = map[string]string{
	"file": "The included file, which is written anew: its exceptions that are over, or that the " +
		"new one hides, are removed. It is created if it is missing.",
	"config": "The file that includes it. Nothing is written unless ratelimit validate would " +
		"take the result.",
	"limit": "The limit.",
	"max":   "In place of the limit's max, such as 5000/1m or unlimited.",
	"until": "When it ends, such as 2026-12-04T18:00:00+01:00.",
	"for":   "When it ends, from now, such as 24h or 7d.",
	"end":   "End it now.",
	"audit": "Append an event to this file, which may be that of ratelimit serve.",
}

// Validate is called by kong when it has parsed the command line.
func (c *Raise) Validate() (err error) {
	if c.when, err = inspect.ParseDescriptor(c.Entries); err != nil {
		return err
	}
	if c.Audit == "-" {
		return errors.New("--audit is a file here")
	}
	for i, e := range c.when {
		if !utf8.ValidString(e.Name + e.Value) {
			return fmt.Errorf("the entry %q is not UTF-8", e.Name+"="+e.Value)
		}
		if _, twice := c.when[:i].Value(e.Name); twice {
			return fmt.Errorf("the entry %q is there twice", e.Name)
		}
	}
	switch {
	case c.End && c.Max+c.Until+c.For != "":
		return errors.New("--end is without --max, --until and --for")
	case c.End:
		return nil
	case c.Max == "":
		return errors.New("--max or --end is required")
	case !isMax(c.Max):
		return fmt.Errorf("--max is such as 5000/1m, 0 or unlimited, not %q", c.Max)
	case (c.Until == "") == (c.For == ""):
		return errors.New("give either --until or --for")
	}
	return c.parseUntil(time.Now())
}

// isMax reports whether a text is the max of a limit with some algorithm.
func isMax(text string) bool {
	_, err := driver.ParseLimit(text)
	_, ofBlock := driver.ParseLimit("1/" + text)
	_, ofMonth := strconv.ParseUint(text, 10, 63)
	return text == "unlimited" || err == nil || ofBlock == nil || ofMonth == nil
}

// parseUntil reads --until or --for.
func (c *Raise) parseUntil(now time.Time) (err error) {
	if c.For != "" {
		limit, err := driver.ParseLimit("1/" + c.For)
		if err != nil {
			return fmt.Errorf("--for is a duration such as 90m, 24h or 7d, not %q", c.For)
		}
		c.until = now.Add(limit.Window).Truncate(time.Second)
		return nil
	}
	if c.until, err = time.Parse(time.RFC3339, c.Until); err != nil {
		return fmt.Errorf("--until is a time with its offset, such as 2026-12-04T18:00:00+01:00, "+
			"not %q", c.Until)
	}
	if !now.Before(c.until) {
		return fmt.Errorf("--until %s is over", c.Until)
	}
	return nil
}

// Run writes the file, and prints its exceptions that end.
func (c *Raise) Run(k *kong.Context) error {
	note, err := c.audit(k.Stderr)
	if err != nil {
		return err
	}
	written, err := c.run(k)
	if err := note(err); err != nil {
		return err
	}
	if c.End {
		fmt.Fprintf(k.Stdout, "ended: %s %s\n", terminal.Value(c.Limit), terminal.Line(c.ended))
	}
	return print(k.Stdout, written)
}

// audit opens the file of --audit, and returns what notes an event and returns the error.
func (c *Raise) audit(stderr io.Writer) (note func(error) error, err error) {
	if c.Audit == "" {
		return func(err error) error { return err }, nil
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	f, err := audit.Open(c.Audit, log)
	if err != nil {
		return nil, err
	}
	return func(err error) error {
		e := audit.Event{Action: "raise", Outcome: audit.Done, Door: audit.Command, Path: c.File,
			Changes: []audit.Change{{Limit: c.Limit, Rate: strings.Join(c.Entries, ", ")}}}
		if c.End {
			e.Action = "raise_ends"
			e.Changes[0].Rate = cmp.Or(c.ended, e.Changes[0].Rate)
		} else {
			e.Changes[0].Rate = fmt.Sprintf("%s except %s until %s", c.Max, e.Changes[0].Rate,
				c.until.Format(time.RFC3339))
		}
		if err != nil {
			e.Outcome, e.Error = audit.Failed, err.Error()
		}
		audit.New(log, audit.Options{Sinks: []audit.Sink{f}}).
			Note(access.With(context.Background(), access.User()), e)
		f.Close()
		if err == nil && f.Lost() > 0 {
			err = errors.New("it is done, and the audit could not be written")
		}
		return err
	}, nil
}

// run writes the file, and returns its exceptions.
func (c *Raise) run(k *kong.Context) ([]rules.Included, error) {
	path := target(c.File)
	unlock, err := lock(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	f, err := read(path)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var ended []string
	f.remove(func(e rules.Included) bool {
		if !isOf(e, c.Limit, c.when) {
			return !c.End && isHidden(e, c.Limit, c.when, c.until)
		}
		ended = append(ended, fmt.Sprintf("%s except %v", e.Max, e.String()))
		return true
	})
	switch {
	case !c.End:
		f.add(c.Limit, c.when, c.Max, c.until)
	case len(ended) > 0:
		c.ended = strings.Join(ended, "; ")
	default:
		return nil, fmt.Errorf("%s has no exception of %q for %s that ends", c.File, c.Limit,
			strings.Join(c.Entries, ", "))
	}
	f.remove(func(e rules.Included) bool { return e.Over(now) })
	data, err := f.bytes()
	if err != nil {
		return nil, err
	}
	written, err := c.check(f.path, data, k.Stderr)
	if err != nil {
		return nil, fmt.Errorf("nothing is written: %w", err)
	}
	if err := replace(f.path, data); err != nil {
		return nil, err
	}
	return written, nil
}

// check returns the exceptions of the file as it would be. With --config it prints the warnings of
// the file.
func (c *Raise) check(path string, data []byte, w io.Writer) ([]rules.Included, error) {
	_, written, err := rules.ReadIncluded(path, data)
	if err != nil || c.Config == "" {
		return written, err
	}
	loaded, err := rules.ReadWith(c.Config, c.File, data)
	if err != nil {
		return nil, err
	}
	all := config.Config{File: loaded, Set: loaded.Set, Follow: loaded.Paths}
	for _, p := range all.Warnings(0) {
		if filepath.Base(p.At.File) == filepath.Base(path) {
			fmt.Fprintln(w, terminal.Line(fmt.Sprintf("%v: warning: %s", p.At, p.Text)))
		}
	}
	return written, nil
}

// print prints the exceptions that end.
func print(w io.Writer, exceptions []rules.Included) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	n := 0
	for _, e := range exceptions {
		if e.Until.IsZero() {
			continue
		}
		if n++; n == 1 {
			fmt.Fprintln(t, "LIMIT\tMAX\tFOR")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", terminal.Value(e.Limit), terminal.Value(e.Max),
			terminal.Line(e.String()))
	}
	return t.Flush()
}
