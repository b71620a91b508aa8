//go:build !race

package exhaustive

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// A fault is planted around each step, unless store plants it elsewhere.
type fault struct {
	name  string
	scope string // that finds it
	calls int    // of the shortest sequence that shows it
	// before changes what a step is asked, and returns the state on which it is asked.
	before func(d *driver.Demand, state []byte, now int64) []byte
	// after changes what a step on a state answers.
	after func(d driver.Demand, state []byte, now int64, a *answer)
	store func(*store)
}

type answer struct {
	next []byte
	keep time.Duration
	res  driver.Result
}

var faults = []fault{
	{name: "a window that is 1µs too long", scope: "log", calls: 1, before: windowOf(1)},
	{name: "a window that is 1µs too short", scope: "log", calls: 1, before: windowOf(-1)},
	{name: "a RetryAfter that is 1µs too short", scope: "log", calls: 2, after: hasty},
	{name: "one unit more after a part of a window", scope: "log", calls: 1,
		before: func(d *driver.Demand, state []byte, now int64) []byte {
			if res := ask(*d, state, now); !res.Allowed && res.RetryAfter < micros(window) {
				d.Op = driver.OpForce
			}
			return state
		}},
	{name: "a peek that writes", scope: "log", calls: 2,
		after: func(d driver.Demand, state []byte, _ int64, a *answer) {
			if d.Op == driver.OpPeek && len(state) > 0 {
				a.next, a.keep = append(state, 0), time.Hour
			}
		}},
	{name: "a reset that keeps the log", scope: "log", calls: 2,
		after: func(d driver.Demand, state []byte, _ int64, a *answer) {
			if d.Op == driver.OpReset {
				a.next, a.keep = state, 0
			}
		}},
	{name: "a part that is the least", scope: "log", calls: 1,
		before: func(d *driver.Demand, state []byte, _ int64) []byte {
			if d.Least > 0 {
				d.N, d.Least = d.Least, 0
			}
			return state
		}},
	{name: "a state that is forgotten early", scope: "log", calls: 2,
		after: func(_ driver.Demand, _ []byte, _ int64, a *answer) { a.keep /= 4 }},
	{name: "a clock that was set back frees units", scope: "log, clock set back", calls: 2,
		before: func(d *driver.Demand, state []byte, now int64) []byte {
			if ask(*d, state, now).ResetAfter > micros(window) {
				return nil
			}
			return state
		}},
	{name: "a force that does not count at its time", scope: "log", calls: 2,
		before: func(d *driver.Demand, state []byte, _ int64) []byte {
			d.At = 0
			return state
		}},
	{name: "a hold that counts beside itself", scope: "budget, every call", calls: 1,
		after: func(d driver.Demand, state []byte, now int64, a *answer) {
			beside := driver.Demand{Algorithm: d.Algorithm, Op: driver.OpPeek, N: d.N}
			if d.Op == driver.OpHold && d.N > 0 && d.Least == 0 {
				if res := ask(beside, state, now); !res.Allowed {
					*a = answer{state, 0, res}
				}
			}
		}},
	{name: "a hold of fewer units that takes some away", scope: "budget, every call", calls: 2,
		before: func(d *driver.Demand, state []byte, now int64) []byte {
			if d.Op == driver.OpHold && d.N > 0 {
				return settled(*d, state, now)
			}
			return state
		}},
	{name: "a settlement that counts twice", scope: "budget", calls: 1,
		before: func(d *driver.Demand, state []byte, now int64) []byte {
			if d.Op == driver.OpSettle && d.N > 0 && ask(*d, state, now).Units == 0 {
				d.Op = driver.OpForce
			}
			return state
		}},
	{name: "a settlement that counts when it is made", scope: "budget, every call", calls: 3,
		before: func(d *driver.Demand, state []byte, now int64) []byte {
			if d.Op == driver.OpSettle && ask(*d, state, now).Units > 0 {
				state = settled(*d, state, now)
				d.Op, d.ID = driver.OpForce, 0
			}
			return state
		}},
	{name: "a late settlement that does not count", scope: "budget", calls: 2,
		before: func(d *driver.Demand, state []byte, now int64) []byte {
			if d.Op == driver.OpSettle && !open(*d, state, now) {
				d.N = 0
			}
			return state
		}},
	{name: "a late renewal that does not hold", scope: "in flight", calls: 2,
		before: func(d *driver.Demand, state []byte, now int64) []byte {
			if d.Op == driver.OpHold && d.N == 0 && !open(*d, state, now) {
				d.ID = 1
			}
			return state
		}},
	{name: "a renewal that places a hold", scope: "in flight", calls: 1,
		before: func(d *driver.Demand, state []byte, _ int64) []byte {
			if d.Op == driver.OpHold {
				d.N = max(d.N, 1)
			}
			return state
		}},
	{name: "a renewal that shortens a hold", scope: "in flight, every call", calls: 2,
		before: func(d *driver.Demand, state []byte, now int64) []byte {
			if d.Op == driver.OpHold && d.N == 0 {
				if d.N = ask(*d, state, now).Units; d.N > 0 {
					return settled(*d, state, now)
				}
			}
			return state
		}},
	{name: "a hold that times out early", scope: "in flight", calls: 1,
		before: func(d *driver.Demand, state []byte, _ int64) []byte {
			if d.Op == driver.OpHold && d.HoldTimeout == 0 {
				d.HoldTimeout = micros(tick)
			}
			return state
		}},
	{name: "limits that are charged one by one", scope: "together, every call", calls: 2,
		store: func(s *store) { s.hasty = true }},
	{name: "a part for each limit", scope: "together, every call", calls: 1,
		store: func(s *store) {
			s.grant = func(ds []driver.Demand, _ []driver.Result) []driver.Demand { return ds }
		}},
	{name: "a call of several that knows no calls in flight", scope: "together, every call",
		calls: 2,
		store: func(s *store) {
			s.peek = func(d driver.Demand, state []byte, now int64) (
				[]byte, time.Duration, driver.Result,
			) {
				next, keep, res := d.Peek(state, now)
				if h, ok := d.Algorithm.(driver.Holder); ok && h.InFlight() {
					res.Allowed = true
				}
				return next, keep, res
			}
		}},
	{name: "a bucket with a RetryAfter that is 1µs too short", scope: "bucket", calls: 2,
		after: hasty},
	{name: "a fixed window that is kept too short", scope: "fixed", calls: 2,
		after: func(_ driver.Demand, _ []byte, _ int64, a *answer) {
			a.keep = min(a.keep, micros(tick))
		}},
}

