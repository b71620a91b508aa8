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
	"weak"

	"github.com/truewindow/ratelimit/driver"
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
// A hold times out after a minute, or what WithTimeout of the algorithm or HoldTimeout of the claim
// says, and the reservation renews it three times as often until it is settled. When its process
// ends, its units are free after the time-out. After a suspension of the process, or an outage, the
// next renewal takes back what has timed out, even beyond Max.
//
// A settlement may be repeated after any error, also in another process: one counts.
type Reservation struct {
	*state
	// The runtime keeps the weak pointers to the objects of a span in one list, and a span has a
	// thousand objects of 8 bytes: without the rest a Reserve takes a fifth longer.
	_ [120]byte
}

// A state is what a Reservation and its timers share. The timers refer to the state alone, so that
// they notice when the program has dropped the Reservation.
type state struct {
	// Read only, once the reservation is made.
	id          uint64
	results     []Result // of the first call, one for each limit
	reservation weak.Pointer[Reservation]

	// mu guards all that follows but limiters and keys of claims, which are read only too. It is
	// held while the store and the observers are called, and the locks of waitQueues are taken
	// within it.
	mu     sync.Mutex
	claims []Claim // N is what was reserved, extensions included
	holds  []hold  // one for each claim
	ended  ending
	unheld bool    // the policy has admitted it, and no hold can have been sent
	events []event // that unlock passes to the observers

	// Settlements that have failed.
	commit   []int64 // the numbers of the last Commit that has failed
	unknown  bool    // the holds may have been settled
	recorded bool    // units may have been recorded
	repeats  bool    // a timer will repeat the Cancel

	renewal *time.Timer // nil: nothing is to be renewed
}

// ending says why a reservation has stopped.
type ending uint8

const (
	notEnded ending = iota
	refused
	canceled // but not settled yet: the store has failed
	settled
	tokened // a token has taken its place
	lost    // of stopLocked only: it may still be settled or extended, so ended stays as it was
)

func newReservation(id uint64, claims []Claim) *Reservation {
	r := &Reservation{state: &state{
		id: id, claims: claims, holds: make([]hold, len(claims))}}
	r.reservation = weak.Make(r)
	return r
}

// stopLocked is where a reservation stops, whatever the reason. It is renewed no more, calls that
// wait do not count its units, and its holds are closed, unless a Cancel is still to settle them.
// It is lost if the program has dropped it, the store is closed or has none of its holds, or a
// Cancel has failed for the last time.
func (s *state) stopLocked(why ending) {
	if s.renewal != nil {
		s.renewal.Stop()
		s.renewal = nil
	}
	if why != lost {
		s.ended = why
	}
	for i := range s.holds {
		s.uncountLocked(i)
	}
	switch why {
	case canceled:
	case lost:
		s.closeAllLocked(ErrNotHeld)
	default:
		s.closeAllLocked(nil)
	}
}

// Reserve holds n units for key, if all limits admit them now, and renews the holds until they are
// settled. Limits without holds are charged at once, for good. With n = 0 it holds nothing, but is
// refused if no unit is free. A refusal is a Reservation that is not Allowed, not an error.
//
// A reservation is settled as a whole. If a call ends before its usage is known, commit where that
// becomes known, with [Reservation.Token]; or reserve the call in flight and its units apart, which
// are two decisions then.
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
			c.reserved.countLocked(c)
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
	r := newReservation(newID(), own)
	c, err := claimed(driver.OpHold, r.id, own)
	if err != nil {
		return nil, err
	}
	defer c.release()
	r.mu.Lock()
	defer r.unlock()
	returned := false
	defer func() {
		if !returned && r.results != nil { // it was refused, or an observer has panicked
			_ = r.cancelLocked(ctx)
		}
	}()
	c.caller, c.reserved = ctx, r.state
	err = c.do(ctx, func(c *call, ctx context.Context) error {
		err := decide(c, ctx)
		if err == nil || c.results[0] != (Result{}) {
			r.decidedLocked(c)
		}
		return err
	})
	switch {
	case r.results == nil:
		return nil, err
	case r.ended == refused:
		return r, err
	}
	r.renewLaterLocked()
	returned = true
	return r, nil
}

// decidedLocked takes over what c has decided.
func (s *state) decidedLocked(c *call) {
	s.results = slices.Clone(c.results)
	if !c.allowed() {
		s.stopLocked(refused)
		return
	}
	for i := range c.parts {
		p := &c.parts[i]
		if s.claims[i].Least > 0 {
			s.claims[i].N = p.granted()
		}
		if p.holds() {
			s.openLocked(p)
		}
	}
	s.unheld = s.results[0].Source == SourceOpen && !c.unknown
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

// errEnded is the error of a method of a reservation that has ended.
var errEnded = fmt.Errorf("%w demand: the reservation was refused, has ended or has a token",
	ErrInvalid)

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
	numbers, err := r.numbersOf(more)
	if err != nil {
		return nil, err
	}
	return r.extend(ctx, numbers)
}

// extend holds numbers[i] more units for claim i.
func (r *Reservation) extend(ctx context.Context, numbers []int64) ([]Result, error) {
	r.mu.Lock()
	defer r.unlock()
	if r.ended != notEnded {
		return nil, errEnded
	}
	var parts []part
	fits, more := isBudget, false
	if r.unheld { // all are settled as holds from then on
		fits = isHolder
	}
	for i, c := range r.claims {
		n := c.N + max(0, numbers[i])
		if err := checkUnits(n); err != nil {
			return nil, err
		}
		more = more || n > c.N
		if l := c.Limiter.subset(fits); l != nil && (n > c.N || r.unheld && n > 0) {
			parts = append(parts,
				part{limiter: l, op: driver.OpHold, key: c.Key, n: n, id: r.id, hold: c.HoldTimeout,
					claim: i})
		}
	}
	if !more {
		return nil, nil
	}
	c := newCall(parts...)
	defer c.release()
	c.caller = ctx
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
func (s *state) extendedLocked(c *call, numbers []int64, err error) {
	placed := err == nil && c.allowed() && c.results[0].Source != SourceOpen
	if placed || c.unknown || errors.Is(err, ErrOutcomeUnknown) {
		s.unheld = false
	}
	if err != nil || !c.allowed() {
		return
	}
	before := s.timeoutLocked()
	for i := range s.claims {
		s.claims[i].N += max(0, numbers[i])
	}
	for i := range c.parts {
		if p := &c.parts[i]; p.holds() {
			s.openLocked(p)
		}
	}
	if s.renewal == nil || s.timeoutLocked() < before {
		s.renewLaterLocked()
	}
}
