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
	results []Result // of the first call, one for each limit

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
// If n may be more than [Limiter.Max], reserve min(n, l.Max()). Errors are those of
// [Limiter.AllowN]; see [ReserveAll] for a context that ends.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64) (*Reservation, error) {
	return ReserveAll(ctx, Claim{Limiter: l, Key: key, N: n})
}

// ReserveAll takes the units of all claims as [AllowAll] does, to be settled together. Errors are
// those of AllowAll.
//
// If ctx has ended before the call, nothing is taken. If it ends during the call, ReserveAll still
// waits for the store's answer, at most until the store's own timeout: without the answer the units
// could not be given back. The same holds for [AcquireAll] and [Reservation.Extend].
func ReserveAll(ctx context.Context, claims ...Claim) (*Reservation, error) {
	return reserve(patient(ctx), claims, (*call).ask)
}

// AcquireAll is ReserveAll that waits as [WaitAll] does. If the wait gave up after a refusal, it
// returns both its error and a reservation that is not Allowed.
func AcquireAll(ctx context.Context, claims ...Claim) (*Reservation, error) {
	return reserve(ctx, claims, (*call).wait)
}

func reserve(
	ctx context.Context, claims []Claim, decide func(*call, context.Context) error,
) (*Reservation, error) {
	own := slices.Clone(claims)
	for i := range own {
		own[i].Key = strings.Clone(own[i].Key)
	}
	c, err := claimed(driver.OpTake, own)
	if err != nil {
		return nil, err
	}
	defer c.release()
	c.held = true
	err = c.do(ctx, decide)
	if err != nil && c.results[0] == (Result{}) {
		return nil, err
	}
	r := &Reservation{claims: own, results: slices.Clone(c.results)}
	if !r.Allowed() {
		r.settled = true
		return r, err
	}
	units := make([]int64, len(own))
	for i := range own {
		units[i] = own[i].N
	}
	r.record(units, r.results)
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

// Results returns the result of each limit, as [AllowAll] does.
func (r *Reservation) Results() []Result { return slices.Clone(r.results) }

// Claims returns the claims with the units that are reserved, extensions included.
func (r *Reservation) Claims() []Claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.claims)
}

// Extend reserves more units, n[i] for claim i, all of them or none. It returns a result for each
// limit; they were reserved if all results are Allowed. A claim with n[i] = 0 takes no part: its
// results are Allowed, and of their fields only Limit is set. If the extension is refused, the
// units that were reserved before stay reserved. An error leaves the reservation as it was, except
// that after [ErrOutcomeUnknown] the units of the extension may stay charged until they leave the
// window.
//
// Errors are those of [AllowAll], and one that wraps [ErrInvalid] if there is not one n for each
// claim, or if the reservation was refused or is settled. The policies apply as in AllowAll.
func (r *Reservation) Extend(ctx context.Context, n ...int64) ([]Result, error) {
	if err := r.check(n); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settled {
		return nil, fmt.Errorf("%w demand: the reservation is settled or was refused", ErrInvalid)
	}
	var results []Result
	var parts []part
	for i, c := range r.claims {
		if c.N+n[i] > driver.MaxUnits {
			return nil, fmt.Errorf("%w demand: the claim would have more than %d units in all",
				ErrInvalid, driver.MaxUnits)
		}
		for _, limit := range c.Limiter.limits {
			results = append(results, Result{Allowed: true, Limit: limit})
		}
		if n[i] > 0 {
			parts = append(parts, partOf(c.Limiter, driver.OpTake, c.Key, n[i]))
		}
	}
	if len(parts) == 0 {
		return results, nil
	}
	c := newCall(parts...)
	defer c.release()
	if err := c.do(patient(ctx), (*call).ask); err != nil {
		return nil, err
	}
	at, from := 0, 0
	for i, cl := range r.claims {
		if n[i] > 0 {
			from += copy(results[at:], c.results[from:from+len(cl.Limiter.limits)])
		}
		at += len(cl.Limiter.limits)
	}
	if !c.allowed() {
		return results, nil
	}
	for i := range r.claims {
		r.claims[i].N += n[i]
	}
	r.record(n, slices.Clone(results))
	return results, nil
}

// record adds the units of each claim, which were admitted with results, to the charges.
func (r *Reservation) record(units []int64, results []Result) {
	ch := charge{make([]int64, len(units)), make([][]Result, len(units))}
	at := 0
	for i, c := range r.claims {
		end := at + len(c.Limiter.limits)
		if units[i] > 0 && results[at].Source != SourceOpen {
			ch.units[i], ch.admissions[i] = units[i], results[at:end]
		}
		at = end
	}
	r.charges = append(r.charges, ch)
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
		err := settleTogether(ctx, gives)
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
	return part{limiter: c.Limiter, op: driver.OpGiveBack, key: c.Key, n: n, admission: admission}
}

// settleTogether makes one call of a settlement.
func settleTogether(ctx context.Context, parts []part) error {
	c := newCall(parts...)
	defer c.release()
	c.strict = true
	return c.do(context.WithoutCancel(ctx), (*call).ask)
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
		err := settleTogether(ctx, r.pending[0])
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
	pending := [][]part{first}
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
			pending[0] = append(pending[0], gives...)
		} else {
			pending = append(pending, gives)
		}
	}
	r.charges = nil
	return slices.DeleteFunc(pending, func(parts []part) bool { return len(parts) == 0 })
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
			excess = append(excess, partOf(c.Limiter, driver.OpForce, c.Key, used-charged))
		}
	}
	return excess, surplus
}
