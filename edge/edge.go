// Package edge has what middlewares share, whatever their protocol: it decides the claims of a
// call, waits for them if it should, and settles them when the call has ended.
package edge

import (
	"context"
	"errors"
	"fmt"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// ErrNoKey means that a claim has no key, so that the call cannot be attributed. It wraps
// [ratelimit.ErrInvalid].
var ErrNoKey = fmt.Errorf("%w demand: a claim has no key", ratelimit.ErrInvalid)

// Options of a decision. The zero value decides at once, and needs no settlement unless a claim is
// of calls in flight.
type Options struct {
	// Wait makes Decide wait as [ratelimit.WaitAll] does.
	Wait bool
	// Settle says that the units under Budgets are kept or not when the call has ended. Units under
	// other limits are taken for good, apart from calls in flight.
	Settle bool
	// Unsettled says that Settle will not be called. Calls in flight, which nothing would release,
	// are then an error.
	Unsettled bool
}

// Holds reports whether the units of a claim under one of its algorithms may be free again when the
// call is settled. What its result says is then not true any more.
func (o Options) Holds(c ratelimit.Claim, a ratelimit.Algorithm) bool {
	h, ok := a.(driver.Holder)
	return ok && c.N > 0 && (o.Settle || h.InFlight())
}

// InFlight reports whether one of the algorithms limits calls in flight, whose units are held, and
// not taken.
func InFlight(algorithms ...ratelimit.Algorithm) bool {
	for _, a := range algorithms {
		if h, ok := a.(driver.Holder); ok && h.InFlight() {
			return true
		}
	}
	return false
}

func hasBudget(algorithms []ratelimit.Algorithm) bool {
	for _, a := range algorithms {
		if h, ok := a.(driver.Holder); ok && !h.InFlight() {
			return true
		}
	}
	return false
}

// A Call is the decision about the claims of one call. The zero Call is ready for [Call.Decide].
type Call struct {
	// Results has the result of each limit: first those of the first claim, in the order of its
	// limiter's Limits. It is nil after an error, unless a wait gave up after a refusal.
	Results []ratelimit.Result

	reservation *ratelimit.Reservation // or nil
	one         [1]ratelimit.Result    // of a single limit, which takes no allocation
}

// Decide decides claims, at least one, and sets Results. An error wraps [ErrNoKey], or is one of
// [ratelimit.AllowAll] or, for a wait, of [ratelimit.WaitAll]. It wraps [ratelimit.ErrInvalid] with
// Settle if no claim has a Budget, unless all are of calls in flight or of no units, and with
// Unsettled if a claim is of calls in flight. [Call.Refusal] has the meaning of an error.
func (c *Call) Decide(ctx context.Context, claims []ratelimit.Claim, opts Options) (err error) {
	settles, counted, budget := opts.Settle, false, false
	for i := range claims {
		if claims[i].Limiter == nil {
			return fmt.Errorf("%w demand: claim %d has no limiter", ratelimit.ErrInvalid, i+1)
		}
		if claims[i].Key == "" {
			return ErrNoKey
		}
		if claims[i].N > driver.MaxUnits {
			return fmt.Errorf("edge: claim %d has too many units: %w", i+1,
				ratelimit.ErrExceedsLimit)
		}
		inFlight := InFlight(claims[i].Limiter.Algorithms()...)
		if inFlight && opts.Unsettled {
			return fmt.Errorf("%w demand: claim %d is of calls in flight, which nothing would "+
				"release", ratelimit.ErrInvalid, i+1)
		}
		settles = settles || inFlight
		if opts.Settle {
			budget = budget || hasBudget(claims[i].Limiter.Algorithms())
			counted = counted || claims[i].N > 0 && !inFlight
		}
	}
	if counted && !budget {
		return fmt.Errorf("%w demand: units count by the outcome, but no claim has a Budget: wrap "+
			"an algorithm in algorithm.Budget", ratelimit.ErrInvalid)
	}
	switch {
	case settles && opts.Wait:
		c.reservation, err = ratelimit.AcquireAll(ctx, claims...)
	case settles:
		c.reservation, err = ratelimit.ReserveAll(ctx, claims...)
	case len(claims) != 1 || len(claims[0].Limiter.Limits()) > 1 || claims[0].Least > 0:
		if opts.Wait {
			c.Results, err = ratelimit.WaitAll(ctx, claims...)
		} else {
			c.Results, err = ratelimit.AllowAll(ctx, claims...)
		}
		return err
	case opts.Wait:
		c.one[0], err = claims[0].Limiter.WaitN(ctx, claims[0].Key, claims[0].N)
	default:
		c.one[0], err = claims[0].Limiter.AllowN(ctx, claims[0].Key, claims[0].N)
	}
	switch {
	case c.reservation != nil:
		c.Results = c.reservation.Results()
	case c.one[0] != (ratelimit.Result{}):
		c.Results = c.one[:]
	}
	return err
}

// Allowed reports whether all limits admit the call.
func (c *Call) Allowed() bool {
	return len(c.Results) > 0 && c.Results[ratelimit.Binding(c.Results)].Allowed
}

// Settle ends a call that was admitted: it records the units under Budgets, or not. Calls in flight
// are released in both cases. If the store is unavailable, the settlement is repeated in the
// background as [ratelimit.Reservation.Cancel] is, and what it does not reach times out. Settle
// returns no error, since the observers of the limiters get it. It does nothing for a call that
// needs no settlement.
func (c *Call) Settle(ctx context.Context, keep bool) {
	if c.reservation == nil {
		return
	}
	if keep && c.reservation.Result().Source != ratelimit.SourceOpen {
		_ = c.reservation.Commit(ctx)
	}
	// If the policy has admitted the call, this calls the store only if that may hold units. After
	// a Commit it does nothing, unless that has failed.
	_ = c.reservation.Cancel(ctx)
}

// Settles reports whether the call has to be settled when it has ended.
func (c *Call) Settles() bool { return c.reservation != nil }

// SettleN ends a call that was admitted, as Settle does, but records n units under the Budgets of
// its only claim that has one, whatever it holds; 0 gives all back. A negative n, and a call with
// several such claims, record what is held.
func (c *Call) SettleN(ctx context.Context, n int64) {
	if c.reservation == nil {
		return
	}
	keep := n < 0
	if !keep && c.reservation.Result().Source != ratelimit.SourceOpen {
		keep = errors.Is(c.reservation.Commit(ctx, n), ratelimit.ErrInvalid)
	}
	c.Settle(ctx, keep)
}
