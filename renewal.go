package ratelimit

import (
	"context"
	"errors"
	"time"
	"weak"

	"github.com/truewindow/ratelimit/driver"
)

// renewals is how often a hold is renewed within its time-out, and renewalTimes how many times
// there are for it. The renewals of a process that are due at one time are sent together.
const (
	renewals     = 3
	renewalTimes = 60
)

// began is when the times of renewals begin, which differs from process to process.
var began = time.Now()

// renewAgain is the pause after a renewal that has failed.
const renewAgain = time.Second

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
		now := time.Since(began)
		r.renewAfter((now + timeout/renewals).Truncate(timeout/renewalTimes) - now)
	}
}

// renewAfter renews the holds after a pause, and not when it was last to do so. mu is held.
func (r *Reservation) renewAfter(pause time.Duration) {
	r.stopLocked()
	weakly := weak.Make(r)
	r.renewal = time.AfterFunc(pause, func() {
		if r := weakly.Value(); r != nil {
			r.renew()
		}
	})
}

// timeout returns the shortest time-out of the holds of r, or 0 if there are none.
func (r *Reservation) timeout() (least time.Duration) {
	for _, c := range r.claims {
		for _, a := range c.Limiter.algorithms {
			if h, ok := a.(driver.Holder); ok && c.N > 0 && (least == 0 || h.Holds() < least) {
				least = h.Holds()
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
	held, err := r.holdLocked(context.Background(), 0)
	switch {
	case errors.Is(err, driver.ErrClosed), err == nil && !held:
		r.stopLocked()
	case err != nil:
		r.renewAfter(min(renewAgain, r.timeout()/renewals))
	default:
		r.renewLaterLocked()
	}
}

// holdLocked holds what is held for d more; 0 is the time-out. It reports whether anything is held.
// mu is held.
func (r *Reservation) holdLocked(ctx context.Context, d time.Duration) (held bool, err error) {
	var parts []part
	for _, c := range r.claims {
		if l := c.Limiter.only(isHolder); l != nil && c.N > 0 {
			parts = append(parts,
				part{limiter: l, op: driver.OpHold, key: c.Key, id: r.id, hold: d})
		}
	}
	if len(parts) == 0 || r.unheld {
		return false, nil
	}
	c := newCall(parts...)
	defer c.release()
	c.strict = true
	if err := c.do(ctx, (*call).ask); err != nil {
		return false, err
	}
	for _, res := range c.results {
		held = held || res.Units > 0
	}
	return held, nil
}
