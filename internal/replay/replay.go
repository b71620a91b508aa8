// Package replay runs recorded arrivals through algorithms under proposed limits, and reports which
// keys would have been refused, when and how often.
//
// A log is read as a stream. Memory holds a few numbers for each key and, for keys with admitted
// units in their window, the states of the algorithms.
package replay

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/truewindow/ratelimit"
)

// A Proposal is a limit with the algorithm that would enforce it.
type Proposal struct {
	Name      string // of the algorithm, for the report
	Algorithm ratelimit.Algorithm
}

// Options say how the log is read, and which limits are tried.
type Options struct {
	Format     Format // empty: that of the first line
	KeyField   string // empty: "key" in JSON lines, "client" in access logs
	TimeField  string // of JSON lines; empty: "time"
	UnitsField string // empty: each line takes one unit
	Proposals  []Proposal
	Progress   *Progress // may be nil
}

// Progress is updated while Run reads. It is safe for concurrent use.
type Progress struct {
	Lines atomic.Int64 // read and decided
}

// Run replays log, which may be compressed with gzip. If ctx ends or reading fails, it returns the
// error with a report of what was read until then, or without a report if nothing was read. Other
// errors wrap [ratelimit.ErrInvalidOptions] or [ratelimit.ErrInvalidLimit].
//
// If ctx ends while a Read of log blocks, the goroutine that reads stays until that Read returns.
func Run(ctx context.Context, log io.Reader, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stream := newStream(ctx, log)
	first, err := stream.first()
	if err != nil {
		return nil, err
	}
	parser, err := newParser(&o, first)
	if err != nil {
		return nil, err
	}
	e := newEngine(o.Proposals)
	parsed := stream.parse(parser)
	for {
		select {
		case <-ctx.Done():
			return e.report(&o), context.Cause(ctx)
		case b, more := <-parsed:
			if !more {
				return e.report(&o), stream.err
			}
			e.decide(b)
			stream.recycle(b)
			if o.Progress != nil {
				o.Progress.Lines.Store(e.input.Lines)
			}
		}
	}
}

// Validate returns an error if an option is wrong or missing.
func (o *Options) Validate() error {
	if len(o.Proposals) == 0 {
		return fmt.Errorf("%w: there is no limit to replay; add one, such as 10/1m",
			ratelimit.ErrInvalidOptions)
	}
	for _, p := range o.Proposals {
		if err := p.Algorithm.Validate(); err != nil {
			return err
		}
	}
	return o.validateFormat()
}
