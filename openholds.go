package ratelimit

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// A HoldChange is what a call, or the end, of a reservation has changed under one limit, as far as
// this process knows. See [Limiter.WithHoldObserver].
type HoldChange struct {
	Limit Limit
	// Open is the change in the number of open holds of this process: 1, 0 or -1. A hold is open
	// from the first answer that says that it is held until it is settled, lost or left to a token.
	// A reservation that was resumed is open from its first renewal or extension.
	Open int
	// Renewed means that the hold was renewed.
	Renewed bool
	// Late means that an open hold was renewed, extended or settled when its time-out was over by
	// this process's clock. Others may have had its units meanwhile.
	Late bool
	// Lost means that an open hold was not found by a renewal, or by a settlement that records
	// units, or that it will not be settled: the program has dropped the reservation, or the store
	// is closed.
	Lost bool
}

// WithHoldObserver returns a copy of l that calls observe for each change of a hold of a
// [Reservation]. A nil observe removes the observer. observe must be safe for concurrent use,
// should return soon, and must not use the reservation. For a panic of it see
// [Limiter.WithObserver].
func (l *Limiter) WithHoldObserver(observe func(HoldChange)) *Limiter {
	with := *l
	with.observeHold = observe
	return &with
}

// openHolds are the holds of a reservation whose limiters have a HoldObserver. Nil does nothing. It
// has a lock of its own, since it outlives a reservation that is dropped.
type openHolds struct {
	mu      sync.Mutex
	holds   []openHold
	changes []observedChange // which tellLocked passes to the observers
}

type observedChange struct {
	observe func(HoldChange)
	change  HoldChange
}

// openHold is the hold of a key under one limit.
type openHold struct {
	observe   func(HoldChange)
	key       string
	algorithm Algorithm
	open      bool
	unknown   bool      // a settlement may have ended it
	until     time.Time // when it times out by this process's clock, if it is open
}

// newOpenHolds returns nil if nobody observes the holds of claims.
func newOpenHolds(claims []Claim) *openHolds {
	if !slices.ContainsFunc(claims, func(c Claim) bool { return c.Limiter.observeHold != nil }) {
		return nil
	}
	return new(openHolds)
}

// answered observes what a call that ended with err has changed. o is not nil.
func (o *openHolds) answered(c *call, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.tellLocked()
	allowed := err == nil && c.allowed()
	demands := c.demands
	for _, p := range c.parts {
		for i, res := range p.results {
			d := demands[i]
			if d.ID == 0 || p.limiter.observeHold == nil {
				continue
			}
			h := o.ofLocked(d, p.limiter.observeHold)
			switch {
			case d.Op == driver.OpSettle && err == nil:
				o.settledLocked(h, d.N > 0 && res.Units == 0)
			case d.Op == driver.OpSettle:
				h.unknown = h.unknown || errors.Is(err, ErrOutcomeUnknown)
			case allowed && res.Source != SourceOpen:
				o.heldLocked(h, d, res.Units > 0)
			}
		}
		demands = demands[len(p.results):]
	}
}

// ofLocked returns the hold of d, which is not open if it is new.
func (o *openHolds) ofLocked(d driver.Demand, observe func(HoldChange)) *openHold {
	for i := range o.holds {
		if h := &o.holds[i]; h.key == d.Key && h.algorithm == d.Algorithm {
			return h
		}
	}
	o.holds = append(o.holds, openHold{observe: observe, key: d.Key, algorithm: d.Algorithm})
	return &o.holds[len(o.holds)-1]
}

// heldLocked handles the answer to an OpHold for h. found: the store has the hold.
func (o *openHolds) heldLocked(h *openHold, d driver.Demand, found bool) {
	if !found {
		o.endLocked(h, HoldChange{Lost: !h.unknown})
		return
	}
	change := HoldChange{Limit: h.algorithm.Limit(), Renewed: d.N == 0}
	now := time.Now()
	if h.open {
		change.Late = now.After(h.until)
	} else {
		*h = openHold{observe: h.observe, key: h.key, algorithm: h.algorithm, open: true}
		change.Open = 1
	}
	h.unknown = false
	// A renewal never shortens a hold.
	timeout := cmp.Or(d.Hold, h.algorithm.(driver.Holder).Holds())
	if until := now.Add(timeout); until.After(h.until) {
		h.until = until
	}
	if change != (HoldChange{Limit: change.Limit}) {
		o.changes = append(o.changes, observedChange{h.observe, change})
	}
}

// settledLocked handles the answer to a settlement of h. missing: the store did not have the hold.
func (o *openHolds) settledLocked(h *openHold, missing bool) {
	o.endLocked(h,
		HoldChange{Late: !missing && time.Now().After(h.until), Lost: missing && !h.unknown})
}

// endLocked closes h, if it is open.
func (o *openHolds) endLocked(h *openHold, change HoldChange) {
	if h.open {
		h.open = false
		change.Limit, change.Open = h.algorithm.Limit(), -1
		o.changes = append(o.changes, observedChange{h.observe, change})
	}
}

// tellLocked passes the changes to the observers.
func (o *openHolds) tellLocked() {
	if len(o.changes) == 0 {
		o.changes = nil
		return
	}
	defer o.tellLocked() // also if this one panics
	first := o.changes[0]
	o.changes = o.changes[1:]
	first.observe(first.change)
}

// leave closes the holds that are still open under limits that fit.
func (o *openHolds) leave(lost bool, fits func(driver.Holder) bool) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.tellLocked()
	for i := range o.holds {
		if h := &o.holds[i]; fits(h.algorithm.(driver.Holder)) {
			o.endLocked(h, HoldChange{Lost: lost})
		}
	}
}
