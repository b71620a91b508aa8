package conformance

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// capped returns a bug: a key keeps at most that many records, and a further take leaves none.
func capped(records int) bugs {
	var mu sync.Mutex
	kept := make(map[string]int)
	return bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
		mu.Lock()
		defer mu.Unlock()
		if kept[d.Key]++; d.Op != driver.OpTake || kept[d.Key] <= records {
			return r.one(d)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.run(d, r.now(), driver.Demand.Step)
	}}
}

// sometimes returns a bug in every thousandth call of an operation that is admitted.
func sometimes(fault func(r *reference, d driver.Demand) step, op driver.Op) bugs {
	var calls atomic.Int64
	return bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
		if d.Op == op && r.admits(d) && calls.Add(1)%1000 == 0 {
			return fault(r, d)
		}
		return r.one(d)
	}}
}

// admits reports whether r would admit d now.
func (r *reference) admits(d driver.Demand) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.run(d, r.now(), driver.Demand.Peek).res.Allowed
}

// sometimesSettled returns a bug in every thousandth settlement of a TakeAll: it is answered as if
// it had recorded its units.
func sometimesSettled() bugs {
	var settlements atomic.Int64
	return rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
		made := slices.Clone(ds)
		for i := range made {
			if d := &made[i]; d.Op == driver.OpSettle && settlements.Add(1)%1000 == 0 {
				d.N = 0
			}
		}
		err := r.several(made, out)
		for i, d := range ds {
			if d.Op == driver.OpSettle && err == nil {
				out[i].Units = d.N
			}
		}
		return err
	})
}

var volumeFaults = []fault{
	{name: "300 records at most", always: true, rules: "op/many-records", bugs: capped(300)},
	{name: "1,000 records at most", always: true, rules: "op/many-records", bugs: capped(1000)},
	{name: "states cut at 64 KiB", always: true, rules: "step/large-state",
		bugs: bugs{stepped: func(_ *reference, _ driver.Demand, _ []byte, s *step) {
			s.next = s.next[:min(len(s.next), 1<<16-1)]
		}}},
	{name: "states above 1 MiB refused", always: true, rules: "step/large-state",
		bugs: bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
			if s := r.one(d); len(s.next) <= 1<<20 {
				return s
			}
			return step{err: driver.ErrUnavailable}
		}}},
	{name: "one record in a thousand lost", always: true, rules: "concurrency/many-calls",
		bugs: sometimes(func(r *reference, d driver.Demand) step {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.run(d, r.now(), driver.Demand.Step)
		}, driver.OpTake)},
	{name: "one take in a thousand recorded twice", always: true, rules: "concurrency/many-calls",
		bugs: sometimes(func(r *reference, d driver.Demand) step {
			r.one(d)
			return r.one(d)
		}, driver.OpTake)},
	{name: "one settlement in a thousand records nothing", always: true,
		rules: "concurrency/many-calls",
		bugs: sometimes(func(r *reference, d driver.Demand) step {
			n := d.N
			d.N = 0
			s := r.one(d)
			s.res.Units = n
			return s
		}, driver.OpSettle)},
	{name: "one settlement in a thousand keeps the hold", always: true,
		rules: "concurrency/many-calls",
		bugs: sometimes(func(r *reference, d driver.Demand) step {
			s := r.one(d)
			d.Op, d.N = driver.OpHold, 1
			r.one(d)
			return s
		}, driver.OpSettle)},
	{name: "one settlement of a TakeAll in a thousand records nothing", always: true,
		rules: "concurrency/many-calls", bugs: sometimesSettled()},
	{name: "one peek in a thousand takes", always: true, rules: "concurrency/many-calls",
		bugs: sometimes(func(r *reference, d driver.Demand) step {
			d.Op = driver.OpTake
			return r.one(d)
		}, driver.OpPeek)},
	{name: "another clock after 10,000 readings", always: true, rules: "concurrency/many-calls",
		bugs: bugs{clock: func(r *reference, now int64) int64 {
			if r.last++; r.last > 10_000 {
				now = time.Now().UnixMicro()
			}
			return now
		}}},
	{name: "another clock after 1,000 readings", always: true,
		rules: "concurrency/many-calls op/many-records",
		bugs: bugs{clock: func(r *reference, now int64) int64 {
			if r.last++; r.last > 1000 {
				now = time.Now().UnixMicro()
			}
			return now
		}}},
}

