// Package breaker has a store around a store that stops asking it while it is away: after so many failures in a row demands are
// left undecided at once, without a call. Now and then one demand is let through, and the first that is answered ends it.
//
// It belongs around a store whose calls end by a deadline, as those on servers do and those inside of layer.Deadline: a call that never
// returns is no failure.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/truewindow/ratelimit"
)

// What zero [Options] mean.
const (
	DefaultFailures = 20
	DefaultPause    = 500 * time.Millisecond
)

// ErrInvalidOptions says that New cannot make a store of what it was given.
var ErrInvalidOptions = errors.New("breaker: invalid options")

// ErrOpen says that the store inside was not asked, so nothing was recorded. It wraps [ratelimit.ErrUnavailable].
var ErrOpen = fmt.Errorf("%w: the breaker is open", ratelimit.ErrUnavailable)

// Options of a store. The zero value is ready for use.
type Options struct {
	// Failures is the number of failed calls in a row, with no call answered between them, that opens the breaker. 0 is DefaultFailures.
	Failures int
	// Pause is how long an open breaker asks nothing, before it lets one demand through. 0 is DefaultPause.
	Pause time.Duration
	// OnChange is called with each change of the state, one after the other and in order, and the demand that caused the change waits for it. It
	// may call State and Stats, and must not call Take and TakeAll. nil is nobody.
	OnChange func(from, to State)
}

// Stats tell what a store has done since it was made.
type Stats struct {
	Opened   int64 // times that it opened, again after a demand let through that failed included
	Refused  int64 // calls that it answered with ErrOpen
	Failures int64 // calls that failed
}

// Store is a [ratelimit.Store] around another one. It is safe for simultaneous use. Create one with [New].
//
// A call fails if its error wraps [ratelimit.ErrUnavailable], but for [ratelimit.ErrCorruptState] and [ratelimit.ErrCapacity], which concern
// a key, [ratelimit.ErrClosed], which is for good, and a caller who has left or whose context had ended before. A caller's deadline that passes during the call
// counts.
type Store struct {
	inner ratelimit.Store

	// trouble is odd from a failure until the next success: only then do calls go by way of breaker, which takes a lock and reads the clock. It
	// grows with each failure, so that a success ends no trouble that is newer than itself.
	trouble atomic.Uint64
	breaker *gobreaker.CircuitBreaker[struct{}]

	state    atomic.Uint32 // a State
	policy   atomic.Uint32 // the ratelimit.Policy of inner, as far as failed calls have shown it
	start    time.Time
	pause    time.Duration
	until    atomic.Int64 // end of the pause, in ns since start; 0 unless open
	onChange func(from, to State)

	opened, refused, failures atomic.Int64
}

var _ ratelimit.Store = (*Store)(nil)

// New returns a store that asks inner, and is closed; nil options are the zero Options. An error wraps [ErrInvalidOptions].
func New(inner ratelimit.Store, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	switch {
	case inner == nil:
		return nil, fmt.Errorf("%w: no store", ErrInvalidOptions)
	case opts.Failures < 0 || int64(opts.Failures) >= 1<<32:
		return nil, fmt.Errorf("%w: Failures %d is not between 0 and 2^32", ErrInvalidOptions, opts.Failures)
	case opts.Pause < 0:
		return nil, fmt.Errorf("%w: Pause %v is negative", ErrInvalidOptions, opts.Pause)
	}
	s := &Store{inner: inner, start: time.Now(), pause: opts.Pause, onChange: opts.OnChange}
	failures := uint32(opts.Failures)
	if failures == 0 {
		failures = DefaultFailures
	}
	if s.pause == 0 {
		s.pause = DefaultPause
	}
	s.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:   1,
		Timeout:       s.pause,
		ReadyToTrip:   func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= failures },
		OnStateChange: func(_ string, from, to gobreaker.State) { s.changed(states[from], states[to]) },
		IsExcluded:    func(err error) bool { return errors.Is(err, errNoVerdict) },
	})
	return s, nil
}

// Stats returns what s has done until now.
func (s *Store) Stats() Stats {
	return Stats{Opened: s.opened.Load(), Refused: s.refused.Load(), Failures: s.failures.Load()}
}

// Take decides one demand. Errors are those of the store inside, [ratelimit.CheckTake] and [ErrOpen]. The Result beside ErrOpen is what the failed
// calls had beside their errors.
func (s *Store) Take(ctx context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	if s.troubled() {
		return s.takeTroubled(ctx, d)
	}
	ended := ctx.Err() != nil // then the store inside does not look further
	res, err := s.inner.Take(ctx, d)
	if err != nil && !ended {
		s.note(s.judge(ctx, err, d.Op, res))
	}
	return res, err
}

func (s *Store) takeTroubled(ctx context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	err := ratelimit.CheckTake(ctx, d)
	if err == nil && s.pausing() {
		err = s.refuse()
	}
	if err == nil {
		return s.takeThrough(ctx, d)
	}
	return s.proposed().Undecided(d, err), err
}

func (s *Store) takeThrough(ctx context.Context, d ratelimit.Demand) (res ratelimit.Result, err error) {
	refused := s.through(func() error {
		res, err = s.inner.Take(ctx, d)
		return s.judge(ctx, err, d.Op, res)
	})
	if refused != nil {
		return s.proposed().Undecided(d, refused), refused
	}
	return res, err
}

// TakeAll decides several demands as one. Errors are those of Take, and of [ratelimit.CheckTakeAll].
func (s *Store) TakeAll(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	if s.troubled() {
		return s.takeAllTroubled(ctx, ds, out)
	}
	ended := ctx.Err() != nil
	err := s.inner.TakeAll(ctx, ds, out)
	if err != nil && !ended {
		s.note(s.judgeAll(ctx, err, ds, out))
	}
	return err
}

func (s *Store) takeAllTroubled(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	err := ratelimit.CheckTakeAll(ctx, ds, out)
	if err == nil && s.pausing() {
		err = s.refuse()
	}
	if err == nil {
		return s.takeAllThrough(ctx, ds, out)
	}
	s.proposed().UndecidedAll(ds, out, err)
	return err
}

func (s *Store) takeAllThrough(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) (err error) {
	refused := s.through(func() error {
		err = s.inner.TakeAll(ctx, ds, out)
		return s.judgeAll(ctx, err, ds, out)
	})
	if refused != nil {
		s.proposed().UndecidedAll(ds, out, refused)
		return refused
	}
	return err
}
