package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"github.com/truewindow/ratelimit/cmd/internal/terminal"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
)

// topCmd is "ratelimit top".
type topCmd struct {
	URL       string        `env:"RATELIMIT_URL" default:"http://127.0.0.1:8080" placeholder:"URL"`
	TokenFile string        `env:"RATELIMIT_TOKEN_FILE" placeholder:"FILE"`
	JSON      bool          `name:"json"`
	Every     time.Duration `default:"2s" placeholder:"DURATION"`
	Once      bool
	Lines     int `default:"20" placeholder:"N"`
}

// Validate is called by kong when it has parsed the command line.
func (c *topCmd) Validate() error {
	if c.Every <= 0 || c.Lines <= 0 {
		return fmt.Errorf("--every=%v and --lines=%d are not both positive", c.Every, c.Lines)
	}
	return nil
}

// Run prints what the page of a service has of limits and keys, again and again.
func (c *topCmd) Run(ctx context.Context, k *kong.Context) error {
	for {
		if err := c.show(ctx, k.Stdout); err != nil || c.Once {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.Every):
		}
	}
}

func (c *topCmd) show(ctx context.Context, w io.Writer) error {
	const path = httpapi.PagePath + "snapshot"
	status, text, err := send(ctx, http.MethodGet, c.URL, path, c.TokenFile, nil)
	if err != nil {
		return err
	}
	if err := problemIn(path, status, text); err != nil {
		return err
	}
	if c.JSON {
		_, err := fmt.Fprintf(w, "%s\n", text)
		return err
	}
	var s topSnapshot
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	if !c.Once && isTerminal(w) {
		fmt.Fprint(w, "\x1b[H\x1b[2J") // to the upper left, and clear the screen
	}
	s.write(w, c.Lines)
	return nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// A topSnapshot is what is shown of the page.
type topSnapshot struct {
	Limits []topLimitLine
	State  []struct {
		Name, Value string
		Bad         bool
	}
	Top []struct {
		Limit string
		Keys  []struct {
			Name       string
			Count, For int64
		}
	}
}

type topLimitLine struct {
	Name, Rate     string
	Second, Minute struct{ Admitted, Refused, Undecided int64 }
}

// write writes what is bad, and a number of the limits that refuse most, and of their keys.
func (s *topSnapshot) write(w io.Writer, lines int) {
	for _, line := range s.State {
		if line.Bad {
			fmt.Fprintf(w, "%s: %s\n", terminal.Line(line.Name), terminal.Line(line.Value))
		}
	}
	slices.SortStableFunc(s.Limits, func(a, b topLimitLine) int {
		return cmp.Or(cmp.Compare(b.Minute.Refused, a.Minute.Refused),
			cmp.Compare(b.Minute.Admitted, a.Minute.Admitted))
	})
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LIMIT\tRATE\tADMITTED/S\tREFUSED/S\tADMITTED/MIN\tREFUSED/MIN\tUNDECIDED/MIN")
	for _, l := range s.Limits[:min(lines, len(s.Limits))] {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\n", terminal.Value(l.Name),
			terminal.Value(l.Rate), l.Second.Admitted, l.Second.Refused, l.Minute.Admitted,
			l.Minute.Refused, l.Minute.Undecided)
	}
	_ = t.Flush()
	if len(s.Top) == 0 {
		return
	}
	fmt.Fprintln(t, "\nREFUSED KEY\tLIMIT\tREFUSALS\tFOR")
	for _, l := range s.Top {
		for _, k := range l.Keys {
			if lines--; lines < 0 {
				break
			}
			fmt.Fprintf(t, "%s\t%s\t%d\t%v\n", terminal.Value(k.Name), terminal.Value(l.Limit),
				k.Count, time.Duration(k.For)*time.Second)
		}
	}
	_ = t.Flush()
}
