package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// writeRules count what the store writes. Without a count they are skipped; other cases then check
// only what later steps and peeks return.
var writeRules = []rule{
	{name: "step/peeks-write-nothing", says: saysWrites, needs: counts,
		check: counting(checkPeeksWriteNothing)},
	{name: "step/refusals-write-nothing", says: saysWrites, needs: counts,
		check: counting(checkRefusalsWriteNothing)},
	{name: "step/nothing-to-change-writes-nothing", says: saysWrites, needs: counts,
		check: counting(checkVoidWritesNothing)},
	{name: "takeall/refusals-write-nothing", says: saysWrites + " " + saysAtomic, needs: counts,
		check: counting(func(e *env) { checkRefusedTakeAllWritesNothing(e, (*env).limits) })},
	{name: "takeall-keys/refusals-write-nothing", says: saysWrites + " " + saysAtomic,
		needs: counts,
		check: counting(func(e *env) { checkRefusedTakeAllWritesNothing(e, (*env).spread) })},
	{name: "errors/invalid-writes-nothing", says: saysCheck, needs: counts,
		check: counting(checkInvalidWritesNothing)},
	{name: "errors/corrupt-state-writes-nothing", says: saysCorrupt, needs: counts,
		check: counting(checkCorruptWritesNothing)},
}

// writes returns how many writes there were.
func (e *env) writes() int64 {
	n, err := e.harness.Writes()
	if err != nil {
		e.fatalf("Writes: %w", err)
	}
	return n
}

// othersFor is how long the suite looks for writes of other programs.
const othersFor = 500 * time.Millisecond

var errWrote = errors.New("nothing may be written here, and other programs did not write as much " +
	"in a longer time")

// unwritten runs f, which may not write. If it seems to, other programs may have done it: then they
// write as much again soon.
func (e *env) unwritten(what string, f func()) {
	begin, before := time.Now(), e.writes()
	f()
	n, enough := e.writes()-before, 10*time.Since(begin)+othersFor
	begin, before = time.Now(), before+n
	for n > e.writes()-before {
		if time.Since(begin) > enough {
			e.fatalf("%s wrote %d times: %w", what, n, errWrote)
		}
		time.Sleep(time.Millisecond)
	}
}

// counting returns a check that counts writes and fails only if it does so three times. Another
// program that writes now and then fails it once.
func counting(check func(*env)) func(*env) {
	return func(e *env) {
		for range 2 {
			if e.countsNone(check) {
				return
			}
		}
		check(e)
	}
}

// countsNone runs check and reports whether it found no write.
func (e *env) countsNone(check func(*env)) (ok bool) {
	defer func() {
		if v := recover(); v != nil {
			if failure, is := v.(violation); !is || !errors.Is(failure, errWrote) {
				panic(v)
			}
		}
	}()
	check(e)
	return true
}

func checkPeeksWriteNothing(e *env) {
	peeks := func(key string, a driver.Algorithm) {
		for i := range 5 {
			e.do(peek(key, a, int64(i)+1))
			e.clock.add(time.Second)
		}
	}
	e.unwritten("peeks at keys without a state", func() {
		for range 20 {
			peeks(e.key(), e.alg(5))
		}
	})
	key, a := e.key(), e.alg(5)
	e.admit(take(key, a, 3))
	e.unwritten("peeks at a state", func() { peeks(key, a) })
	e.admit(take(key, a, 2))
	e.unwritten("peeks that are refused", func() { peeks(key, a) })
	e.clock.add(window)
	e.unwritten("peeks at a state that has run out", func() { peeks(key, a) })
}

func checkRefusalsWriteNothing(e *env) {
	key, a := e.key(), e.alg(5)
	e.admit(take(key, a, 2))
	e.clock.add(time.Second)
	e.admit(take(key, a, 3))
	e.unwritten("refused takes", func() {
		for i := range 30 {
			e.refuse(take(key, a, int64(i%5)+1))
			e.clock.add(time.Second)
		}
	})
	e.refuse(take(key, e.alg(3), 1))
	e.unwritten("takes that are refused under another limit of that name",
		func() { e.refuse(take(key, e.alg(3), 1)) })
}

// checkVoidWritesNothing resets states that are not there, and renews and settles holds that are
// not there. If the step returns keep == 0, the store writes nothing.
func checkVoidWritesNothing(e *env) {
	key, a := e.key(), e.alg(5)
	held := algorithm.Budget(a)
	void := func(what string, state []byte, ds ...driver.Demand) {
		for _, d := range ds {
			if _, keep, _ := d.Step(bytes.Clone(state), e.clock.now()); keep == 0 {
				e.unwritten(fmt.Sprintf("a %v %s", d.Op, what), func() { e.admit(d) })
			}
		}
	}
	renew, end := hold(key, held, 1, 0), settle(key, held, 1, 1)
	void("without a state", nil, reset(key, a), renew, end)
	state, _, _ := take(key, held, 1).Step(nil, e.clock.now())
	e.admit(take(key, held, 1))
	void("without a hold", state, renew, end)
}

func checkRefusedTakeAllWritesNothing(e *env, demands func(*env, int) []driver.Demand) {
	for full := range 3 {
		ds := demands(e, 3)
		e.admit(force(ds[full].Key, ds[full].Algorithm, 100))
		refused := func() {
			for range 3 {
				if allowed(e.all(ds...)) {
					e.fatalf("a TakeAll was admitted with demand %d beyond its limit", full)
				}
			}
		}
		e.unwritten("a refused TakeAll on states of which only one exists", refused)
		for _, d := range ds {
			e.admit(force(d.Key, d.Algorithm, 1))
		}
		e.unwritten("a refused TakeAll on states that exist", refused)
	}
}

func checkInvalidWritesNothing(e *env) {
	for _, d := range e.invalid(e.key()) {
		e.unwritten(fmt.Sprintf("an invalid %v of %d", d.Op, d.N), func() {
			if _, err := e.store.Take(e.ctx, d); err == nil {
				e.fatalf("an invalid %v of %d was decided", d.Op, d.N)
			}
		})
	}
}

func checkCorruptWritesNothing(e *env) {
	key, a := e.key(), e.alg(5)
	e.admit(take(key, a, 2))
	e.vandalize(key, a)
	for _, d := range []driver.Demand{take(key, a, 1), peek(key, a, 1), force(key, a, 9),
		peek(key, a, 5)} {
		e.unwritten(fmt.Sprintf("a %v on a corrupt state", d.Op), func() {
			if _, err := e.store.Take(e.ctx, d); !errors.Is(err, driver.ErrCorruptState) {
				e.fatalf("a %v on a corrupt state returned the error %v, want "+
					"ErrCorruptState", d.Op, err)
			}
		})
	}
}
