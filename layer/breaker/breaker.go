// Package breaker has a circuit breaker: a store that stops calling a failing store until it
// recovers. After a number of failures in a row it opens: demands fail at once with [ErrOpen],
// without a call. After each pause it lets one demand through as a trial, and the first answer
// closes it. The states and their changes are those of package [github.com/sony/gobreaker/v2].
//
// Use it around a store whose calls end by a timeout of that store, such as the stores on servers
// and layer.Timeout: a call that never returns does not count as a failure.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer/internal/pace"
)

// The values of zero [Options].
const (
	DefaultFailures = 20
	DefaultPause    = 500 * time.Millisecond
)

// Options of a store. The zero value is ready for use.
type Options struct {
	// Failures is the number of failed calls in a row that opens the breaker. Zero means
	// DefaultFailures.
	Failures int
	// Pause is how long an open breaker lets nothing through before the next trial. Zero means
	// DefaultPause.
	Pause time.Duration
	// OnChange, if not nil, is called for each change of the state, one at a time and in order.
	// Demands may wait for it, so it should return soon. It may call State, Stats and LastFailure,
	// and must not call Take or TakeAll.
	OnChange func(from, to State)
}

// Stats are counts since the store was made.
type Stats struct {
	Opened   int64 // times when it opened, including after a failed trial
	Refused  int64 // calls that failed with ErrOpen
	Failures int64 // calls and background peeks that failed
}

// Store is a [driver.Store] around another one. It is safe for concurrent use. Create one with
// [New].
//
// A call counts as failed if its error is an outage ([driver.IsOutage]), but not
// [driver.ErrClosed], which is permanent. An error of a call whose context has ended does not
// count.
//
// Callers choose their deadlines, so calls whose context ends do not open the breaker, however many
// callers allow less time than the store needs. After such a call the breaker peeks at the same key
// in the background: one peek at a time, and at most one in each Pause. A peek ends at the store's
// own timeout. A peek that fails counts as one failure. If the store answered nothing between an
// earlier failure and the end of the peek, the peek counts as one failure for the call that caused
// it, and one for each call whose context ended during it.
type Store struct {
	inner driver.Store

	// failed is odd from a failure until the next success. Calls go through breaker, which takes a
	// lock and reads the clock, only in that time and during a peek. failed grows with each
	// failure, so that a success does not cancel a newer failure.
	failed  atomic.Uint64
	breaker *gobreaker.CircuitBreaker[struct{}]

	state atomic.Uint32 // a State
	peeks *pace.Pacer
	// abandoned grows with each call that is abandoned. It is set to 1 when a peek begins, for the
	// call that caused it, and to 0 by an answer.
	abandoned atomic.Int64

	start    time.Time
	pause    time.Duration
	until    atomic.Int64 // end of the pause, in ns since start; 0 unless open
	onChange func(from, to State)

	opened, refused, failures atomic.Int64
	lastFailure               atomic.Pointer[error]
}

var _ driver.Store = (*Store)(nil)

// New returns a closed breaker around inner; nil options are the zero Options. An error wraps
// [driver.ErrInvalid].
func New(inner driver.Store, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	switch {
	case inner == nil:
		return nil, fmt.Errorf("%w options: no store", driver.ErrInvalid)
	case opts.Failures < 0 || int64(opts.Failures) >= 1<<32:
		return nil, fmt.Errorf("%w options: Failures %d is not from 0 to 2^32-1",
			driver.ErrInvalid, opts.Failures)
	case opts.Pause < 0:
		return nil, fmt.Errorf("%w options: Pause %v is negative", driver.ErrInvalid, opts.Pause)
	}
	s := &Store{inner: inner, start: time.Now(), pause: opts.Pause, onChange: opts.OnChange}
	failures := uint32(opts.Failures)
	if failures == 0 {
		failures = DefaultFailures
	}
	if s.pause == 0 {
		s.pause = DefaultPause
	}
	s.peeks = pace.New(s.pause)
	s.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1, // a trial
		Timeout:     s.pause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= failures },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			s.changed(states[from], states[to])
		},
		IsExcluded: func(err error) bool { return errors.Is(err, errNoVerdict) },
	})
	return s, nil
}

// Stats returns what s has done until now.
func (s *Store) Stats() Stats {
	return Stats{Opened: s.opened.Load(), Refused: s.refused.Load(), Failures: s.failures.Load()}
}

// LastFailure returns the error of the last call, or peek in the background, that failed. It says
// why the breaker opened. It is nil before the first failure, and stays when the store has answered
// again.
func (s *Store) LastFailure() error {
	if err := s.lastFailure.Load(); err != nil {
		return *err
	}
	return nil
}

// Take decides one demand. Errors are those of the store inside, [driver.CheckTake] and
// [ErrOpen].
func (s *Store) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	if s.guarded() {
		return s.takeGuarded(ctx, d)
	}
	ended := ctx.Err() != nil // then the store inside does nothing
	res, err := s.inner.Take(ctx, d)
	if err != nil && !ended {
		s.note(d, s.verdictOn(ctx, err))
	}
	return res, err
}

// takeGuarded is Take through the breaker.
func (s *Store) takeGuarded(
	ctx context.Context, d driver.Demand,
) (res driver.Result, err error) {
	if err := driver.CheckTake(ctx, d); err != nil {
		return res, err
	}
	refused := s.execute(d, func() error {
		res, err = s.inner.Take(ctx, d)
		return s.verdictOn(ctx, err, res)
	})
	if refused != nil {
		return driver.Result{}, refused
	}
	return res, err
}

// TakeAll decides several demands as one. Errors are those of Take, and of
// [driver.CheckTakeAll].
func (s *Store) TakeAll(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) error {
	if s.guarded() {
		return s.takeAllGuarded(ctx, ds, out)
	}
	ended := ctx.Err() != nil
	err := s.inner.TakeAll(ctx, ds, out)
	if err != nil && !ended && len(ds) > 0 {
		s.note(ds[0], s.verdictOn(ctx, err))
	}
	return err
}

func (s *Store) takeAllGuarded(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) (err error) {
	if err := driver.CheckTakeAll(ctx, ds, out); err != nil {
		return err
	}
	refused := s.execute(ds[0], func() error {
		err = s.inner.TakeAll(ctx, ds, out)
		return s.verdictOn(ctx, err, out...)
	})
	if refused != nil {
		return refused
	}
	return err
}
