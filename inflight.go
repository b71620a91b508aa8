package ratelimit

import (
	"context"
	"fmt"
)

// NewInFlight returns a limiter of calls in flight: at most Max at once, over all processes that
// share the store. Window is the longest time that a call may take. A call holds its unit until it
// releases it, for Window at most: a process that ends without releasing blocks others for no
// longer, and a call that takes longer than Window is no longer counted.
//
// Use it with the sliding-window log. The other algorithms free units before Window has passed.
// Errors are those of [New].
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
// The limiter is like one that [New] returns, with three differences:
//   - [Limiter.Acquire] and [Limiter.TryAcquire] return a lease.
//   - A [Reservation] releases its units when it is settled, whatever was used.
//   - RetryAfter is an upper bound, since most units are released before Window has passed. Wait
//     and Acquire try again sooner, after 160 ms at most, and do not give up because RetryAfter is
//     beyond the context's deadline.
func NewInFlight(store Store, algorithms ...Algorithm) (*Limiter, error) {
	l, err := New(store, algorithms...)
	if err != nil {
		return nil, err
	}
	l.inFlight = true
	return l, nil
}

// InFlight reports whether l was made by [NewInFlight], so that its units have to be released.
func (l *Limiter) InFlight() bool { return l.inFlight }

// A Lease is the unit of a call in flight. [Limiter.Acquire] and [Limiter.TryAcquire] make one. It
// is safe for concurrent use.
type Lease struct{ reservation *Reservation }

// TryAcquire takes one unit for key if one is free now. If none is free, the lease is not Allowed;
// that is not an error. An error wraps [ErrInvalid] if l was not made by [NewInFlight];
// other errors are those of [Limiter.AllowN].
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

// Acquire waits until a unit is free for key and takes it. It waits as [Limiter.Wait] does; errors
// are those of WaitN and of TryAcquire. See [ReserveAll] for a context that ends.
func (l *Limiter) Acquire(ctx context.Context, key string) (*Lease, error) {
	if err := l.checkInFlight(); err != nil {
		return nil, err
	}
	r, err := AcquireAll(ctx, Claim{Limiter: l, Key: key, N: 1})
	if err != nil {
		return nil, err
	}
	return &Lease{r}, nil
}

func (l *Limiter) checkInFlight() error {
	if !l.inFlight {
		return fmt.Errorf("%w options: Acquire and TryAcquire need a limiter that NewInFlight made",
			ErrInvalid)
	}
	return nil
}

// Allowed reports whether the call may begin. If not, there is nothing to release.
func (l *Lease) Allowed() bool { return l.reservation.Allowed() }

// Result returns the decision. Its RetryAfter is the time until a unit is free if none is released
// before.
func (l *Lease) Result() Result { return l.reservation.Result() }

// Token returns the lease as text. The text takes the place of the lease: Release then does
// nothing. In this or another process, [Resume] makes a reservation of the text, and its
// [Reservation.Cancel] releases the unit. Errors are those of [Reservation.Token].
func (l *Lease) Token() (string, error) { return l.reservation.Token() }

// Release releases the unit, even if ctx has ended; only the store's own timeout bounds it. A
// second call does nothing, and so does a call on a lease that is not Allowed. After an error that
// does not wrap [ErrOutcomeUnknown] Release can be called again. A unit that is not released
// is free again after the Window of the limit.
func (l *Lease) Release(ctx context.Context) error { return l.reservation.Cancel(ctx) }
