package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"weak"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/longkey"
)

// renewals is how often a hold is renewed within its time-out, and renewalTimes how many times
// there are for it. The renewals of a process that are due at one time are sent together: 10,000
// reservations under a time-out of 6 s take 101 scripts a second in place of 2,888
// (TestManyReservations).
const (
	renewals     = 3
	renewalTimes = 60
)

// began is when the times of renewals begin, which differs from process to process.
var began = time.Now()

// renewAgain is the pause after a renewal that has failed.
const renewAgain = time.Second

// Renew holds what is held for d more, from 1/16 to 16 times the time-out of each hold; 0 is Hold
// of the claim, or the time-out. It never shortens a hold. A reservation renews itself: Renew is
// for holds that are to outlive it, such as those of a token.
//
// Renew works even if ctx has ended, and no policy applies. The error is [ErrNotHeld] if nothing is
// held any more, and wraps [ErrInvalid] if d is out of range or the reservation has ended.
func (r *Reservation) Renew(ctx context.Context, d time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != notEnded {
		return r.endedError()
	}
	held, err := r.holdLocked(context.WithoutCancel(ctx), d)
	switch {
	case err != nil:
		return fmt.Errorf("ratelimit: the holds are not renewed: %w", err)
	case !held:
		return ErrNotHeld
	}
	return nil
}

// renewLater begins to renew the holds of r.
func (r *Reservation) renewLater() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renewLaterLocked()
}

// renewLaterLocked renews the holds in a third of their time-out, or up to a 60th of it sooner. A
// reservation that nobody refers to any more is not renewed. mu is held.
func (r *Reservation) renewLaterLocked() {
	if timeout := r.timeout(); timeout > 0 {
		step := timeout / renewalTimes
		late := (time.Since(began) + timeout/renewals) % step
		if late < 0 { // a synthetic clock may be before began
			late += step
		}
		r.renewAfter(timeout/renewals - late)
	}
}

// renewAfter renews the holds after a pause, and not when it was last to do so. mu is held.
func (r *Reservation) renewAfter(pause time.Duration) {
	r.stopLocked()
	weakly, holds, own := weak.Make(r), r.holds, r.own
	r.renewal = time.AfterFunc(pause, func() {
		if r := weakly.Value(); r != nil {
			r.renew()
		} else {
			own.leave(nil, "")
			holds.leave(true, isHolder)
		}
	})
}

// timeout returns the shortest time for which r holds, or 0 if it holds nothing.
func (r *Reservation) timeout() (least time.Duration) {
	for _, c := range r.claims {
		for _, a := range c.Limiter.algorithms {
			h, ok := a.(driver.Holder)
			if !ok || c.N == 0 {
				continue
			}
			if d := cmp.Or(c.Hold, h.Holds()); least == 0 || d < least {
				least = d
			}
		}
	}
	return least
}

// stopLocked ends the renewals. mu is held.
func (r *Reservation) stopLocked() {
	if r.renewal != nil {
		r.renewal.Stop()
		r.renewal = nil
	}
}

// renew renews the holds once. It excludes a settlement.
func (r *Reservation) renew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != notEnded {
		return
	}
	held, err := false, ErrOutcomeUnknown
	defer func() { r.renewedLocked(held, err) }() // also if the goroutine ends
	held, err = r.holdLocked(context.Background(), 0)
}

// renewedLocked handles the answer to a renewal: it schedules the next one, or ends the renewals.
func (r *Reservation) renewedLocked(held bool, err error) {
	switch {
	case errors.Is(err, driver.ErrClosed):
		r.stopLocked()
		r.own.leave(nil, "")
		r.holds.leave(true, isHolder)
	case err == nil && !held:
		r.stopLocked()
	case err != nil:
		r.renewAfter(min(renewAgain, r.timeout()/renewals))
	default:
		r.renewLaterLocked()
	}
}

// holdLocked holds what is held for d more; 0 is what the claims say. It reports whether anything
// is held. mu is held.
func (r *Reservation) holdLocked(ctx context.Context, d time.Duration) (held bool, err error) {
	var parts []part
	for _, c := range r.claims {
		if l := c.Limiter.only(r.renewed()); l != nil && c.N > 0 {
			parts = append(parts,
				part{limiter: l, op: driver.OpHold, key: c.Key, id: r.id, hold: cmp.Or(d, c.Hold)})
		}
	}
	if len(parts) == 0 || r.unheld {
		return false, nil
	}
	c := newCall(parts...)
	defer c.release()
	c.strict, c.holds = true, r.holds
	err = c.do(ctx, func(c *call, ctx context.Context) error {
		if err := c.ask(ctx); err != nil {
			return err
		}
		for i := range c.parts {
			p := &c.parts[i]
			if slices.ContainsFunc(p.results, func(res Result) bool { return res.Units > 0 }) {
				held = true
			} else {
				r.own.leave(p.limiter.waiting, longkey.Shorten(p.key))
			}
		}
		return nil
	})
	return held, err
}

// renewed returns whose holds are renewed.
func (r *Reservation) renewed() func(driver.Holder) bool {
	if r.releasing {
		return isBudget
	}
	return isHolder
}
