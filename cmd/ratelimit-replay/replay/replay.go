// Package replay is the command that runs recorded arrivals through algorithms under proposed
// limits, and reports which keys would have been refused, when and how often.
//
// A log is read as a stream. Memory holds a few numbers for each key and, for keys with admitted
// units in their window, the states of the algorithms.
package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync/atomic"

	"github.com/truewindow/ratelimit/driver"
)

// A Proposal is a limit with the algorithm that would enforce it.
type Proposal struct {
	Name      string // of the algorithm, for the report
	Algorithm driver.Algorithm
}

// Options say how logs are read, and which limits are tried.
type Options struct {
	Format     Format // empty: that of the first line
	KeyField   string // empty: "key" in JSON lines, "client" in access logs
	TimeField  string // of JSON lines; empty: "time"
	UnitsField string // empty: each line takes one unit

	// TrustedProxies do not count in a list of addresses.
	TrustedProxies []netip.Prefix

	Proposals []Proposal
	Progress  *Progress // may be nil
}

// Progress is updated while Run reads. It is safe for concurrent use.
type Progress struct {
	Lines atomic.Int64 // read and decided
}

// ErrNothingRead means that no line of a log could be read.
var ErrNothingRead = errors.New("no line could be read")

// Run replays logs, which may be compressed with gzip or bzip2, as one log in the order of time. If
// ctx ends or reading fails, it returns the error with a report of what was read until then, or
// without a report if nothing was read. Without a line that can be read it returns the report and
// an error that wraps [ErrNothingRead]. Errors of o or of the format wrap [driver.ErrInvalid].
//
// If ctx ends while a Read of a log blocks, the goroutine that reads stays until that Read returns.
func Run(ctx context.Context, logs []io.Reader, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	m, err := newMerge(ctx, logs, &o)
	if err != nil {
		return nil, err
	}
	e := newEngine(o.Proposals)
	for {
		more, err := m.decide(ctx, e)
		if err != nil {
			return e.report(&o), err
		}
		if o.Progress != nil {
			o.Progress.Lines.Store(e.input.Lines)
		}
		if !more {
			break
		}
	}
	report := e.report(&o)
	if err := context.Cause(ctx); err != nil {
		return report, err
	}
	if report.Input.Requests == 0 {
		return report, nothingRead(&o, report, m.firstLine)
	}
	return report, nil
}

// nothingRead returns an error that says what the first line of a log has.
func nothingRead(o *Options, r *Report, line []byte) error {
	if r.Input.Unread == nil {
		return fmt.Errorf("%w: the log is empty", ErrNothingRead)
	}
	if fields := fieldsOf(line); o.Format == JSONLines && fields != "" {
		return fmt.Errorf("%w with the key in field %s and the time in field %s; "+
			"set --key-field and --time-field; the first line has: %s",
			ErrNothingRead, shown(o.KeyField), shown(o.TimeField), fields)
	}
	return fmt.Errorf("%w: %s; the first line is %s", ErrNothingRead, r.Input.Unread[0].Reason,
		excerpt(line))
}

// Validate returns an error if an option is wrong or missing.
func (o *Options) Validate() error {
	if len(o.Proposals) == 0 {
		return fmt.Errorf("%w options: there is no limit to replay; add one, such as 10/1m",
			driver.ErrInvalid)
	}
	for _, p := range o.Proposals {
		if err := p.Algorithm.Validate(); err != nil {
			return err
		}
	}
	for _, p := range o.TrustedProxies {
		if !p.IsValid() || p.Bits() == 0 || p.Addr().Is4In6() && p.Bits() <= 96 {
			return fmt.Errorf("%w options: the trusted proxies %v are all addresses, or no network",
				driver.ErrInvalid, p)
		}
	}
	return o.validateFormat()
}
