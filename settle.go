package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/longkey"
)

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
	numbers, err := r.numbersOf(used)
	if err != nil {
		return err
	}
	return r.commitTo(ctx, numbers)
}

// commitTo is Commit with a number for each claim.
func (r *Reservation) commitTo(ctx context.Context, numbers []int64) error {
	r.mu.Lock()
	defer r.unlock()
	switch r.ended {
	case notEnded, canceled:
	case settled:
		return ErrNotHeld
	default:
		return errEnded
	}
	for i, c := range r.claims {
		if numbers[i] == noNumber {
			numbers[i] = c.N
		}
	}
	r.commit = numbers
	return r.settleLocked(ctx, numbers)
}

// settleLocked makes the call that records used[i] units for claim i. No policy applies.
func (s *state) settleLocked(ctx context.Context, used []int64) error {
	var parts []part
	records := false
	for i, c := range s.claims {
		p := part{limiter: c.Limiter.subset(isHolder), op: driver.OpSettle, key: c.Key, n: used[i],
			id: s.id, claim: i}
		budgets := c.Limiter.subset(isBudget)
		records = records || budgets != nil && used[i] > 0
		if s.unheld {
			p.limiter, p.op, p.id = budgets, driver.OpForce, 0
		}
		if p.limiter != nil && (p.op == driver.OpSettle || p.n > 0) {
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		s.stopLocked(settled)
		return nil
	}
	c := newCall(parts...)
	defer c.release()
	c.strict = true
	err := c.do(context.WithoutCancel(ctx), func(c *call, ctx context.Context) error {
		err := ErrOutcomeUnknown // if the store panics
		defer func() { s.settledLocked(c, records, err) }()
		err = c.ask(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("ratelimit: the reservation is not settled: %w", err)
	}
	missing := slices.ContainsFunc(c.parts, func(p part) bool { return p.missing() })
	if missing && !s.recorded {
		return ErrNotHeld
	}
	return nil
}

// settledLocked takes over the answer to a settlement, which ended with err. records: it was to
// record units.
func (s *state) settledLocked(c *call, records bool, err error) {
	for i := range c.parts {
		p := &c.parts[i]
		if p.op != driver.OpSettle {
			continue
		}
		s.uncountLocked(p.claim) // also after an error: it may be settled
		p.limiter.waiting.release(longkey.Shorten(p.key))
		switch h := &s.holds[p.claim]; {
		case err != nil:
		case p.missing():
			s.notFoundLocked(p)
		case time.Now().After(h.until):
			s.closeLocked(p.claim, p, context.DeadlineExceeded)
		default:
			s.closeLocked(p.claim, p, nil)
		}
	}
	unknown := errors.Is(err, ErrOutcomeUnknown)
	s.unknown = s.unknown || unknown
	s.recorded = s.recorded || unknown && records
	if err == nil || unknown && s.unheld {
		s.stopLocked(settled)
	}
}

// Cancel ends the holds and records nothing. After a Commit that failed it repeats that Commit.
// After a refusal, a settlement or [Reservation.Token] it does nothing. Errors are those of Commit,
// apart from ErrNotHeld.
//
// Whether it fails or not, the reservation renews nothing from then on, so its holds time out. If
// the store is unavailable, Cancel is repeated in the background, six times within about a minute.
func (r *Reservation) Cancel(ctx context.Context) error {
	r.mu.Lock()
	defer r.unlock()
	return r.cancelLocked(ctx)
}

func (s *state) cancelLocked(ctx context.Context) (err error) {
	if s.ended != notEnded && s.ended != canceled {
		return nil
	}
	err = errPanicked
	defer func() {
		if s.ended == notEnded {
			s.stopLocked(canceled)
		}
		if !s.repeats {
			s.repeatLocked(firstRepeat, err)
		}
	}()
	return s.finishLocked(ctx)
}

// finishLocked repeats a Commit that has failed or, if there was none, settles without units.
func (s *state) finishLocked(ctx context.Context) error {
	if s.commit != nil {
		return s.settleLocked(ctx, s.commit)
	}
	return s.settleLocked(ctx, make([]int64, len(s.claims)))
}

// firstRepeat and lastRepeat are the pauses before a Cancel is repeated in the background for the
// first and for the last time. Each is twice the one before.
const (
	firstRepeat = time.Second
	lastRepeat  = 32 * time.Second
)

// errPanicked is the error of a Cancel that has panicked. It is not repeated, since a panic in the
// background would end the process.
var errPanicked = errors.New("ratelimit: the store or an observer has panicked")

// repeatLocked repeats a Cancel that has failed with err after a pause, or gives up. A Cancel is
// mostly deferred, so nobody looks at its error. A Commit is not repeated: whoever has the token
// may commit instead.
func (s *state) repeatLocked(pause time.Duration, err error) {
	s.repeats = false
	switch {
	case err == nil || s.ended != canceled:
	case transient(err) && pause <= lastRepeat:
		s.repeats = true
		time.AfterFunc(pause, func() {
			s.mu.Lock()
			defer s.unlock()
			err := ErrOutcomeUnknown // if the goroutine ends
			defer func() { s.repeatLocked(2*pause, err) }()
			if s.ended == canceled {
				err = s.finishLocked(context.Background())
			}
		})
	default:
		s.stopLocked(lost)
	}
}

// noNumber is the number of a claim for which there is none.
const noNumber = -1

// bare returns a number for each claim: only the claim with a Budget gets the one in n. Like named,
// it runs without the lock, and so reads no N of the claims.
func (r *Reservation) bare(n []int64) ([]int64, error) {
	numbers, at := r.numbers(), -1
	if len(n) == 0 {
		return numbers, nil
	}
	for i := range r.claims {
		if r.claims[i].Limiter.subset(isBudget) == nil {
			continue
		}
		if at >= 0 {
			return nil, fmt.Errorf("%w demand: the reservation has several Budgets: name them",
				ErrInvalid)
		}
		at = i
	}
	if at < 0 {
		return nil, fmt.Errorf("%w demand: no claim of the reservation has a Budget", ErrInvalid)
	}
	if len(n) > 1 {
		return nil, fmt.Errorf("%w demand: %d numbers of units for one Budget", ErrInvalid, len(n))
	}
	numbers[at] = n[0]
	return numbers, checkUnits(n[0])
}

// numbersOf returns a number for each claim: that of named for those that it has.
func (r *Reservation) numbersOf(named []Claim) ([]int64, error) {
	numbers := r.numbers()
	for _, n := range named {
		at := -1
		for i := range r.claims {
			c := &r.claims[i]
			fits := sameBudgets(n.Limiter, c.Limiter) && (n.Key == "" || n.Key == c.Key)
			switch {
			case !fits:
			case at >= 0:
				return nil, fmt.Errorf("%w demand: two claims have the limiter of %v: name the key",
					ErrInvalid, c.Limiter.limits)
			default:
				at = i
			}
		}
		if at < 0 || r.claims[at].Limiter.subset(isBudget) == nil {
			return nil, fmt.Errorf("%w demand: the reservation has no Budget of a limiter that "+
				"was named", ErrInvalid)
		}
		if err := checkUnits(n.N); err != nil {
			return nil, err
		}
		if numbers[at] != noNumber {
			return nil, fmt.Errorf("%w demand: the limiter of %v is named twice",
				ErrInvalid, n.Limiter.limits)
		}
		numbers[at] = n.N
	}
	return numbers, nil
}

// sameBudgets reports whether a and b have the same Budgets.
func sameBudgets(a, b *Limiter) bool {
	if a == nil {
		return false
	}
	if a, b = a.subset(isBudget), b.subset(isBudget); a == nil || b == nil {
		return false
	}
	return slices.Equal(a.algorithms, b.algorithms)
}

func (r *Reservation) numbers() []int64 {
	return slices.Repeat([]int64{noNumber}, len(r.claims))
}

func checkUnits(n int64) error {
	if n < 0 || n > driver.MaxUnits {
		return fmt.Errorf("%w demand: %d is not a number of units from 0 to %d", ErrInvalid, n,
			driver.MaxUnits)
	}
	return nil
}
