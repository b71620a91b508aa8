package ratelimit

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/longkey"
)

// ErrNotHeld means that nothing was recorded, because there was no hold to settle: the reservation
// was settled before, perhaps elsewhere, its key was reset, or it timed out a day ago.
var ErrNotHeld = errors.New("ratelimit: nothing is held for the reservation")

// A Reservation holds units under a unique ID until it is settled: [Reservation.Commit] records
// what was used, [Reservation.Cancel] records nothing. [Limiter.Reserve], [Limiter.Acquire] and
// their forms for several claims make one. It is safe for concurrent use.
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
// Limits hold if their algorithm is a Budget or InFlight of package algorithm. Under all other
// limits a reservation takes its units at once and for good: nothing gives them back.
//
// A hold times out after a minute, or what WithTimeout of the algorithm or Hold of the claim says,
// and the reservation renews it three times as often until it is settled. When its process ends,
// its units are free after the time-out. A hold that timed out all the same, in a process that was
// suspended or an outage, is brought back by the next renewal, even if others have taken its units.
//
// A settlement may be repeated after any error, also in another process: one counts.
type Reservation struct {
	id      uint64
	claims  []Claim  // N is what was reserved, extensions included
	results []Result // of the first call, one for each limit

	mu      sync.Mutex // held while the store is called
	ended   ending
	commit  []int64 // the numbers of the last Commit, if it has failed
	unknown bool    // whether an attempt to settle may have recorded units
	unheld  bool    // the policy admitted it, and no hold can have been sent
	renewal *time.Timer

	releasing bool        // Release was called: calls in flight are not renewed
	released  bool        // and has succeeded
	repeat    *time.Timer // repeats a Cancel or Release in the background; nil if nothing does
	holds     *openHolds  // nil if nobody observes them
	own       *ownUnits   // nil if it was resumed
}

// ending says whether a reservation has ended.
type ending uint8

const (
	notEnded ending = iota
	refused
	canceled // but not settled yet: the store has failed
	settled
	tokened // a token has taken its place
)

// Reserve holds n units for key, if all limits admit them now, and renews the holds until they are
// settled. Limits without holds are charged at once, for good. With n = 0 it holds nothing, but is
// refused if no unit is free. A refusal is a Reservation that is not Allowed, not an error.
//
// If n may be more than [Limiter.Max], reserve min(n, l.Max()), or what is free, with the Least of
// a [Claim]. Errors are those of [Limiter.AllowN]; see [ReserveAll] for a context that ends.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64) (*Reservation, error) {
	return ReserveAll(ctx, Claim{Limiter: l, Key: key, N: n})
}

// Acquire is Reserve that waits until the units are free, as [Limiter.WaitN] does. If the wait gave
// up after a refusal, it returns both its error and a reservation that is not Allowed.
//
// The first call asks the store when a reservation of this process ends, and otherwise at least
// every 160 ms, or every 1.28 s while this process itself holds what is missing. While calls always
// wait, every 2.56 s they leave to other processes what this one releases in the next 160 ms.
func (l *Limiter) Acquire(ctx context.Context, key string, n int64) (*Reservation, error) {
	return AcquireAll(ctx, Claim{Limiter: l, Key: key, N: n})
}

