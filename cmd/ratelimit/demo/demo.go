// Package demo is the command that offers the same bursts to four algorithms, and draws what each
// admitted.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/cmd/internal/terminal"
)

// Bounds of the demonstration's limit. A run takes five to six windows, and each burst has to end
// long before the next one.
const (
	maxUnits  = 10_000
	minWindow = 200 * time.Millisecond
	maxWindow = time.Minute
)

// Command is "ratelimit demo", for package kong.
type Command struct {
	Store string          `default:"memory" placeholder:"URL"`
	Limit ratelimit.Limit `default:"20/2s" placeholder:"MAX/WINDOW"`
	SVG   string          `name:"svg" placeholder:"FILE"`
}

// Help has the help of each flag, by name.
var Help = map[string]string{
	"store": "The store that decides: memory, or a URL as for serve. Default: ${default}.",
	"limit": "The limit of each algorithm; the run takes five to six windows. " +
		"Default: ${default}.",
	"svg": "Also draw the charts as SVG to FILE.",
}

// Validate is called by kong when it has parsed the command line.
func (c *Command) Validate() error {
	if l := c.Limit; l.Max > maxUnits || l.Window < minWindow || l.Window > maxWindow {
		return fmt.Errorf("%w limit: the demonstration takes at most %d units, in %v to %v",
			ratelimit.ErrInvalid, maxUnits, minWindow, maxWindow)
	}
	return nil
}

// Run offers the same bursts to four algorithms on one store, and shows what each admitted. When
// ctx ends before the run does, it shows what there is and returns an error.
func (c *Command) Run(ctx context.Context, k *kong.Context) error {
	store, err := backend.Open(ctx, c.Store)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	traffic, err := newTraffic(ctx, c.Limit, store)
	if err != nil {
		return err
	}
	var svg io.WriteCloser
	if c.SVG != "" {
		if svg, err = os.Create(c.SVG); err != nil {
			return err
		}
	}

	rec := &traffic.recording
	fmt.Fprintf(k.Stdout,
		"Bursts of %d units around the edges of windows, for four algorithms\n"+
			"with the limit %d/%v on %s. This takes %v.\n\n",
		rec.burst, rec.limit.Max, rec.limit.Window, store.Name, rec.duration())
	progress := func() {}
	if terminal.Is(k.Stdout) {
		progress = func() { fmt.Fprint(k.Stdout, "\r\x1b[K"+progressLine(rec)) }
	}
	err = traffic.run(ctx, progress)
	if terminal.Is(k.Stdout) {
		fmt.Fprint(k.Stdout, "\r\x1b[K")
	}
	writeReport(k.Stdout, rec)
	if svg != nil {
		err = errors.Join(err, writeSVG(svg, rec, store.Name), svg.Close())
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted after %v of %v", rec.elapsed().Round(time.Millisecond),
			rec.duration())
	}
	return errors.Join(err, rec.check())
}

// writeReport writes the charts and the figures in lines of at most chartWidth columns.
func writeReport(w io.Writer, r *recording) {
	fmt.Fprintf(w, "Units in the trailing %v; ▔ the limit, ┴ edges of windows\n\n", r.limit.Window)
	for i := range r.series {
		fmt.Fprintln(w, r.series[i].name)
		writeChart(w, r, &r.series[i])
	}
	writeTimes(w, r)
	fmt.Fprintf(w, "\n%-22s%6s%9s%9s%10s%9s%7s\n",
		fmt.Sprintf("In any rolling %v", r.limit.Window),
		"most", "÷ limit", "offered", "admitted", "refused", "wrong")
	for i := range r.series {
		s := &r.series[i]
		most := s.most(r.limit.Window)
		fmt.Fprintf(w, "%-22s%6d%9s%9d%10d%9d%7d\n", s.name, most, r.quotient(most),
			len(s.attempts), len(s.admitted), len(s.attempts)-len(s.admitted), s.wrong(r.limit))
	}
	fmt.Fprint(w, "wrong: refused, though an exact log with the same admissions admits it\n")
}

func progressLine(r *recording) string {
	const width = 16
	done := min(int(r.elapsed()*width/r.duration()), width)
	return fmt.Sprintf("%s%s %4.1fs of %v", strings.Repeat("█", done),
		strings.Repeat("░", width-done), r.elapsed().Seconds(), r.duration())
}
