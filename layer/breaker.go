package layer

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// Breaker is a store that stops calling a failing store until it recovers. After a number of
// failures in a row it opens: demands fail at once with [ErrBreakerOpen], without a call. After
// each pause it lets one demand through as a trial, and the first answer closes it. Create one with
// [NewBreaker]. It is safe for concurrent use.
//
// A call fails if its error is an outage ([driver.IsOutage]), except for [driver.ErrClosed], which
// is permanent, and the error of a call whose context has ended: callers choose their deadlines.
// After a call that ended so, the breaker peeks at the same key in the background, one peek at a
// time and at most one in each pause. A peek that fails counts as one failure. If the store
// answered nothing between an earlier failure and the end of the peek, it counts once for the call
// that caused it, and once for each call whose context ended during it.
//
// Calls and peeks must end by a timeout of the store inside, such as a store on a server or
// [Timeout] has: one that never returns is not a failure.
type Breaker struct {
	store    driver.Store
	failures int64
	pause    time.Duration
	onChange func(from, to BreakerState)
	peeks    *pacer

	mu    sync.Mutex // held to change the phase, so that calls of onChange are in order
	phase atomic.Pointer[phase]

	opened, refused, failed atomic.Int64
	lastFailure             atomic.Pointer[error]
}

var _ driver.Store = (*Breaker)(nil)

// phase is the time between two changes of the state. A call counts in the phase in which it began:
// if that is over when the call ends, the call changes nothing.
type phase struct {
	state    BreakerState
	failures atomic.Int64 // closed: in a row
	behind   atomic.Int64 // closed: what a peek counts for if it fails, unless it is 0
	until    time.Time    // open: the end of the pause
	trial    atomic.Bool  // half-open: a trial has begun, and perhaps ended the phase
}

// BreakerState is what a breaker does with demands.
type BreakerState string

// The states.
const (
	BreakerClosed   BreakerState = "closed"    // lets all through
	BreakerOpen     BreakerState = "open"      // lets none through
	BreakerHalfOpen BreakerState = "half-open" // after a pause: lets one through, as a trial
)

// ErrBreakerOpen means that the store inside was not called, so nothing was recorded. It wraps
// [driver.ErrUnavailable].
var ErrBreakerOpen = fmt.Errorf("%w: the breaker is open", driver.ErrUnavailable)

var errPanic = fmt.Errorf("%w: the store panicked", driver.ErrUnavailable)

// BreakerOptions are the options of [NewBreaker]. The zero value is ready for use.
type BreakerOptions struct {
	// Failures is the number of failures in a row that opens the breaker. Zero means 20.
	Failures int
	// Pause is how long an open breaker lets nothing through before the next trial. Zero means
	// 500 ms.
	Pause time.Duration
	// OnChange, if not nil, is called for each change of the state, one at a time and in order.
	// Demands may wait for it, so it should return soon. It may call Stats, but not Take or
	// TakeAll.
	OnChange func(from, to BreakerState)
}

// BreakerStats are the state and the statistics of a [Breaker] since it was made.
type BreakerStats struct {
	State       BreakerState // open until the next demand, even if the pause is over
	Opened      int64        // times when it opened, including after a failed trial
	Refused     int64        // calls that failed with ErrBreakerOpen
	Failures    int64        // calls and background peeks that failed
	LastFailure error        // of the last one that failed: why the breaker opened; nil before it
}

// NewBreaker returns a closed breaker around store; nil options are the zero BreakerOptions. An
// error wraps [driver.ErrInvalid].
func NewBreaker(store driver.Store, opts *BreakerOptions) (*Breaker, error) {
	if opts == nil {
		opts = &BreakerOptions{}
	}
	if store == nil {
		return nil, fmt.Errorf("%w options: no store", driver.ErrInvalid)
	}
	if opts.Failures < 0 || opts.Pause < 0 {
		return nil, fmt.Errorf("%w options: Failures %d or Pause %v is negative",
			driver.ErrInvalid, opts.Failures, opts.Pause)
	}
	b := &Breaker{store: store, onChange: opts.OnChange,
		failures: cmp.Or(int64(opts.Failures), 20), pause: cmp.Or(opts.Pause, 500*time.Millisecond)}
	b.peeks = newPacer(b.pause)
	b.phase.Store(&phase{state: BreakerClosed})
	return b, nil
}

