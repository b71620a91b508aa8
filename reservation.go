package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/truewindow/ratelimit/driver"
)

// A Reservation holds units that were taken for an estimate, and is settled when the actual number
// is known: [Reservation.Commit] corrects what was taken to what was used, and [Reservation.Cancel]
// gives all of it back. [Limiter.Reserve] and [ReserveAll] make one. It is safe for concurrent use.
//
//	r, err := tokens.Reserve(ctx, tenant, min(estimate, tokens.Max()))
//	switch {
//	case err != nil: // undecided
//	case !r.Allowed(): // refused: try again after r.Result().RetryAfter
//	}
//	defer r.Cancel(ctx) // does nothing after Commit
//	used, err := call()
//	…
//	err = r.Commit(ctx, used)
//
// A reservation that is never settled, for example because the process ended, stays charged until
// its units leave the window. Nothing has to be cleaned up.
//
// Units of calls in flight ([NewInFlight]) are held, not spent: Commit and Cancel release them.
type Reservation struct {
	claims  []Claim  // N is what was reserved, extensions included
	results []Result // of the first call, one for each claim
	each    []Result // of the first call, one for each limit of each claim

	mu      sync.Mutex
	charges []charge // what the store has recorded for it, oldest first
	settled bool     // or refused; pending has the calls left to make
	tokened bool     // a token has taken its place
	pending [][]part // the calls of a settlement that have not succeeded
}

// charge is what one call recorded, for each claim.
type charge struct {
	units      []int64    // 0 where nothing was recorded
	admissions [][]Result // of each limit of the claim
}

// Reserve takes n units for key as AllowN does, to be settled later. With n = 0 it reserves
// nothing, but is refused if no unit is free. A refusal is a Reservation that is not Allowed, not
// an error.
//
// If n is more than [Limiter.Max], but not more than [driver.MaxUnits], the error wraps [ErrExceedsLimit].
// To reserve what the limit has instead, reserve min(n, l.Max()). Errors are those of
// [Limiter.AllowN]; see [ReserveAll] for a context that ends.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64) (*Reservation, error) {
	return ReserveAll(ctx, Claim{Limiter: l, Key: key, N: n})
}

// ReserveAll takes the units of all claims as [AllowAll] does, to be settled together. Errors are
// those of AllowAll.
//
// If ctx has ended before the call, nothing is taken. If it ends during the call, ReserveAll still
// waits for the store's answer, at most until the store's own timeout: without the answer the units
// could not be given back. The same holds for [Reservation.Extend] and [Limiter.Acquire].
func ReserveAll(ctx context.Context, claims ...Claim) (*Reservation, error) {
	r := &Reservation{claims: make([]Claim, len(claims))}
	parts := make([]part, len(claims))
	for i, c := range claims {
		r.claims[i] = Claim{Limiter: c.Limiter, Key: strings.Clone(c.Key), N: c.N}
		parts[i] = part{limiter: c.Limiter, call: take(r.claims[i].Key, c.N)}
	}
	results, err := decideAll(patient(ctx), parts)
	if err != nil {
		return nil, err
	}
	r.results = results
	for _, p := range parts {
		r.each = append(r.each, p.results...)
	}
	if !r.Allowed() {
		r.settled = true
		return r, nil
	}
	r.record(parts)
	return r, nil
}

// patient returns a context that does not end with ctx, or ctx itself if it has already ended.
func patient(ctx context.Context) context.Context {
	if ctx.Err() != nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// Allowed reports whether the units were reserved. If not, nothing was taken, and there is nothing
// to settle.
func (r *Reservation) Allowed() bool { return r.Result().Allowed }

// Result returns the result that binds among those of all claims. If the reservation was refused,
// wait for its RetryAfter.
func (r *Reservation) Result() Result { return r.results[Binding(r.results)] }

// Results returns a result for each claim, as [AllowAll] does.
func (r *Reservation) Results() []Result { return append([]Result(nil), r.results...) }

// ResultsEach returns a result for each limit of each claim, as [AllowAllEach] does. It returns nil
// for a reservation that [Resume] made: a token does not hold the results.
func (r *Reservation) ResultsEach() []Result { return append([]Result(nil), r.each...) }

// Claims returns the claims with the units that are reserved, extensions included.
func (r *Reservation) Claims() []Claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Claim(nil), r.claims...)
}

