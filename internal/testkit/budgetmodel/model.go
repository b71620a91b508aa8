// Package budgetmodel plays random histories of claims and reservations by several clients of one
// store: either one call at a time, each compared with a model, or many at once, whose recorded
// calls and final sums are checked.
package budgetmodel

import (
	"fmt"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// An account is what the contract says of one limit of the key. Times are in µs.
type account struct {
	limit   driver.Limit
	rule    rule
	budget  bool // whether it has holds and records
	timeout time.Duration
	records []record
	holds   map[uint64]*hold
	// counted are the units that the limit has admitted, each at the instant at which it counts:
	// units of a log that were held, at the instant of their hold. It does not have debt: what was
	// forced, used beyond a hold, or settled after the hold had timed out.
	counted []record
}

// A rule says which records count, and where a settlement is recorded.
type rule uint8

const (
	log    rule = iota // those of the last Window; with the first record since the hold's instant
	window             // those of the current window since the epoch; at the settlement
	flight             // there are none
)

type record struct{ at, units int64 }

type hold struct {
	units, instant int64
	// It times out between these, unless it is renewed: a hold lasts up to an eighth longer than
	// asked for.
	least, most int64
	late        bool // brought back after its time-out, even if it did not fit
}

// remembered is how long a hold is known after its time-out.
const remembered = int64(24 * time.Hour / time.Microsecond)

// same reports whether units at the time before count against those at the time at.
func (a *account) same(before, at int64) bool {
	w := a.limit.Window.Microseconds()
	if a.rule == window {
		return before/w == at/w
	}
	return before > at-w
}

// busy returns how many units are recorded or held.
func (a *account) busy(now int64) (units int64) {
	for _, r := range a.records {
		if a.same(r.at, now) {
			units += r.units
		}
	}
	for _, h := range a.holds {
		if h.open(now) {
			units += h.units
		}
	}
	return units
}

func (h *hold) open(now int64) bool { return h != nil && now < h.least }

func (a *account) left(now int64) int64 { return max(0, a.limit.Max-a.busy(now)) }

// fits reports whether n units fit in place of what id holds.
func (a *account) fits(now, n int64, id uint64) bool {
	if h := a.holds[id]; h.open(now) {
		if h.units >= n {
			return true
		}
		n -= h.units
	}
	return a.busy(now)+n <= a.limit.Max
}

// take records n units that fit.
func (a *account) take(now, n int64) {
	a.record(now, n, 0)
	a.count(now, n)
}

func (a *account) count(at, n int64) {
	if n > 0 {
		a.counted = append(a.counted, record{at, n})
	}
}

// record records n units, in a log with the first record from at on.
func (a *account) record(now, n, at int64) {
	for i := range a.records {
		r := &a.records[i]
		if a.rule == log && at > 0 && r.at >= at && a.same(r.at, now) {
			r.units += n
			return
		}
	}
	if n > 0 {
		a.records = append(a.records, record{now, n})
	}
}

// hold holds n units that fit.
func (a *account) hold(now, n int64, id uint64) {
	h := a.holds[id]
	if !h.open(now) {
		h = new(hold)
		a.holds[id] = h
	}
	if h.units < n {
		h.units, h.instant, h.late = n, now, false
	}
	h.keep(now, a.timeout)
}

func (h *hold) keep(now int64, d time.Duration) {
	h.least = max(h.least, now+d.Microseconds())
	h.most = max(h.most, now+(d+d/8).Microseconds()+1)
}

// renew renews the hold of id, and returns its units.
func (a *account) renew(now int64, id uint64, d time.Duration) int64 {
	h := a.known(now, id)
	if h == nil {
		return 0
	}
	if !h.open(now) {
		h.instant, h.late = now, true
	}
	if d == 0 {
		d = a.timeout
	}
	h.keep(now, d)
	return h.units
}

// known returns the hold of id, or nil if it has timed out a day ago.
func (a *account) known(now int64, id uint64) *hold {
	h := a.holds[id]
	if h != nil && now >= h.least+remembered {
		return nil
	}
	return h
}

// settle ends the hold of id, records what was used, and returns it.
func (a *account) settle(now, used int64, id uint64) int64 {
	h := a.known(now, id)
	delete(a.holds, id)
	if h == nil || a.rule == flight {
		return 0
	}
	within := min(used, h.units)
	a.record(now, within, h.instant)
	a.record(now, used-within, 0)
	if h.late || !h.open(now) {
		return used
	}
	if a.rule == log {
		a.count(h.instant, within)
	} else {
		a.count(now, within)
	}
	return used
}

func (a *account) reset() {
	a.records, a.counted = nil, nil
	clear(a.holds)
}

// check returns an error if a window has more than Max units, counted at their instants.
func (a *account) check() error {
	for _, end := range a.counted {
		var units int64
		for _, r := range a.counted {
			if r.at <= end.at && a.same(r.at, end.at) {
				units += r.units
			}
		}
		if units > a.limit.Max {
			return fmt.Errorf("%d units of %v count in the window that ends at %d", units, a.limit,
				end.at)
		}
	}
	return nil
}

// unsure returns until when it is not known whether a hold has timed out or is forgotten, if that
// will be so within soon; or 0.
func (a *account) unsure(now, soon int64, id uint64) int64 {
	for of, h := range a.holds {
		if id != 0 && of != id {
			continue
		}
		for _, since := range []int64{0, remembered} {
			if h.least+since <= now+soon && now < h.most+since {
				return h.most + since
			}
		}
	}
	return 0
}