// windowOf returns a fault: a window that is longer.
func windowOf(longer int64) func(d *driver.Demand, state []byte, _ int64) []byte {
	return func(d *driver.Demand, state []byte, _ int64) []byte {
		l := d.Algorithm.Limit()
		l.Window += micros(longer)
		d.Algorithm = algorithm.SlidingLog(l)
		return state
	}
}

func hasty(_ driver.Demand, _ []byte, _ int64, a *answer) {
	a.res.RetryAfter = max(0, a.res.RetryAfter-time.Microsecond)
}

// ask returns what d would get.
func ask(d driver.Demand, state []byte, now int64) driver.Result {
	_, _, res := d.Step(bytes.Clone(state), now)
	return res
}

// settled returns a state without the hold of d.
func settled(d driver.Demand, state []byte, now int64) []byte {
	d.Op, d.N, d.Least, d.HoldTimeout = driver.OpSettle, 0, 0, 0
	if next, keep, _ := d.Step(bytes.Clone(state), now); keep > 0 {
		return next
	}
	return state
}

// open reports whether the hold of d counts.
func open(d driver.Demand, state []byte, now int64) bool {
	peek := driver.Demand{Algorithm: d.Algorithm, Op: driver.OpPeek, N: 1}
	return ask(peek, state, now).Remaining < ask(peek, settled(d, state, now), now).Remaining
}

func (f *fault) plant(s *store) {
	if f.store != nil {
		f.store(s)
		return
	}
	s.step = func(d driver.Demand, state []byte, now int64) (
		[]byte, time.Duration, driver.Result,
	) {
		kept := state
		if f.before != nil {
			kept = f.before(&d, state, now)
		}
		var a answer
		a.next, a.keep, a.res = d.Step(bytes.Clone(kept), now)
		if f.after != nil {
			f.after(d, state, now, &a)
		}
		return a.next, a.keep, a.res
	}
}

// TestFaults plants faults. Each must be found by the shortest sequence that shows it.
func TestFaults(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			found, least := "", mostCalls+1
			for most := int64(1); most <= 3; most++ {
				s := scopes(most)[f.scope]
				s.store = newStore()
				f.plant(s.store)
				problem, _, _ := s.explore()
				if calls := strings.Count(problem, "\n") - 1; problem != "" && calls < least {
					found, least = problem, calls
				}
			}
			t.Log(found)
			if least != f.calls {
				t.Errorf("found by %d calls, want %d", least, f.calls)
			}
		})
	}
}
