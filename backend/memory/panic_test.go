package memorystore

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// panicky counts units for ever in a state of 8 bytes, which it changes in place before it may
// panic. Values with the same plan are equal.
type panicky struct {
	driver.Algorithm
	plan *panicPlan
}

// panicPlan says how many calls of a method panic from now on.
type panicPlan struct{ name, limit, take, peek atomic.Int64 }

var errPlanned = errors.New("a planned panic")

func due(calls *atomic.Int64) {
	if calls.Add(-1) >= 0 {
		panic(errPlanned)
	}
	calls.Add(1)
}

func (a panicky) Name() string {
	due(&a.plan.name)
	return "panicky"
}

func (a panicky) Limit() driver.Limit {
	due(&a.plan.limit)
	return a.Algorithm.Limit()
}

func (a panicky) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	limit, used := a.Algorithm.Limit(), int64(0)
	if len(state) == 8 {
		used = int64(binary.BigEndian.Uint64(state))
	}
	res := driver.Result{Limit: limit, Remaining: limit.Max - used}
	res.Allowed = d.N <= res.Remaining
	if len(state) != 8 {
		state = make([]byte, 8)
	}
	binary.BigEndian.PutUint64(state, uint64(used+d.N))
	if d.Op == driver.OpPeek {
		due(&a.plan.peek)
	} else {
		due(&a.plan.take)
	}
	if d.Op == driver.OpPeek || !res.Allowed {
		binary.BigEndian.PutUint64(state, uint64(used))
		return nil, 0, res
	}
	res.Remaining -= d.N
	return state, limit.Window, res
}

func newPanicky(name string) panicky {
	return panicky{algorithm.SlidingLog(driver.PerMinute(name, 3)), new(panicPlan)}
}

// panics calls f and reports whether it panicked as planned.
func panics(t testing.TB, f func()) (panicked bool) {
	t.Helper()
	defer func() {
		if v := recover(); v != nil {
			if v != errPlanned {
				t.Errorf("panic: %v", v)
			}
			panicked = true
		}
	}()
	f()
	return false
}

// TestPanicLeavesNothing: after a call in which a method of an algorithm has panicked, the store is
// as if the call had not been made, whichever call panics, in single demands and in groups, on keys
// with a state and without. One state is all that the store has room for, so room that is not given
// back is missed.
func TestPanicLeavesNothing(t *testing.T) {
	const times = 5
	for method, calls := range map[string]func(*panicPlan) *atomic.Int64{
		"Name":          func(p *panicPlan) *atomic.Int64 { return &p.name },
		"Limit":         func(p *panicPlan) *atomic.Int64 { return &p.limit },
		"Step of takes": func(p *panicPlan) *atomic.Int64 { return &p.take },
		"Step of peeks": func(p *panicPlan) *atomic.Int64 { return &p.peek },
	} {
		for _, together := range []bool{false, true} {
			for _, used := range []int64{0, 1} {
				s := open(t, &Options{MaxKeys: 1, Now: newClock().now})
				a := newPanicky("a")
				if used > 0 {
					must(t, s, driver.Demand{Key: "k", Algorithm: a, N: used}, true)
				}
				do := func(op driver.Op) (driver.Result, error) {
					d := driver.Demand{Key: "k", Algorithm: a, Op: op, N: 1}
					if !together {
						return s.Take(t.Context(), d)
					}
					out := make([]driver.Result, 1)
					err := s.TakeAll(t.Context(), []driver.Demand{d}, out)
					return out[0], err
				}
				ask := func() (driver.Result, error) {
					if res, err := do(driver.OpPeek); err != nil {
						return res, err
					}
					return do(driver.OpTake)
				}
				calls(a.plan).Store(times)
				for n := range times {
					for i := range s.shards { // so that all methods are called
						s.shards[i].last, s.shards[i].others = described{}, [3]described{}
					}
					if !panics(t, func() { _, _ = ask() }) {
						t.Fatalf("%s, together %v: call %d did not panic", method, together, n)
					}
					if keys := int64(s.Stats().Keys); keys != used {
						t.Fatalf("%s, together %v: %d states, want %d", method, together, keys,
							used)
					}
				}
				res, err := ask()
				if err != nil || !res.Allowed || res.Remaining != 3-used-1 {
					t.Errorf("%s, together %v, %d used before: %+v, %v", method, together, used,
						res, err)
				}
			}
		}
	}
}

