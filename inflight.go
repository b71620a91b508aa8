package ratelimit

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// NewInFlight returns a limiter of calls in flight: at most Max at once, over all processes that
// share the store. The limit's Window is the longest that a call may take. A unit is held from the
// call that takes it until it is released, and is free again after Window at the latest, so that a
// process that ends without releasing blocks nobody for longer. A call that takes longer than
// Window is no longer counted.
//
//	calls, err := ratelimit.NewInFlight(store,
//		algorithm.SlidingLog(ratelimit.Limit{Name: "calls", Max: 20, Window: 10 * time.Minute}))
//	…
//	lease, err := calls.Acquire(ctx, tenant)
//	if err != nil {
//		return err
//	}
//	defer lease.Release(ctx)
//
// The limiter is like one that [New] returns, with three differences. [Limiter.Acquire] and
// [Limiter.TryAcquire] return a lease. A [Reservation] releases its units when it is settled,
// whatever was used. RetryAfter is an upper bound, since units are mostly released before the
// Window ends: Wait and Acquire ask again sooner, and do not give up because RetryAfter is beyond
// the context's deadline.
func NewInFlight(store Store, algorithms ...Algorithm) (*Limiter, error) {
	l, err := New(store, algorithms...)
	if err != nil {
		return nil, err
	}
	l.inFlight = true
	return l, nil
}

// InFlight reports whether l was made by [NewInFlight]: its units have to be released.
func (l *Limiter) InFlight() bool { return l.inFlight }

// A Lease is a call in flight. [Limiter.Acquire] and [Limiter.TryAcquire] make one. It is safe for
// simultaneous use.
type Lease struct{ reservation *Reservation }

// TryAcquire takes one call in flight for key if one is free now. If none is, the lease is not
// Allowed; that is not an error. An error wraps [ErrInvalidOptions] if l was not made by
// [NewInFlight]; the others are those of [Limiter.AllowN].
func (l *Limiter) TryAcquire(ctx context.Context, key string) (*Lease, error) {
	if err := l.checkInFlight(); err != nil {
		return nil, err
	}
	r, err := l.Reserve(ctx, key, 1)
	if err != nil {
		return nil, err
	}
	return &Lease{r}, nil
}

// Acquire waits until a call in flight is free for key and takes it. It waits as [Limiter.Wait]
// does; errors are those of WaitN and of TryAcquire.
func (l *Limiter) Acquire(ctx context.Context, key string) (*Lease, error) {
	if err := l.checkInFlight(); err != nil {
		return nil, err
	}
	s := l.pool.Get().(*scratch)
	defer l.release(s)
	c := call{op: OpTake, key: strings.Clone(key), n: 1, wait: true}
	if err := l.do(ctx, c, s); err != nil {
		return nil, err
	}
	r := &Reservation{
		claims:  []Claim{{Limiter: l, Key: c.key, N: 1}},
		results: []Result{s.results[Binding(s.results)]},
	}
	r.record([]part{{limiter: l, call: c, scratch: scratch{results: slices.Clone(s.results)}}})
	return &Lease{r}, nil
}

func (l *Limiter) checkInFlight() error {
	if !l.inFlight {
		return fmt.Errorf("%w: the limiter is not one of calls in flight, which NewInFlight makes",
			ErrInvalidOptions)
	}
	return nil
}

// Allowed reports whether the call may begin. If not, there is nothing to release.
func (l *Lease) Allowed() bool { return l.reservation.Allowed() }

// Result returns the decision. Its RetryAfter is when a unit is free if nobody releases one before.
func (l *Lease) Result() Result { return l.reservation.Result() }

// Token returns the lease as text, as [Reservation.Token] does. [Resume] makes a reservation of it,
// and [Reservation.Cancel] of that releases the lease, also in another process.
func (l *Lease) Token() (string, error) { return l.reservation.Token() }

// Release ends the call in flight. It does not end with ctx; the store's own timeout bounds it. A
// second call does nothing. After an error that does not wrap [ErrOutcomeUnknown] it can be called
// again; what is not released is free again when the limit's Window has passed.
func (l *Lease) Release(ctx context.Context) error { return l.reservation.Cancel(ctx) }
