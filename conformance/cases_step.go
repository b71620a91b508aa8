package conformance

import (
	"slices"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

const (
	saysRefusal = "A refusal is a Result, never an error."
)

var stepRules = []rule{
	{name: "step/results", says: saysStep, check: differential{}.check},
	{name: "step/state", says: saysKeep, check: differential{wrap: beHostile}.check},
	{name: "step/peeks-leave-no-trace", says: saysWrites, check: checkPeeksLeaveNoTrace},
	{name: "step/refusals-leave-no-trace", says: saysWrites, check: checkRefusalsLeaveNoTrace},
	{name: "step/refusals-are-results", says: saysRefusal, check: checkRefusalsAreResults},
	{name: "step/two-clients", says: saysShared, needs: second,
		check: differential{store: alternate}.check},
	{name: "step/scripts-dropped", says: saysStep, needs: dropScripts,
		check: differential{every: drop}.check},
}

// alternate returns the two clients in turn, each after it has received what the other did.
func alternate(e *env, i int) driver.Store {
	e.settle()
	return either(e, i)
}

// settle waits until each client has received what the other did.
func (e *env) settle() {
	if e.harness.Settle == nil {
		return
	}
	if err := e.harness.Settle(); err != nil {
		e.fatalf("Settle: %w", err)
	}
}

// either returns the two clients in turn, without settle.
func either(e *env, i int) driver.Store {
	if i%2 == 0 {
		return e.store
	}
	return e.second
}

// dropNow is the number of the operation, in every twenty, before which drop drops.
const dropNow = 10

// drop makes the server forget its scripts now and then.
func drop(e *env, i int) {
	if i%20 == dropNow {
		if err := e.harness.DropScripts(); err != nil {
			e.fatalf("DropScripts: %w", err)
		}
	}
}

// unchanged runs f, which may not change the state of key under a.
func (e *env) unchanged(key string, a driver.Algorithm, f func(spied)) {
	watched := spy(a)
	now := e.clock.now()
	before := e.do(peek(key, a, 1))
	f(watched)
	e.clock.set(now)
	if after := e.do(peek(key, watched, 1)); after != before {
		e.fatalf("the state changed: a peek returned %+v, and %+v before", after, before)
	}
	if watched.seen.changed(0) {
		e.fatalf("the stored state changed: Step received different bytes")
	}
}

func checkPeeksLeaveNoTrace(e *env) {
	key, a := e.key(), e.alg(5)
	peeks := func(w spied) {
		for i := range 30 {
			e.do(peek(key, w, int64(i%5)+1))
			e.clock.add(window / 31)
		}
	}
	e.unchanged(key, a, peeks)
	e.admit(take(key, a, 3))
	e.clock.add(time.Second)
	e.admit(take(key, a, 1))
	e.unchanged(key, a, peeks)
	e.wantLeft(key, a, 1, "peeks")
}

func checkRefusalsLeaveNoTrace(e *env) {
	key, a := e.key(), e.alg(5)
	first := e.clock.now()
	e.admit(take(key, a, 2))
	e.clock.add(time.Second)
	e.admit(take(key, a, 3))
	var refused driver.Result
	e.unchanged(key, a, func(w spied) {
		refused = e.refuse(take(key, w, 2))
		for i := range 30 {
			e.clock.add((refused.RetryAfter - time.Microsecond) / 30)
			e.refuse(take(key, w, int64(i%5)+1))
		}
	})
	e.clock.after(first, window-time.Microsecond)
	e.refuse(take(key, a, 2))
	e.clock.after(first, window)
	e.admit(take(key, a, 2))
	e.refuse(take(key, a, 1))
}

func checkRefusalsAreResults(e *env) {
	key, a := e.key(), e.alg(3)
	e.admit(take(key, a, 3))
	for _, d := range []driver.Demand{take(key, a, 1), take(key, a, 3), peek(key, a, 2)} {
		res, err := e.store.Take(e.ctx, d)
		if err != nil || res.Allowed || res.Limit.Max != 3 || res.Remaining != 0 {
			e.fatalf("%v of %d beyond the limit returned %+v, %v", d.Op, d.N, res, err)
		}
	}
}

// algorithmRules are about the algorithm alone, without a store.
var algorithmRules = []rule{
	{name: "algorithm/pure",
		says: "Step is pure: no clock, no I/O, no randomness. It is total: whatever the state " +
			"and the demand, it does not panic. " +
			"keep == 0 means: write nothing; state is then byte for byte what it was. " +
			"Step may write into state only if it returns keep > 0: then next may reuse its " +
			"array, and the store must not use state again.",
		check: checkPure},
	{name: "algorithm/values",
		says:  "Values are immutable, comparable with == and hold their own parameters.",
		check: checkValues},
}

func checkPure(e *env) {
	now := start
	states := [][]byte{nil, {}, {0}, make([]byte, 24), make([]byte, 36), make([]byte, 37)}
	for range e.scale(2000) {
		newAlgorithm := pick(e.rand, e.algorithms...)
		d := take("k",
			newAlgorithm(driver.Limit{Max: pick(e.rand, 1, 5, driver.MaxUnits),
				Window: pick(e.rand, time.Minute, driver.MaxWindow)}),
			pick(e.rand, 1, 4, driver.MaxUnits))
		d.Op = driver.Op(e.rand.IntN(6))
		d.At = now - e.rand.Int64N(3)
		d.ID = uint64(e.rand.IntN(4))
		now = pick(e.rand, now, now, now+1, now+e.rand.Int64N(1e9), max(0, now-e.rand.Int64N(1e10)),
			0, start)
		state := slices.Clone(pick(e.rand, states...))
		if len(state) > 0 && e.rand.IntN(3) == 0 {
			state[e.rand.IntN(len(state))] ^= byte(1 << e.rand.IntN(8))
		}
		given := slices.Clone(state)
		next, keep, res := d.Step(given, now)
		if keep <= 0 && !slices.Equal(given, state) {
			e.fatalf("Step returned keep %d for %v of %d and changed the state", keep, d.Op, d.N)
		}
		next2, keep2, res2 := d.Step(slices.Clone(state), now)
		if res != res2 || keep != keep2 || keep > 0 && !slices.Equal(next, next2) {
			e.fatalf("Step returned %+v and then %+v for the same arguments", res, res2)
		}
		if keep > 0 {
			states = append(states, slices.Clone(next))
			states = states[max(0, len(states)-50):]
		}
	}
}

func checkValues(e *env) {
	for _, newAlgorithm := range e.algorithms {
		limit := driver.Limit{Name: "limit", Max: 5, Window: window}
		otherLimit := limit
		otherLimit.Name = "other"
		a, b, other := newAlgorithm(limit), newAlgorithm(limit), newAlgorithm(otherLimit)
		if a != b {
			e.fatalf("values of %q with the same limit are not equal", a.Name())
		}
		if a == other {
			e.fatalf("values of %q with different limits are equal", a.Name())
		}
		if got := a.Limit(); got != limit {
			e.fatalf("Limit is %+v, want %+v", got, limit)
		}
		if err := a.Validate(); err != nil {
			e.fatalf("Validate of %v: %w", limit, err)
		}
	}
}