// ReserveAll reserves the units of all claims together, or none, in one atomic decision. Errors are
// those of [AllowAll].
//
// If ctx has ended before the call, nothing is held. If it ends during the call, ReserveAll still
// waits for the store's answer, at most until the store's own timeout. The same holds for
// [AcquireAll] and [Reservation.Extend]. If the outcome of a call is unknown and ctx has not ended,
// a call of nothing but holds is repeated once. What may be held after [ErrOutcomeUnknown] is free
// at the time-out.
func ReserveAll(ctx context.Context, claims ...Claim) (*Reservation, error) {
	return reserve(ctx, claims, func(c *call, ctx context.Context) error {
		err := c.ask(patient(ctx))
		if err == nil && c.allowed() {
			c.own.held(c)
		}
		return err
	})
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
	r := &Reservation{id: newID(), claims: own, holds: newOpenHolds(own),
		own: new(ownUnits)}
	c, err := claimed(driver.OpHold, r.id, own)
	if err != nil {
		return nil, err
	}
	defer c.release()
	returned := false
	defer func() {
		if !returned && r.results != nil { // it was refused, or an observer has panicked
			_ = r.Cancel(ctx)
		}
	}()
	c.caller, c.holds, c.own = ctx, r.holds, r.own
	err = c.do(ctx, func(c *call, ctx context.Context) error {
		err := decide(c, ctx)
		if err == nil || c.results[0] != (Result{}) {
			r.decided(c)
		}
		return err
	})
	switch {
	case r.results == nil:
		return nil, err
	case r.ended == refused:
		return r, err
	}
	r.renewLater()
	returned = true
	return r, nil
}

// decided takes over what c has decided.
func (r *Reservation) decided(c *call) {
	r.results = slices.Clone(c.results)
	if !r.Allowed() {
		r.ended = refused
		return
	}
	for i := range c.parts {
		if r.claims[i].Least > 0 {
			r.claims[i].N = c.parts[i].granted()
		}
	}
	r.unheld = r.results[0].Source == SourceOpen && !c.unknown
}

// newID returns the ID of a reservation. Who knows it may settle the reservation, so it must not be
// guessed.
func newID() uint64 {
	var b [8]byte
	for {
		crand.Read(b[:]) // never fails
		if id := binary.BigEndian.Uint64(b[:]); id != 0 {
			return id
		}
	}
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

// Result returns the result that binds among those of all claims; its Units are those of that limit
// only. If the reservation was refused, wait for its RetryAfter.
func (r *Reservation) Result() Result { return r.results[Binding(r.results)] }

// Results returns the result of each limit, as [AllowAll] does.
func (r *Reservation) Results() []Result { return slices.Clone(r.results) }

// Claims returns the claims with the units that are reserved, extensions included.
func (r *Reservation) Claims() []Claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.claims)
}

// Commit ends the holds and records what was used: used units under the Budgets of the
// reservation's only claim that has one or, without a number, what was held. A reservation of
// several Budgets takes numbers by [Reservation.CommitAll]. What is used beyond the hold is
// recorded too, so that a limit may hold more than its Max.
//
// Commit settles even if ctx has ended; only the store's own timeout bounds it. No policy applies:
// an error of the store is returned, and Commit may be called again, as often as needed. One call
// counts. If the policy has admitted the reservation ([SourceOpen]) and no hold can have been sent,
// Commit records the units as [Limiter.Force] does, and never again after [ErrOutcomeUnknown].
//
// The error is [ErrNotHeld] if nothing was recorded under some limit, unless an earlier attempt of
// this reservation may have recorded it. It wraps [ErrInvalid] if the number does not fit the
// claims, or if the reservation was refused or replaced by its token.
func (r *Reservation) Commit(ctx context.Context, used ...int64) error {
	numbers, err := r.bare(used)
	if err != nil {
		return err
	}
	return r.commitTo(ctx, numbers)
}

// CommitAll is Commit for a reservation of several Budgets. Each claim of used names a limiter of
// the reservation, its key if the limiter has several, and in N what was used; for claims that are
// not named, it is what was held.
func (r *Reservation) CommitAll(ctx context.Context, used ...Claim) error {
	numbers, err := r.named(used)
	if err != nil {
		return err
	}
	return r.commitTo(ctx, numbers)
}

// Cancel ends the holds and records nothing. After a Commit that failed it repeats that Commit.
// After a refusal, a settlement or [Reservation.Token] it does nothing. Errors are those of Commit,
// apart from ErrNotHeld.
//
// Whether it fails or not, the reservation renews nothing from then on, so its holds time out. If
// the store is unavailable, Cancel is repeated in the background, six times within about a minute.
func (r *Reservation) Cancel(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != notEnded && r.ended != canceled {
		return nil
	}
	if r.ended == notEnded {
		r.repeat = nil // of a Release: this one does that too
	}
	r.end(canceled)
	err := errPanicked
	defer func() { r.repeatLocked(err) }()
	err = r.finishLocked(ctx)
	return err
}