// TestPanicInGroup: a panic of one demand of a group leaves no trace of the others, in whatever
// place it is, on keys with a state and without, and also of algorithms of this module.
func TestPanicInGroup(t *testing.T) {
	for place := range 4 {
		for _, used := range []int64{0, 1} {
			s := open(t, &Options{MaxKeys: 4, Now: newClock().now})
			bad, good := newPanicky("bad"), newPanicky("good")
			bucket := algorithm.GCRA(driver.PerMinute("bucket", 3))
			ds := []driver.Demand{{Key: "a", Algorithm: perMinute, N: 1},
				{Key: "b", Algorithm: good, N: 1}, {Key: "c", Algorithm: bucket, N: 1},
				{Key: "d", Algorithm: bad, N: 1}}
			ds[place], ds[3] = ds[3], ds[place]
			if used > 0 {
				for _, d := range ds {
					must(t, s, d, true)
				}
			}
			bad.plan.take.Store(1)
			out := make([]driver.Result, len(ds))
			if !panics(t, func() { _ = s.TakeAll(t.Context(), ds, out) }) {
				t.Fatal("no panic")
			}
			for _, d := range ds {
				d.Op = driver.OpPeek
				if res := must(t, s, d, true); res.Remaining != 3-used {
					t.Errorf("place %d: %q has %d units after the panic, want %d", place,
						d.Key, res.Remaining, 3-used)
				}
			}
			if keys := int64(s.Stats().Keys); keys != 4*used {
				t.Errorf("place %d: %d states, want %d", place, keys, 4*used)
			}
			if err := s.TakeAll(t.Context(), ds, out); err != nil || !out[0].Allowed {
				t.Errorf("place %d: %+v, %v", place, out, err)
			}
		}
	}
}

// TestPanicWhileOthersTake: many callers share a store with room for one state, and a quarter of
// all steps panic. The limit admits exactly its units.
func TestPanicWhileOthersTake(t *testing.T) {
	const workers, each = 16, 200
	s := open(t, &Options{MaxKeys: 1, Now: newClock().now})
	a := newPanicky("a")
	var admitted, panicked atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				if (w+i)%4 == 0 {
					a.plan.take.Add(1)
				}
				d := driver.Demand{Key: "k", Algorithm: a, N: 1}
				if panics(t, func() {
					if res, err := s.Take(t.Context(), d); err != nil {
						t.Error(err)
					} else if res.Allowed {
						admitted.Add(1)
					}
				}) {
					panicked.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if admitted.Load() != 3 || panicked.Load() == 0 || s.Stats().Keys != 1 {
		t.Errorf("%d admitted, %d panics, %d states; want 3, some and 1", admitted.Load(),
			panicked.Load(), s.Stats().Keys)
	}
}

// TestPanicInHold: a hold or settlement whose algorithm inside panics leaves nothing.
func TestPanicInHold(t *testing.T) {
	s := open(t, &Options{MaxKeys: 1, Now: newClock().now})
	a := newPanicky("a")
	d := driver.Demand{Key: "k", Algorithm: algorithm.Budget(a), Op: driver.OpHold, ID: 1, N: 1}
	a.plan.peek.Store(1)
	if !panics(t, func() { _, _ = s.Take(t.Context(), d) }) {
		t.Fatal("the peek of a hold did not panic")
	}
	if keys := s.Stats().Keys; keys != 0 {
		t.Fatalf("%d states after a hold that panicked", keys)
	}
	must(t, s, driver.Demand{Key: "k", Algorithm: d.Algorithm, N: 1}, true)
	must(t, s, d, true)
	end := d
	end.Op = driver.OpSettle
	a.plan.take.Store(1)
	if !panics(t, func() { _, _ = s.Take(t.Context(), end) }) {
		t.Fatal("the force of a settlement did not panic")
	}
	if res := must(t, s, end, true); res.Units != 1 || res.Remaining != 1 {
		t.Errorf("a settlement after one that panicked: %+v", res)
	}
}
