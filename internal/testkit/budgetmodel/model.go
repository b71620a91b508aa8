// Package budgetmodel plays random histories of claims, reservations and leases by several clients
// of one store: either one call at a time, each compared with a model, or many at once, whose
// recorded calls and final sums are checked.
package budgetmodel

import (
	"github.com/truewindow/ratelimit/driver"
)

// A record is units of one stamp, which count until they leave the window.
type record struct{ at, units int64 }

// history holds the records of one limit.
type history struct {
	limit   driver.Limit
	records []*record
}

// used returns how many units count now.
func (h *history) used(now int64) int64 {
	var used int64
	for _, r := range h.records {
		if r.at > now-h.limit.Window.Microseconds() {
			used += r.units
		}
	}
	return used
}

// left returns how many units are free now.
func (h *history) left(now int64) int64 { return max(0, h.limit.Max-h.used(now)) }

func (h *history) add(now, units int64) *record {
	r := &record{now, units}
	h.records = append(h.records, r)
	return r
}

// budget holds the histories of one limiter, whose limits all count the same units.
type budget []*history

func newBudget(limits []driver.Limit) budget {
	var b budget
	for _, limit := range limits {
		b = append(b, &history{limit: limit})
	}
	return b
}

// admits reports whether n units fit; for n = 0, whether one unit fits.
func (b budget) admits(now, n int64) bool {
	for _, h := range b {
		if h.used(now)+max(n, 1) > h.limit.Max {
			return false
		}
	}
	return true
}

// left returns how many units are free under the limit that binds.
func (b budget) left(now int64) int64 {
	left := b[0].left(now)
	for _, h := range b[1:] {
		left = min(left, h.left(now))
	}
	return left
}

// charge is the records of n units, one under each limit.
type charge []*record

func (b budget) charge(now, n int64) charge {
	if n == 0 {
		return nil
	}
	var c charge
	for _, h := range b {
		c = append(c, h.add(now, n))
	}
	return c
}

func (c charge) units() int64 {
	if len(c) == 0 {
		return 0
	}
	return c[0].units
}

func (c charge) giveBack(n int64) {
	for _, r := range c {
		r.units -= n
	}
}

// reservation is what a reservation has charged to one budget.
type reservation struct {
	budget  budget
	held    bool // a call in flight, released when it is settled
	charges []charge
}

// settle charges what was used instead of what was reserved.
func (r *reservation) settle(now, used int64) {
	if r.held {
		used = 0
	}
	var charged int64
	for _, c := range r.charges {
		charged += c.units()
	}
	if used > charged {
		r.budget.charge(now, used-charged)
	}
	for i := len(r.charges) - 1; i >= 0 && charged > used; i-- {
		n := min(charged-used, r.charges[i].units())
		r.charges[i].giveBack(n)
		charged -= n
	}
}