// Stats returns the state, and what b has done until now. It takes no lock.
func (b *Breaker) Stats() BreakerStats {
	s := BreakerStats{State: b.phase.Load().state,
		Opened: b.opened.Load(), Refused: b.refused.Load(), Failures: b.failed.Load()}
	if err := b.lastFailure.Load(); err != nil {
		s.LastFailure = *err
	}
	return s
}

// Take decides one demand. Errors are those of the store inside, [driver.CheckTake] and
// [ErrBreakerOpen].
func (b *Breaker) Take(ctx context.Context, d driver.Demand) (res driver.Result, err error) {
	err = b.call(ctx, d, func() error { return driver.CheckTake(ctx, d) },
		func() (verdict, error) {
			res, err = b.store.Take(ctx, d)
			return judge(ctx, err, res), err
		})
	return res, err
}

// TakeAll decides several demands as one. Errors are those of Take, and of [driver.CheckTakeAll].
func (b *Breaker) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	check := func() error { return driver.CheckTakeAll(ctx, ds, out) }
	if len(ds) == 0 {
		return check()
	}
	return b.call(ctx, ds[0], check, func() (verdict, error) {
		err := b.store.TakeAll(ctx, ds, out)
		return judge(ctx, err, out...), err
	})
}

// call calls the store inside for d, and perhaps others, unless the breaker is open. A call with
// which the store would do nothing is checked first: its error is the same in every state, and says
// nothing about the store.
func (b *Breaker) call(
	ctx context.Context, d driver.Demand, check func() error, inside func() (verdict, error),
) (err error) {
	if b.phase.Load().state != BreakerClosed || ctx.Err() != nil {
		if err := check(); err != nil {
			return err
		}
	}
	p := b.begin()
	if p == nil {
		b.refused.Add(1)
		return ErrBreakerOpen
	}
	said := silent
	if p.state == BreakerHalfOpen {
		said, err = failed, errPanic // unless the store returns
	}
	defer func() { b.end(p, d, said, err) }()
	said, err = inside()
	return err
}

// begin returns the phase, or nil if it lets no call through.
func (b *Breaker) begin() *phase {
	p := b.phase.Load()
	if p.state == BreakerOpen && time.Until(p.until) <= 0 {
		b.change(p, BreakerHalfOpen)
		p = b.phase.Load()
	}
	if p.state == BreakerOpen || p.state == BreakerHalfOpen && p.trial.Swap(true) {
		return nil
	}
	return p
}

// end counts the verdict of a call for d that began in p and returned err.
func (b *Breaker) end(p *phase, d driver.Demand, said verdict, err error) {
	switch said {
	case answered:
		switch {
		case p.state == BreakerHalfOpen:
			b.change(p, BreakerClosed)
		case p.failures.Load() > 0: // while the store answers nothing is written
			p.failures.Store(0)
			p.behind.Store(0)
		}
	case failed:
		b.fail(p, err)
	case abandoned:
		p.trial.Store(false)
		if p.behind.Load() > 0 {
			p.behind.Add(1)
		}
		b.peeks.run(func() { b.peek(d) })
	case silent:
		p.trial.Store(false)
	}
}

func (b *Breaker) fail(p *phase, err error) {
	b.failed.Add(1)
	b.lastFailure.Store(&err)
	if p.failures.Add(1) >= b.failures || p.state == BreakerHalfOpen {
		b.change(p, BreakerOpen)
	}
}

// change ends p, unless it is over.
func (b *Breaker) change(p *phase, to BreakerState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.phase.Load() != p {
		return
	}
	if to == BreakerOpen {
		b.opened.Add(1)
	}
	b.phase.Store(&phase{state: to, until: time.Now().Add(b.pause)})
	if b.onChange != nil {
		b.onChange(p.state, to)
	}
}

// peek peeks at d's state. It has no caller, so it ends at the store's own timeout: unlike the call
// that was abandoned, it shows whether the store answers at all.
func (b *Breaker) peek(d driver.Demand) {
	p := b.begin()
	if p == nil {
		return
	}
	p.behind.Store(1)
	if p.failures.Load() == 0 {
		p.behind.Store(0)
	}
	said, err := failed, errPanic // unless the store returns
	defer func() {
		_ = recover() // in calls a panic reaches the callers, but here it would end the program
		if n := p.behind.Load(); said == failed && n > 1 {
			p.failures.Add(n - 1)
		}
		b.end(p, d, said, err)
	}()
	ctx := context.Background()
	res, err := b.store.Take(ctx, peekOf(d))
	said = judge(ctx, err, res)
}
