package conformance

import (
	"bytes"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// asksOf is asks for demands of one operation.
func asksOf(op driver.Op, change func(*driver.Demand)) bugs {
	return asks(func(d *driver.Demand) {
		if d.Op == op {
			change(d)
		}
	})
}

// renewals returns a bug in renewals.
func renewals(change func(*driver.Demand)) bugs {
	return asksOf(driver.OpHold, func(d *driver.Demand) {
		if d.N == 0 {
			change(d)
		}
	})
}

// forcesUnknown is a bug: a settlement that finds no hold forces its units.
var forcesUnknown = bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
	s := r.one(d)
	if d.Op == driver.OpSettle && d.N > 0 && s.err == nil && s.res.Units == 0 {
		d.Op, d.ID = driver.OpForce, 0
		s = r.one(d)
	}
	return s
}}

// inner returns a bug: demands of an operation are those of the algorithm inside, on its own state.
func inner(op driver.Op) bugs {
	return bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
		if h, ok := d.Algorithm.(interface{ Inside() driver.Algorithm }); ok && d.Op == op &&
			h.Inside() != nil {
			d.Algorithm = h.Inside()
		}
		return r.one(d)
	}}
}

// remembersFor returns a bug: states are kept for that long at most.
func remembersFor(most time.Duration) bugs {
	return bugs{until: func(_ cell, now int64, keep time.Duration) int64 {
		return now + min(keep, most).Microseconds()
	}}
}

// unlocked returns a bug: demands of an operation are decided on a copy of the state, which
// replaces the state a little later.
func unlocked(op driver.Op) bugs {
	return bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
		if d.Op != op {
			return r.one(d)
		}
		r.mu.Lock()
		now := r.now()
		s := r.run(d, now, driver.Demand.Step)
		r.mu.Unlock()
		runtime.Gosched()
		time.Sleep(10 * time.Microsecond)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.put(d, now, s)
		return s
	}}
}

// boundedHolds returns a bug: a key has a number of holds at most, as far as the store has counted.
func boundedHolds(most int) bugs {
	var mu sync.Mutex
	ids := make(map[string][]uint64)
	return bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
		mu.Lock()
		defer mu.Unlock()
		if d.Op == driver.OpHold && !slices.Contains(ids[d.Key], d.ID) {
			if len(ids[d.Key]) == most {
				d.Op = driver.OpPeek
			}
			ids[d.Key] = append(ids[d.Key], d.ID)
		}
		return r.one(d)
	}}
}

