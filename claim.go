package ratelimit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// A Claim is N units of a key under the limits of a limiter. [AllowAll], [PeekAll], [WaitAllEach]
// and [ReserveAll] decide several claims as one.
type Claim struct {
	Limiter *Limiter
	Key     string
	N       int64 // units, from 0 to MaxUnits; 0 takes nothing, but is refused if no unit is free
}

// AllowAll takes the units of all claims if all limits of all claims admit them now, in one atomic
// decision: if one claim is refused, none takes anything. It returns one result for each claim,
// that of the limit that binds. The claims were admitted if all results are Allowed; it is enough
// to look at the one at [Binding].
//
//	results, err := ratelimit.AllowAll(ctx,
//		ratelimit.Claim{Limiter: requests, Key: tenant, N: 1},
//		ratelimit.Claim{Limiter: tokens, Key: tenant, N: estimate},
//	)
//
// All limiters must be on the same store, and no two claims may be on the same key and limit. When
// the store is unavailable, the claims are admitted only if the policy of each limiter admits its
// claim. The observer of each limiter gets an [Observation] of its claim.
//
// Errors are those of [Limiter.AllowN], and these:
//   - [ErrInvalid]: there is no claim, a claim has no limiter, or the limiters are on
//     different stores.
//   - [ErrInvalid]: two claims are on one history.
//   - [errors.ErrUnsupported]: the server cannot decide the keys together, such as Redis Cluster
//     with keys of several hash slots. Nothing was taken.
func AllowAll(ctx context.Context, claims ...Claim) ([]Result, error) {
	parts := make([]part, len(claims))
	for i, c := range claims {
		parts[i] = part{limiter: c.Limiter, call: take(c.Key, c.N)}
	}
	return decideAll(ctx, parts)
}

// AllowAllEach is AllowAll with the result of each limit appended to dst: those of the first claim
// in the order of its limiter's Limits, then those of the next. The claims were admitted if all
// results are Allowed. After an error dst is returned unchanged.
func AllowAllEach(ctx context.Context, dst []Result, claims ...Claim) ([]Result, error) {
	parts := make([]part, len(claims))
	for i, c := range claims {
		parts[i] = part{limiter: c.Limiter, call: take(c.Key, c.N)}
	}
	if err := together(ctx, parts, withPolicy); err != nil {
		return dst, err
	}
	for _, p := range parts {
		dst = append(dst, p.results...)
	}
	return dst, nil
}

// WaitAllEach is AllowAllEach that waits: it takes the units of all claims as soon as all limits
// admit them together. It waits as [Limiter.WaitN] does, with the same errors and under the same
// deadlines, in the queue of the first claim's limiter and key. So put the narrowest claim first:
// calls that wait for it then do not hold up others. A call behind the first of its queue does not
// fail before its deadline. Under [FailWait], which all limiters need, the first tries again.
//
// If the wait gave up after a refusal, WaitAllEach appends the results of that refusal. A claim on
// a limiter of [NewInFlight] is an error that wraps [ErrInvalid].
func WaitAllEach(ctx context.Context, dst []Result, claims ...Claim) ([]Result, error) {
	parts := make([]part, len(claims))
	for i, c := range claims {
		if c.Limiter != nil && c.Limiter.inFlight {
			return dst, fmt.Errorf("%w demand: claim %d is on calls in flight", ErrInvalid, i+1)
		}
		parts[i] = part{limiter: c.Limiter, call: take(c.Key, c.N)}
	}
	store, err := sharedStore(parts)
	if err != nil {
		return dst, err
	}
	demands, results := split(parts)
	defer func() { askShadows(ctx, parts, err) }() // also if the store panics
	began := time.Now()
	var waited time.Duration
	if err = driver.CheckTakeAll(ctx, demands, results); err == nil {
		waited, err = waitAll(ctx, parts, func() error {
			return askAll(ctx, store, parts, demands, results, withPolicy)
		})
	}
	observeAll(ctx, parts, err, time.Since(began), waited)
	if err != nil && (results[0] == Result{}) {
		return dst, err
	}
	return append(dst, results...), err
}

// PeekAll returns what [AllowAll] would, and takes nothing. Remaining is not reduced by the units
// of the claims. A claim with N = 0 peeks for one unit.
func PeekAll(ctx context.Context, claims ...Claim) ([]Result, error) {
	parts := make([]part, len(claims))
	for i, c := range claims {
		if c.N == 0 {
			c.N = 1
		}
		parts[i] = part{limiter: c.Limiter, call: call{op: driver.OpPeek, key: c.Key, n: c.N}}
	}
	return decideAll(ctx, parts)
}