// Extend reserves more units, n[i] for claim i, all of them or none, and returns the result that
// binds. A claim with n[i] = 0 takes no part. If the extension is refused, the units that were
// reserved before stay reserved. An error leaves the reservation as it was, except that after
// [ErrOutcomeUnknown] the units of the extension may stay charged until they leave the window.
//
// Errors are those of [AllowAll], and one that wraps [ErrInvalid] if there is not one n for
// each claim, or if the reservation was refused or is settled. The policies apply as in AllowAll.
func (r *Reservation) Extend(ctx context.Context, n ...int64) (Result, error) {
	results, err := r.ExtendEach(ctx, n...)
	if err != nil {
		return Result{}, err
	}
	var asked []Result
	for i, res := range results {
		if n[i] > 0 {
			asked = append(asked, res)
		}
	}
	if len(asked) == 0 {
		return r.Result(), nil
	}
	return asked[Binding(asked)], nil
}

// ExtendEach is Extend with the result of each claim. The units were reserved if all results are
// Allowed. The result of a claim with n[i] = 0 is Allowed, and of its numbers only Limit is set.
func (r *Reservation) ExtendEach(ctx context.Context, n ...int64) ([]Result, error) {
	if err := r.check(n); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settled {
		return nil, fmt.Errorf("%w demand: the reservation is settled or was refused", ErrInvalid)
	}
	results, parts := make([]Result, len(n)), make([]part, len(n))
	var asked []part
	for i, c := range r.claims {
		if c.N+n[i] > driver.MaxUnits {
			return nil, fmt.Errorf("%w demand: the claim would have more than %d units in all",
				ErrInvalid, driver.MaxUnits)
		}
		results[i] = Result{Allowed: true, Limit: Limit{Max: c.Limiter.Max()}}
		parts[i] = part{limiter: c.Limiter, call: call{op: driver.OpPeek, key: c.Key}}
		if n[i] > 0 {
			parts[i].op, parts[i].n = driver.OpTake, n[i]
			asked = append(asked, parts[i])
		}
	}
	if len(asked) == 0 {
		return results, nil
	}
	decided, err := decideAll(patient(ctx), asked)
	if err != nil {
		return nil, err
	}
	for i, j := 0, 0; i < len(parts); i++ {
		if n[i] > 0 {
			results[i], parts[i].scratch = decided[j], asked[j].scratch
			j++
		}
	}
	if !decided[Binding(decided)].Allowed {
		return results, nil
	}
	for i := range r.claims {
		r.claims[i].N += n[i]
	}
	r.record(parts)
	return results, nil
}

// record adds what parts, which were admitted, have recorded to the charges.
func (r *Reservation) record(parts []part) {
	c := charge{make([]int64, len(parts)), make([][]Result, len(parts))}
	for i, p := range parts {
		if p.op == driver.OpTake && p.results[0].Source != SourceOpen {
			c.units[i], c.admissions[i] = p.n, p.results
		}
	}
	r.charges = append(r.charges, c)
}

// Commit settles the reservation: actual[i] is the number of units that claim i has used. If that
// is less than was reserved, the difference is given back to the records that the reservation made,
// unless they have left the window. If it is more, the difference is recorded as by
// [Limiter.Force], so that the limit may hold more than its Max until enough units have left.
// Without arguments, all that was reserved counts as used. Units of calls in flight are released,
// whatever their actual.
//
// If the policy admitted the reservation ([SourceOpen]), nothing was recorded, and Commit records
// all of actual. If the units of that reservation were recorded all the same, because the outcome
// was unknown, they count twice: the limit refuses more, not less.
//
// Commit settles even if ctx has ended; only the store's own timeout bounds it. No policy applies:
// an error of the store is returned.
//
// After an error call Commit or Cancel again. It settles what is left, with the numbers of the
// first call, and counts nothing twice. If the error does not wrap [ErrOutcomeUnknown], what is
// left includes the units of the failed call. If it does, these are not settled again: an estimate
// may stay charged until it leaves the window, and an excess may not be charged. When all is
// settled, a further call does nothing.
//
// An error wraps [ErrInvalid] if there is not one actual for each claim, if an actual is not
// between 0 and [driver.MaxUnits], or if the reservation was refused or replaced by its token.
func (r *Reservation) Commit(ctx context.Context, actual ...int64) error {
	if !r.Allowed() {
		return fmt.Errorf("%w demand: the reservation was refused", ErrInvalid)
	}
	if r.hasToken() {
		return fmt.Errorf("%w demand: its token has replaced the reservation: settle the token",
			ErrInvalid)
	}
	if len(actual) > 0 {
		if err := r.check(actual); err != nil {
			return err
		}
	}
	return r.settle(ctx, actual)
}

func (r *Reservation) hasToken() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tokened
}