var holdFaults = []fault{
	{name: "holds are peeks", always: true,
		rules: "hold/counts hold/take-beside hold/results settle/more takeall/operations",
		bugs:  asksOf(driver.OpHold, func(d *driver.Demand) { d.Op = driver.OpPeek })},
	{name: "takes do not see holds", always: true, rules: "hold/take-beside",
		bugs: inner(driver.OpTake)},
	{name: "holds of one unit", always: true, rules: "hold/counts hold/fits concurrency/weights",
		bugs: asks(func(d *driver.Demand) { d.N = min(d.N, 1) })},
	{name: "holds that replace", always: true, rules: "hold/resize hold/idempotent",
		bugs: bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
			if d.Op == driver.OpHold && d.N > 0 {
				end := d
				end.Op, end.N = driver.OpSettle, 0
				r.one(end)
			}
			return r.one(d)
		}}},
	{name: "holds that add up", always: true, rules: "hold/idempotent hold/resize",
		bugs: func() bugs {
			var id uint64
			return asksOf(driver.OpHold, func(d *driver.Demand) {
				if id++; d.N > 0 {
					d.ID += id << 20
				}
			})
		}()},
	{name: "units of holds in 32 bits", always: true, rules: "hold/counts",
		bugs: asksOf(driver.OpHold, func(d *driver.Demand) { d.N &= 1<<32 - 1 })},
	{name: "units of holds in 31 bits", always: true, rules: "hold/counts",
		bugs: asksOf(driver.OpHold, func(d *driver.Demand) { d.N = min(d.N, 1<<31-1) })},
	{name: "units of settlements in 32 bits", always: true, rules: "hold/counts",
		bugs: asksOf(driver.OpSettle, func(d *driver.Demand) { d.N &= 1<<32 - 1 })},
	{name: "IDs of 32 bits", always: true, rules: "hold/ids",
		bugs: asks(func(d *driver.Demand) {
			if d.ID &= 1<<32 - 1; d.ID == 0 && d.Op >= driver.OpHold {
				d.ID = 1
			}
		})},
	{name: "IDs of 53 bits", always: true, rules: "hold/ids",
		bugs: asks(func(d *driver.Demand) { d.ID = uint64(float64(d.ID)) })},
	{name: "renewals are peeks", always: true, rules: "hold/renew hold/renew-late",
		bugs: renewals(func(d *driver.Demand) { d.Op, d.N, d.ID = driver.OpPeek, 1, 0 })},
	{name: "renewals place a hold", always: true, rules: "hold/renew-unknown settle/after-reset",
		bugs: renewals(func(d *driver.Demand) { d.N = 1 })},
	{name: "holds are forgotten at the time-out", always: true,
		rules: "hold/renew-late settle/late hold/clock-forward expiry/remembered",
		bugs:  remembersFor(longest(timeout))},
	{name: "holds last for half of their time", always: true,
		rules: "hold/not-early hold/time-out hold/many-deadlines hold/results",
		bugs: asksOf(driver.OpHold, func(d *driver.Demand) {
			if d.HoldTimeout == 0 {
				d.HoldTimeout = d.Algorithm.(driver.Holder).HoldTimeout()
			}
			d.HoldTimeout /= 2
		})},
	{name: "holds last for the time-out", always: true,
		rules: "hold/time-out hold/not-early hold/many-deadlines",
		bugs:  asksOf(driver.OpHold, func(d *driver.Demand) { d.HoldTimeout = 0 })},
	{name: "holds never time out", always: true,
		rules: "hold/time-out hold/clock-forward hold/full",
		bugs:  asksOf(driver.OpHold, func(d *driver.Demand) { d.HoldTimeout = 1000 * time.Hour })},
	{name: "a thousand holds at most", always: true, rules: "hold/full", bugs: boundedHolds(1000)},
	{name: "peeks without an ID", always: true, rules: "hold/peek",
		bugs: asksOf(driver.OpPeek, func(d *driver.Demand) { d.ID = 0 })},
	{name: "peeks that hold", always: true, rules: "hold/peek",
		bugs: asksOf(driver.OpPeek, func(d *driver.Demand) {
			if d.ID != 0 {
				d.Op = driver.OpHold
			}
		})},
	{name: "retry-after of holds short by a microsecond", always: true,
		rules: "hold/retry-after hold/results",
		bugs: answers(func(d driver.Demand, res *driver.Result) {
			res.RetryAfter = max(0, res.RetryAfter-time.Microsecond)
		})},
	{name: "a history for each Max", always: true, rules: "hold/changed-max",
		bugs: identify(func(d driver.Demand, id *identity) {
			id.algorithm += d.Algorithm.Limit().String()
		})},
	{name: "time of holds never steps back", always: true, rules: "hold/clock-back",
		bugs: bugs{clock: func(r *reference, now int64) int64 {
			r.last = max(r.last, now)
			return r.last
		}}},
	{name: "time of holds steps forward by a minute", always: true, rules: "hold/clock-forward",
		bugs: bugs{clock: func(r *reference, now int64) int64 {
			if r.last > 0 {
				now = min(now, r.last+60e6)
			}
			r.last = now
			return now
		}}},
	{name: "corrupt holds are none", always: true, rules: "hold/corrupt",
		bugs: bugs{stepped: func(_ *reference, d driver.Demand, _ []byte, s *step) {
			if s.err != nil {
				s.err = nil
				s.next, s.keep, s.res = d.Step(nil, start)
			}
		}}},

	{name: "settlements of what was held", always: true, rules: "settle/less settle/more",
		bugs: func() bugs {
			held := make(map[string]int64)
			return asks(func(d *driver.Demand) {
				switch {
				case d.Op == driver.OpHold:
					held[d.Key] = max(held[d.Key], d.N)
				case d.Op == driver.OpSettle && d.N > 0:
					d.N = held[d.Key]
				}
			})
		}()},
	{name: "settlements of a unit at least", always: true, rules: "settle/zero",
		bugs: asksOf(driver.OpSettle, func(d *driver.Demand) { d.N = max(1, d.N) })},
	{name: "settlements that leave the hold", always: true,
		rules: "settle/zero settle/less",
		bugs: bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
			s := r.one(d)
			if d.Op == driver.OpSettle {
				d.Op, d.N = driver.OpHold, max(1, d.N)
				r.one(d)
			}
			return s
		}}},
	{name: "settlements without a hold are forced", always: true,
		rules: "settle/twice settle/unknown settle/after-reset settle/late",
		bugs:  forcesUnknown},
	{name: "settlements decided on a copy", rules: "settle/duplicates-at-once",
		bugs: unlocked(driver.OpSettle)},
	{name: "settlements count when they are made", always: true, rules: "settle/instant",
		bugs: bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
			if d.Op == driver.OpSettle && d.N > 0 {
				end := d
				end.N = 0
				r.one(end)
				d.Op, d.ID = driver.OpForce, 0
			}
			return r.one(d)
		}}},
	{name: "calls in flight that are settled count", always: true, rules: "settle/in-flight",
		bugs: answers(func(d driver.Demand, res *driver.Result) {
			if h, ok := d.Algorithm.(driver.Holder); ok && h.InFlight() &&
				d.Op == driver.OpSettle {
				res.Units, res.Remaining = d.N, res.Remaining-d.N
			}
		})},
	{name: "forces without At", always: true, rules: "op/force-at",
		bugs: asksOf(driver.OpForce, func(d *driver.Demand) { d.At = 0 })},

	{name: "holds of a refused TakeAll stay", always: true,
		rules: "takeall/hold-refused-leaves-nothing", bugs: eachOnItsOwn(false)},
	{name: "TakeAll refused without a hold to settle", always: true,
		rules: "takeall/settle-unknown-with-others",
		bugs: rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
			r.mu.Lock()
			now := r.now()
			for _, d := range ds {
				if d.Op != driver.OpSettle && (d.Op != driver.OpHold || d.N > 0) {
					continue
				}
				if _, _, res := d.Step(bytes.Clone(r.states[identityOf(d)].state),
					now); res.Units == 0 {
					r.mu.Unlock()
					return nil
				}
			}
			r.mu.Unlock()
			return r.several(ds, out)
		})},
	{name: "holds decided on a copy", rules: "concurrency/holds", bugs: unlocked(driver.OpHold)},
}