// ofWindow returns a bug that changes the Window of limits.
func ofWindow(change func(time.Duration) time.Duration) bugs {
	return asks(func(d *driver.Demand) {
		if naive, ok := naiveOf(d.Algorithm); ok {
			naive.Of.Window = change(naive.Of.Window)
			d.Algorithm = naive
		}
	})
}

var windowFaults = []fault{
	{name: "windows of 10 ms at least", always: true, rules: "window/short",
		bugs: ofWindow(func(w time.Duration) time.Duration { return max(w, 10*time.Millisecond) })},
	{name: "windows in whole milliseconds", always: true, rules: "window/short window/long",
		bugs: ofWindow(func(w time.Duration) time.Duration {
			return w.Truncate(time.Millisecond)
		})},
	{name: "windows in milliseconds of 31 bits", always: true, rules: "window/long",
		bugs: ofWindow(func(w time.Duration) time.Duration {
			return min(w, (1<<31-1)*time.Millisecond)
		})},
	{name: "windows in milliseconds of 32 bits", always: true, rules: "window/long",
		bugs: ofWindow(func(w time.Duration) time.Duration {
			return max(w%(1<<32*time.Millisecond), time.Millisecond)
		})},
	{name: "remaining in 32 bits", always: true, rules: "result/large-numbers",
		bugs: answers(func(_ driver.Demand, res *driver.Result) {
			res.Remaining = int64(int32(res.Remaining))
		})},
	{name: "remaining as a number of 24 bits and an exponent", always: true,
		rules: "result/large-numbers",
		bugs: answers(func(_ driver.Demand, res *driver.Result) {
			res.Remaining = int64(float32(res.Remaining))
		})},
	{name: "units of 32 bits", always: true, rules: "result/large-numbers",
		bugs: asks(func(d *driver.Demand) { d.N &= 1<<32 - 1 })},
	{name: "forced units up to Max", always: true, rules: "op/force",
		bugs: asks(func(d *driver.Demand) {
			if d.Op == driver.OpForce {
				d.N = min(d.N, d.Algorithm.Limit().Max)
			}
		})},
	{name: "time to live cut to milliseconds",
		rules: "expiry/not-early step/results",
		bugs: bugs{until: func(_ cell, now int64, keep time.Duration) int64 {
			return now + keep.Milliseconds()*1000
		}}},
	{name: "end cut to milliseconds", always: true,
		rules: "expiry/not-early step/results takeall/results",
		bugs: bugs{until: func(_ cell, now int64, keep time.Duration) int64 {
			return (now + keep.Microseconds()) / 1000 * 1000
		}}},
	{name: "time to live of limits with holds cut to milliseconds", always: true,
		rules: "expiry/remembered",
		bugs: bugs{stepped: func(_ *reference, d driver.Demand, _ []byte, s *step) {
			if _, ok := d.Algorithm.(driver.Holder); ok && s.keep > 0 {
				s.keep = max(time.Microsecond, s.keep.Truncate(time.Millisecond))
			}
		}}},
	{name: "time to live cut to seconds", always: true,
		rules: "expiry/not-early expiry/real-fractions",
		bugs: bugs{until: func(_ cell, now int64, keep time.Duration) int64 {
			return now + keep.Truncate(time.Second).Microseconds()
		}}},
	{name: "time to live in milliseconds of the clock", rules: "expiry/real-fractions",
		bugs: bugs{until: func(_ cell, now int64, keep time.Duration) int64 {
			return now/1000*1000 + keep.Milliseconds()*1000
		}}},
}

var writeFaults = []fault{
	{name: "a row for every key that is asked for", always: true,
		rules: "step/peeks-write-nothing step/nothing-to-change-writes-nothing " +
			"takeall/refusals-write-nothing takeall-keys/refusals-write-nothing",
		bugs: bugs{put: func(r *reference, id identity, now int64, s step) {
			_, known := r.states[id]
			switch {
			case s.err == nil && s.keep > 0:
				r.write(id, now, s)
			case s.err == nil && !known:
				r.writes++
				r.states[id] = cell{nil, now + time.Hour.Microseconds()}
			}
		}}},
	{name: "a row written for every call", always: true,
		rules: "step/refusals-write-nothing step/peeks-write-nothing " +
			"errors/corrupt-state-writes-nothing",
		bugs: bugs{put: func(r *reference, id identity, now int64, s step) {
			r.writes++
			if s.err == nil && s.keep > 0 {
				r.write(id, now, s)
			}
		}}},
	{name: "calls counted before they are checked", always: true,
		rules: "errors/invalid-writes-nothing",
		bugs:  bugs{counted: true}},
}
