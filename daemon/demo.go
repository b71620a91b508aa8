package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend"
)

// Bounds of the demonstration's limit: a run takes five to six windows, and a burst is over long
// before the next one.
const (
	demoMaxUnits  = 10_000
	demoMinWindow = 200 * time.Millisecond
	demoMaxWindow = time.Minute
)

type demoCmd struct {
	Store string          `default:"memory" placeholder:"URL" help:"Where the exact log keeps its state: memory, or a URL as for serve (${default})."`
	Limit ratelimit.Limit `default:"20/2s" placeholder:"MAX/WINDOW" help:"The limit that both are held to; the run takes five to six windows (${default})."`
	SVG   string          `name:"svg" placeholder:"FILE" help:"Write the picture to FILE, too, as SVG."`
}

// Validate is called by kong when it has parsed the command line.
func (c *demoCmd) Validate() error {
	if l := c.Limit; l.Max > demoMaxUnits || l.Window < demoMinWindow || l.Window > demoMaxWindow {
		return fmt.Errorf("%w: the demonstration wants at most %d units in a window from %v to %v",
			ratelimit.ErrInvalidLimit, demoMaxUnits, demoMinWindow, demoMaxWindow)
	}
	return nil
}

// Run offers the same bursts to a fixed window and to the exact log, and shows what each admitted.
// When ctx ends before the run does, it shows what there is and returns an error.
func (c *demoCmd) Run(ctx context.Context, k *kong.Context) error {
	store, err := backend.Open(ctx, c.Store)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(named(c.Limit)))
	if err != nil {
		return err
	}
	traffic, err := newTraffic(ctx, c.Limit, limiter)
	if err != nil {
		return fmt.Errorf("the store cannot decide: %w", err)
	}
	var svg io.WriteCloser
	if c.SVG != "" {
		if svg, err = os.Create(c.SVG); err != nil {
			return err
		}
	}

	rec := &traffic.recording
	fmt.Fprintf(k.Stdout,
		"Limit %d/%v, bursts of %d on each side of window edges,\nand between them, offered to both. This takes %v.\n\n",
		rec.limit.Max, rec.limit.Window, rec.burst, rec.duration())
	progress := func() {}
	if isTerminal(k.Stdout) {
		progress = func() { fmt.Fprint(k.Stdout, "\r\x1b[K"+progressLine(rec)) }
	}
	err = traffic.run(ctx, progress)
	if isTerminal(k.Stdout) {
		fmt.Fprint(k.Stdout, "\r\x1b[K")
	}
	writeReport(k.Stdout, rec, store.Name)
	if svg != nil {
		err = errors.Join(err, writeSVG(svg, rec, store.Name), svg.Close())
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted after %v of %v", rec.elapsed().Round(time.Millisecond),
			rec.duration())
	}
	return errors.Join(err, rec.check())
}

// writeReport writes the picture and the figures in lines of at most chartWidth columns.
func writeReport(w io.Writer, r *recording, store string) {
	fmt.Fprintf(w, "Units in the trailing %v; ╌ the limit, ┴ edges of the fixed window\n\n",
		r.limit.Window)
	fmt.Fprintf(w, "Fixed window, a counter in this process that starts over at every edge\n")
	writeChart(w, r, &r.fixed)
	fmt.Fprintf(w, "\nExact log, on %s\n", store)
	writeChart(w, r, &r.exact)
	fmt.Fprintf(w, "\n%14smost in any rolling %-10v  offered  admitted  refused\n", "",
		r.limit.Window)
	for _, s := range r.both() {
		most := s.most(r.limit.Window)
		fmt.Fprintf(w, "%-14s%-31s%7d%10d%9d\n",
			s.name, fmt.Sprintf("%d = %s × limit", most, r.quotient(most)),
			len(s.attempts), len(s.admitted), len(s.attempts)-len(s.admitted))
	}
}

func progressLine(r *recording) string {
	const width = 16
	done := min(int(r.elapsed()*width/r.duration()), width)
	return fmt.Sprintf("%s%s %4.1fs of %v  fixed window %d, exact log %d admitted",
		strings.Repeat("█", done), strings.Repeat("░", width-done),
		r.elapsed().Seconds(), r.duration(), len(r.fixed.admitted), len(r.exact.admitted))
}

// isTerminal reports whether lines on w can be redrawn.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&fs.ModeCharDevice != 0
}