func decideAll(ctx context.Context, parts []part) ([]Result, error) {
	if err := together(ctx, parts, withPolicy); err != nil {
		return nil, err
	}
	results := make([]Result, len(parts))
	for i, p := range parts {
		results[i] = p.results[Binding(p.results)]
	}
	return results, nil
}

// part is the part of one limiter in a call that several limiters make together.
type part struct {
	limiter *Limiter
	call
	scratch // its part of the demands and of the results of the call
}

// Whether the limiters' policies apply to a call.
const (
	withPolicy    = true
	withoutPolicy = false
)

// together makes the calls of several limiters as one decision, writes the results to parts and
// calls the observers.
func together(ctx context.Context, parts []part, policy bool) (err error) {
	store, err := sharedStore(parts)
	if err != nil {
		return err
	}
	demands, results := split(parts)
	defer func() { askShadows(ctx, parts, err) }() // also if the store panics
	began := time.Now()
	err = askAll(ctx, store, parts, demands, results, policy)
	observeAll(ctx, parts, err, time.Since(began), 0)
	return err
}

// askAll calls the store once, and applies the policies if the store leaves the call undecided.
func askAll(
	ctx context.Context, store Store, parts []part, demands []driver.Demand, results []Result, policy bool,
) (err error) {
	switch err = ended(ctx); {
	case err != nil:
	case len(demands) == 1:
		results[0], err = store.Take(ctx, demands[0])
	default:
		err = store.TakeAll(ctx, demands, results)
	}
	if err != nil {
		clear(results)
		if policy && admitAll(ctx, parts, err) {
			err = nil
		}
	}
	return err
}

// observeAll calls the observers of parts, and wakes the calls that wait for units that parts have
// released.
func observeAll(ctx context.Context, parts []part, err error, elapsed, waited time.Duration) {
	for _, p := range parts {
		if err == nil && p.op == driver.OpGiveBack {
			p.limiter.wake(p.key)
		}
		if p.limiter.observe != nil {
			p.limiter.observe(ctx, Observation{
				Key: p.key, Op: p.op, N: p.n,
				Limits: p.limiter.limits, Results: p.results, Err: err,
				RefusedByOther: err == nil && p.refusedByOther(parts), Elapsed: elapsed,
				Waited: waited,
			})
		}
	}
}

// askShadows calls the shadow of each part, except of a part that was refused only because of
// another one.
func askShadows(ctx context.Context, parts []part, err error) {
	for _, p := range parts {
		if err != nil || !p.refusedByOther(parts) {
			p.limiter.askShadow(ctx, p.call, p.results, err)
		}
	}
}

func (p part) allowed() bool { return p.results[Binding(p.results)].Allowed }

// refusedByOther reports whether one of parts was refused, and p was not.
func (p part) refusedByOther(parts []part) bool {
	return p.allowed() && slices.ContainsFunc(parts, func(q part) bool { return !q.allowed() })
}

// sharedStore returns the store of all parts.
func sharedStore(parts []part) (Store, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("%w demand: no claim", ErrInvalid)
	}
	for i, p := range parts {
		if p.limiter == nil {
			return nil, fmt.Errorf("%w demand: claim %d has no limiter", ErrInvalid, i+1)
		}
		if i > 0 && !sameStore(parts[0].limiter.store, p.limiter.store) {
			return nil, fmt.Errorf("%w demand: claims 1 and %d are on different stores", ErrInvalid,
				i+1)
		}
	}
	return parts[0].limiter.store, nil
}

// split makes a slice of demands and one of results for all parts, and gives each part its range of
// both.
func split(parts []part) ([]driver.Demand, []Result) {
	size := 0
	for _, p := range parts {
		size += len(p.limiter.limits)
	}
	demands, results := make([]driver.Demand, size), make([]Result, size)
	at := 0
	for i := range parts {
		p := &parts[i]
		end := at + len(p.limiter.limits)
		p.scratch = scratch{demands[at:end:end], results[at:end:end]}
		p.limiter.fill(p.call, &p.scratch)
		at = end
	}
	return demands, results
}

// admitAll reports whether the policies of all parts admit what the store has left undecided with
// err, and sets their results if so.
func admitAll(ctx context.Context, parts []part, err error) bool {
	if slices.ContainsFunc(parts, func(p part) bool { return !p.limiter.admits(ctx, p.op, err) }) {
		return false
	}
	for _, p := range parts {
		for i, limit := range p.limiter.limits {
			p.results[i] = open(limit)
		}
	}
	return true
}
