package ratelimit

import (
	"context"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// A Claim is N units of a key under the limits of a limiter. [AllowAll], [PeekAll], [WaitAll],
// [ReserveAll] and [AcquireAll] decide several claims as one.
type Claim struct {
	Limiter *Limiter
	Key     string
	N       int64 // units, up to driver.MaxUnits; 0 takes none, but is refused if no unit is free

	// Least, if not 0, makes a part of N enough: the call takes or reserves what is free, at most N
	// and at least Least units, and Units of this claim's own results is how many. N may exceed
	// Max, and Least may not. All Leasts of a call are equal, as are their N and what they get.
	Least int64

	// HoldTimeout is how long reserved units stay held without a renewal, from 1/16 to 16 times
	// the time-out of their limits; 0 is the time-out. Without holds it means nothing.
	HoldTimeout time.Duration
}

// AllowAll takes the units of all claims if all limits of all claims admit them now, in one atomic
// decision: if one is refused, none takes anything. It returns one result for each limit: those of
// the first claim in the order of its limiter's Limits, then those of the next. The claims were
// admitted if all results are Allowed; it is enough to look at the one at [Binding].
//
//	results, err := ratelimit.AllowAll(ctx,
//		ratelimit.Claim{Limiter: requests, Key: tenant, N: 1},
//		ratelimit.Claim{Limiter: tokens, Key: tenant, N: estimate},
//	)
//
// All limiters must be on the same store, no two claims may be on the same key and limit, and all
// claims together have at most [driver.MaxDemands] limits: otherwise the error wraps [ErrInvalid].
// When the store is unavailable, the claims are admitted only if the policy of each limiter admits
// its claim. Other errors are those of [Limiter.AllowN], and [errors.ErrUnsupported] if the server
// cannot decide the keys together, such as Redis Cluster with keys of several hash slots. After an
// error nothing was taken, except as [ErrOutcomeUnknown] says.
func AllowAll(ctx context.Context, claims ...Claim) ([]Result, error) {
	return decideAll(ctx, driver.OpTake, claims, (*call).ask)
}

// PeekAll returns what [AllowAll] would, and takes nothing. Remaining is not reduced by the units
// of the claims. A claim with N = 0 peeks for one unit, one with a Least for so many.
func PeekAll(ctx context.Context, claims ...Claim) ([]Result, error) {
	return decideAll(ctx, driver.OpPeek, claims, (*call).ask)
}

// WaitAll takes the units of all claims as soon as all limits admit them together. It waits as
// [Limiter.WaitN] does, in the queue of the first claim's limiter and key: put the narrowest claim
// first, so that calls that wait for it do not hold up others. Calls with other first claims have
// no order among them. Errors are those of AllowAll and WaitN; if the wait gave up after a refusal,
// WaitAll returns the results of that refusal too.
func WaitAll(ctx context.Context, claims ...Claim) ([]Result, error) {
	return decideAll(ctx, driver.OpTake, claims, (*call).wait)
}

func decideAll(
	ctx context.Context, op driver.Op, claims []Claim,
	decide func(*call, context.Context) error,
) ([]Result, error) {
	c, err := claimed(op, 0, claims)
	if err != nil {
		return nil, err
	}
	defer c.release()
	err = c.do(ctx, decide)
	if err != nil && c.results[0] == (Result{}) {
		return nil, err
	}
	return slices.Clone(c.results), err
}

// Binding returns the index of the result that decides for a demand under several limits: the
// refusal with the longest RetryAfter or, if none is a refusal, the result with the least
// Remaining. Ties go to the one with the least Remaining, then to the longest ResetAfter, then to
// the first. It panics if results is empty.
func Binding(results []Result) int {
	best := 0
	for i := 1; i < len(results); i++ {
		if binds(results[i], results[best]) {
			best = i
		}
	}
	_ = results[best]
	return best
}

func binds(a, b Result) bool {
	switch {
	case a.Allowed != b.Allowed:
		return !a.Allowed
	case a.RetryAfter != b.RetryAfter:
		return a.RetryAfter > b.RetryAfter
	case a.Remaining != b.Remaining:
		return a.Remaining < b.Remaining
	}
	return a.ResetAfter > b.ResetAfter
}