// Cancel gives back all units of the reservation, like Commit with zeros. After a Commit that
// failed it finishes that Commit instead. After a refusal, a settlement or [Reservation.Token] it
// does nothing. Errors are those of [Reservation.Commit].
func (r *Reservation) Cancel(ctx context.Context) error {
	return r.settle(ctx, make([]int64, len(r.claims)))
}

// Release releases the calls in flight of the reservation, and leaves its other units to be
// settled. Use it when a call has ended and what it used is not known yet. It releases even if ctx
// has ended. After an error that does not wrap [ErrOutcomeUnknown] it can be called again; units
// that are not released are free after the Window of their limit. After a settlement it does
// nothing.
func (r *Reservation) Release(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ch := range slices.Backward(r.charges) {
		var gives []part
		for i, c := range r.claims {
			if c.Limiter.inFlight && ch.units[i] > 0 {
				gives = append(gives, giveBack(c, ch.units[i], ch.admissions[i]))
			}
		}
		if len(gives) == 0 {
			continue
		}
		err := together(context.WithoutCancel(ctx), gives, withoutPolicy)
		if err == nil || errors.Is(err, ErrOutcomeUnknown) {
			for i, c := range r.claims {
				if c.Limiter.inFlight {
					ch.units[i] = 0
				}
			}
		}
		if err != nil {
			return fmt.Errorf("ratelimit: the calls in flight are not released: %w", err)
		}
	}
	return nil
}

// giveBack returns the part that gives back n units of an admission of c.
func giveBack(c Claim, n int64, admission []Result) part {
	return part{limiter: c.Limiter,
		call: call{op: driver.OpGiveBack, key: c.Key, n: n, admission: admission}}
}

func (r *Reservation) check(n []int64) error {
	if len(n) != len(r.claims) {
		return fmt.Errorf("%w demand: got %d numbers of units for %d claims", ErrInvalid, len(n),
			len(r.claims))
	}
	for _, n := range n {
		if n < 0 || n > driver.MaxUnits {
			return fmt.Errorf("%w demand: %d is not a number of units from 0 to %d", ErrInvalid, n,
				driver.MaxUnits)
		}
	}
	return nil
}

// settle makes the calls of a settlement that have not succeeded yet. A call with an unknown
// outcome is not repeated: it might give the same units back twice, and the second time they would
// be units of others.
func (r *Reservation) settle(ctx context.Context, actual []int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.settled {
		r.pending, r.settled = r.plan(actual), true
	}
	for len(r.pending) > 0 {
		err := together(context.WithoutCancel(ctx), r.pending[0], withoutPolicy)
		if err == nil || errors.Is(err, ErrOutcomeUnknown) {
			r.pending = r.pending[1:]
		}
		if err != nil {
			return fmt.Errorf("ratelimit: the reservation is not settled: %w", err)
		}
	}
	return nil
}

// plan returns the calls that settle r. Each call gives back units of one charge, the newest charge
// first, because one call cannot change two records of one state. The first call also records the
// excess over the reservation.
func (r *Reservation) plan(actual []int64) [][]part {
	first, surplus := r.balance(actual)
	calls := [][]part{first}
	for k := len(r.charges) - 1; k >= 0; k-- {
		var gives []part
		for i, c := range r.claims {
			n := min(surplus[i], r.charges[k].units[i])
			if n > 0 {
				surplus[i] -= n
				gives = append(gives, giveBack(c, n, r.charges[k].admissions[i]))
			}
		}
		if k == len(r.charges)-1 {
			calls[0] = append(calls[0], gives...)
		} else {
			calls = append(calls, gives)
		}
	}
	r.charges = nil
	return nonEmpty(calls)
}

// balance returns the excess to record beyond the charges, and the number of charged units to give
// back for each claim.
func (r *Reservation) balance(actual []int64) (excess []part, surplus []int64) {
	surplus = make([]int64, len(r.claims))
	for i, c := range r.claims {
		used := c.N
		if actual != nil {
			used = actual[i]
		}
		if c.Limiter.inFlight {
			used = 0
		}
		var charged int64
		for _, ch := range r.charges {
			charged += ch.units[i]
		}
		surplus[i] = max(0, charged-used)
		if used > charged {
			excess = append(excess, part{limiter: c.Limiter, call: call{
				op: driver.OpForce, key: c.Key, n: used - charged,
			}})
		}
	}
	return excess, surplus
}

func nonEmpty(calls [][]part) [][]part {
	kept := calls[:0]
	for _, parts := range calls {
		if len(parts) > 0 {
			kept = append(kept, parts)
		}
	}
	return kept
}