// Release ends the calls in flight of the reservation, and leaves its other units to be settled.
// Use it when a call has ended and what it used is not known yet. It releases even if ctx has
// ended, and may be called again after an error. After a settlement it does nothing. If it fails,
// calls in flight time out, and it is repeated in the background as [Reservation.Cancel] is.
func (r *Reservation) Release(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != notEnded || r.released {
		return nil
	}
	r.releasing = true
	err := errPanicked
	defer func() { r.repeatLocked(err) }()
	err = r.releaseLocked(ctx)
	return err
}

// releaseLocked makes the call that ends the calls in flight. mu is held.
func (r *Reservation) releaseLocked(ctx context.Context) error {
	if r.unheld {
		r.released = true // Extend holds none
		return nil
	}
	var parts []part
	for _, c := range r.claims {
		if l := c.Limiter.only(driver.Holder.InFlight); l != nil {
			parts = append(parts, part{limiter: l, op: driver.OpSettle, key: c.Key, id: r.id})
		}
	}
	if len(parts) == 0 {
		return nil
	}
	_, err := r.askStrictly(context.WithoutCancel(ctx), parts, func(err error) {
		r.released = err == nil
	})
	if err != nil {
		return fmt.Errorf("ratelimit: the calls in flight are not released: %w", err)
	}
	return nil
}

// Extend holds more units under the Budgets of the only claim that has one. [Reservation.ExtendAll]
// extends several. It returns the results of the limits that it asked. If the extension is refused,
// or fails, the units that were held before stay held. Errors are those of [AllowAll], and wrap
// [ErrInvalid] if the number does not fit the claims, or if the reservation was refused or is
// settled. The policies apply as in AllowAll.
func (r *Reservation) Extend(ctx context.Context, more int64) ([]Result, error) {
	numbers, err := r.bare([]int64{more})
	if err != nil {
		return nil, err
	}
	return r.extend(ctx, numbers)
}

// ExtendAll is Extend for a reservation of several Budgets. Each claim of more names a limiter, as
// in [Reservation.CommitAll], and in N the units to add. All of them are held, or none.
func (r *Reservation) ExtendAll(ctx context.Context, more ...Claim) ([]Result, error) {
	numbers, err := r.named(more)
	if err != nil {
		return nil, err
	}
	return r.extend(ctx, numbers)
}

// commitTo is Commit with a number for each claim.
func (r *Reservation) commitTo(ctx context.Context, numbers []int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.ended {
	case notEnded, canceled:
	case settled:
		return ErrNotHeld
	default:
		return r.endedError()
	}
	for i, c := range r.claims {
		if numbers[i] == unnamed {
			numbers[i] = c.N
		}
	}
	r.commit = numbers
	return r.settleLocked(ctx, numbers)
}

// unsettled returns whose holds are still to be settled.
func (r *Reservation) unsettled() func(driver.Holder) bool {
	if r.released {
		return isBudget
	}
	return isHolder
}

// endedError returns the error of a method of a reservation that has ended.
func (r *Reservation) endedError() error {
	return fmt.Errorf("%w demand: the reservation was refused, has ended or has a token",
		ErrInvalid)
}

// settleLocked makes the call that records used[i] units for claim i. mu is held.
func (r *Reservation) settleLocked(ctx context.Context, used []int64) error {
	op := driver.OpSettle
	if r.unheld {
		op = driver.OpForce
	}
	var parts []part
	records := false
	for i, c := range r.claims {
		records = records || used[i] > 0 && c.Limiter.only(isBudget) != nil
		if l := c.Limiter.only(r.unsettled()); op == driver.OpSettle && l != nil {
			parts = append(parts, part{limiter: l, op: op, key: c.Key, n: used[i], id: r.id})
		} else if l := c.Limiter.only(isBudget); op == driver.OpForce && l != nil && used[i] > 0 {
			parts = append(parts, part{limiter: l, op: op, key: c.Key, n: used[i]})
		}
	}
	if len(parts) == 0 {
		r.end(settled)
		return nil
	}
	missing, err := r.askStrictly(context.WithoutCancel(ctx), parts, func(err error) {
		unknown := errors.Is(err, ErrOutcomeUnknown)
		if err == nil || unknown && r.unheld {
			r.end(settled)
		}
		r.unknown = r.unknown || unknown && records
	})
	if err != nil {
		return fmt.Errorf("ratelimit: the reservation is not settled: %w", err)
	}
	if missing && !r.unknown {
		return ErrNotHeld
	}
	return nil
}

// askStrictly makes a call to which no policy applies. It passes the error of the store to
// answered, before an observer is called. missing reports whether there was no hold for some limit
// that should have recorded units.
func (r *Reservation) askStrictly(
	ctx context.Context, parts []part, answered func(error),
) (missing bool, err error) {
	c := newCall(parts...)
	defer c.release()
	c.strict, c.holds = true, r.holds
	err = c.do(ctx, func(c *call, ctx context.Context) error {
		err := ErrOutcomeUnknown // if the store panics
		defer func() {
			for i := range c.parts {
				if p := &c.parts[i]; p.op == driver.OpSettle {
					key := longkey.Shorten(p.key)
					r.own.leave(p.limiter.waiting, key) // whatever the outcome: it may be settled
					p.limiter.waiting.release(key)
				}
			}
			answered(err)
		}()
		err = c.ask(ctx)
		return err
	})
	if err != nil {
		return false, err
	}
	for i, d := range c.demands {
		missing = missing || d.Op == driver.OpSettle && d.N > 0 && c.results[i].Units == 0
	}
	return missing, nil
}

// extend holds numbers[i] more units for claim i.
func (r *Reservation) extend(ctx context.Context, numbers []int64) ([]Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != notEnded {
		return nil, r.endedError()
	}
	var parts []part
	fits, more := isBudget, false
	if r.unheld && !r.released { // all are settled as holds from then on
		fits = isHolder
	}
	for i, c := range r.claims {
		n := c.N + max(0, numbers[i])
		if err := checkUnits(n); err != nil {
			return nil, err
		}
		more = more || n > c.N
		if l := c.Limiter.only(fits); l != nil && (n > c.N || r.unheld && n > 0) {
			parts = append(parts,
				part{limiter: l, op: driver.OpHold, key: c.Key, n: n, id: r.id, hold: c.Hold})
		}
	}
	if !more {
		return nil, nil
	}
	c := newCall(parts...)
	defer c.release()
	c.caller, c.holds = ctx, r.holds
	err := c.do(patient(ctx), func(c *call, ctx context.Context) error {
		err := ErrOutcomeUnknown // if the store panics
		defer func() { r.extendedLocked(c, numbers, err) }()
		err = c.ask(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return slices.Clone(c.results), nil
}

// extendedLocked takes over what a call of extend has decided, which ended with err.
func (r *Reservation) extendedLocked(c *call, numbers []int64, err error) {
	placed := err == nil && c.allowed() && c.results[0].Source != SourceOpen
	if placed || c.unknown || errors.Is(err, ErrOutcomeUnknown) {
		r.unheld = false
	}
	if err != nil || !c.allowed() {
		return
	}
	before := r.timeout()
	for i := range r.claims {
		r.claims[i].N += max(0, numbers[i])
	}
	if r.renewal == nil || r.timeout() < before {
		r.renewLaterLocked()
	}
}

// end ends the reservation, and with it its renewals. mu is held.
func (r *Reservation) end(how ending) {
	r.ended = how
	r.stopLocked()
}
