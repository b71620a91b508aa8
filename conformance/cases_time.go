package conformance

import (
	"slices"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/storeclock"
)

const (
	saysBack = "now is in microseconds since the Unix epoch on the store's clock, from 0 to the " +
		"year 2112, and may be earlier than in the step before. " +
		"For a peek or a refusal, Step returns keep > 0 only after the clock has stepped back by " +
		"more than a Window, or after the limit has changed."
	saysChange = "A state written under other parameters is accepted: limits change in " +
		"production, and a change takes effect at once."
)

var clockRules = []rule{
	{name: "clock/microseconds", says: saysClock, check: checkMicroseconds},
	{name: "clock/own", says: saysStep + " " + saysClock, needs: ownClock, check: checkOwnClock},
	{name: "clock/epoch", says: saysClock, needs: ownClock, check: checkEpoch},
	{name: "clock/shared", says: saysClock, needs: ownClock | second, check: checkSharedClock},
	{name: "clock/range", says: saysBack, check: checkClockRange},
	{name: "clock/back-within-window", says: saysBack, check: checkBackWithin},
	{name: "clock/back-up-to-window", says: saysBack, check: checkBackUpTo},
	{name: "clock/back-beyond-window", says: saysBack, check: checkBackBeyond},
	{name: "clock/forward", says: saysBack, check: checkForward},
}

func checkMicroseconds(e *env) {
	for i := range 60 {
		e.clock.add(time.Duration(e.rand.Int64N(3_000_000)) * time.Microsecond)
		limit := driver.Limit{Max: 5, Window: window + 321*time.Microsecond}
		d := take(e.key(), e.algorithms[i%len(e.algorithms)](limit), 1)
		_, _, want := d.Step(nil, e.clock.now())
		if got := e.do(d); !same(got, want) {
			e.fatalf("at %d a first take returned %+v, want %+v", e.clock.now(), got, want)
		}
	}
}

// checkOwnClock makes random calls on one key, each in a TakeAll that shows the clock. Each result
// must be that of Step at that instant.
func checkOwnClock(e *env) {
	if e.lacks("takeall") {
		return
	}
	key := e.key()
	a := e.algorithms[0](driver.Limit{Max: 5, Window: 50 * time.Millisecond})
	e.admit(storeclock.Show(key))
	var state []byte
	for i := range 400 {
		d := take(key, a, 1+e.rand.Int64N(3))
		d.Op = pick(e.rand, driver.OpTake, driver.OpTake, driver.OpTake, driver.OpPeek)
		if i%97 == 0 {
			d.Op = pick(e.rand, driver.OpReset, driver.OpForce)
		}
		out := e.all(d, storeclock.Show(key))
		got, now := out[0], storeclock.Of(out[1], time.Now().UnixMicro())
		if got.Source == driver.SourceCache {
			continue
		}
		step := d.Step
		if !got.Allowed {
			step = d.Peek
		}
		next, keep, want := step(slices.Clone(state), now)
		if !same(got, want) {
			e.fatalf("call %d, %v of %d at %d, returned %+v, want %+v", i, d.Op, d.N, now, got,
				want)
		}
		if keep > 0 {
			state = next
		}
		if i%10 == 0 {
			time.Sleep(time.Duration(e.rand.IntN(4000)) * time.Microsecond)
		}
	}
}

func checkEpoch(e *env) {
	const far = 30 * time.Minute // servers of tests may be off a little, but not by a time zone
	odd := false
	for range 50 {
		at := e.storeClock(e.store)
		if off := time.Since(time.UnixMicro(at)); off > far || off < -far {
			e.fatalf("the store's clock is at %d, which is not now in microseconds since the "+
				"Unix epoch, nor within %v of it", at, far)
		}
		odd = odd || at%1000 != 0
		time.Sleep(137 * time.Microsecond)
	}
	if !odd {
		e.fatalf("in 50 readings the store's clock stood at whole milliseconds")
	}
}

func checkSharedClock(e *env) {
	last := int64(0)
	for i := range 60 {
		now := e.storeClock(alternate(e, i))
		if now < last {
			e.fatalf("one client reads %d after another read %d", now, last)
		}
		last = now
	}
}

func checkClockRange(e *env) {
	for _, now := range []int64{1, 1000, window.Microseconds(), 1 << 32, 1 << 50, 1 << 51,
		farFuture} {
		e.clock.set(now)
		key, a := e.key(), e.alg(2)
		if shown := storeclock.Of(e.do(storeclock.Show(e.key())), now); shown != now {
			e.fatalf("at the time %d the store's clock is at %d", now, shown)
		}
		e.admit(take(key, a, 1))
		e.admit(take(key, a, 1))
		e.refuse(take(key, a, 1))
		e.clock.after(now, window-time.Microsecond)
		e.refuse(take(key, a, 1))
		e.clock.after(now, window)
		e.wantLeft(key, a, 2, "a window at the ends of the range")
	}
}

func checkBackWithin(e *env) {
	key, a := e.key(), e.alg(3)
	now := e.clock.now()
	e.admit(take(key, a, 3))
	e.clock.after(now, -window/2)
	res := e.refuse(take(key, a, 1))
	if want := window + window/2; res.RetryAfter != want || res.ResetAfter != want {
		e.fatalf("half a window before the only record, RetryAfter and ResetAfter are %v and %v, "+
			"want %v", res.RetryAfter, res.ResetAfter, want)
	}
	e.clock.after(now, window-time.Microsecond)
	e.refuse(take(key, a, 1))
	e.clock.after(now, window)
	e.admit(take(key, a, 3))

	e.clock.after(now, window/2)
	e.refuse(take(key, a, 1))
	e.clock.after(now, 2*window)
	e.admit(take(key, a, 3))
}

// checkBackUpTo steps the clock back after two takes with different stamps, under each algorithm.
// An algorithm that rounds stamps up rounds the first take by nothing and the second by the most.
func checkBackUpTo(e *env) {
	for _, newAlgorithm := range e.algorithms {
		a := newAlgorithm(driver.Limit{Max: 10, Window: window})
		for _, back := range []time.Duration{3 * time.Microsecond, window / 2,
			window - time.Microsecond, window} {
			rounded := e.admit(take(e.key(), a, 1)) // stays for a Window after its stamp
			e.clock.add(rounded.ResetAfter - window)
			key, begin := e.key(), e.clock.now()
			e.admit(take(key, a, 9))
			e.clock.add(time.Microsecond)
			e.admit(take(key, a, 1))
			for _, elapsed := range []time.Duration{time.Microsecond, window / 2,
				window - time.Microsecond} {
				e.clock.after(begin, elapsed-back)
				if res := e.do(take(key, a, 1)); res.Allowed {
					e.fatalf("%v after 9 of 10 units, with a clock that stepped back by %v, one "+
						"unit too many is admitted (%+v)",
						elapsed, back, a)
				}
			}
		}
	}
}

func checkBackBeyond(e *env) {
	for _, op := range []driver.Op{driver.OpTake, driver.OpPeek} {
		key, a, start := e.key(), e.alg(3), e.clock.now()
		e.admit(take(key, a, 3))
		e.clock.after(start, -3*window)
		d := take(key, a, 1)
		d.Op = op
		if res := e.refuse(d); res.RetryAfter != window || res.ResetAfter != window {
			e.fatalf("three windows before the only record, a %v has RetryAfter and ResetAfter "+
				"%v and %v, want the window", op, res.RetryAfter, res.ResetAfter)
		}
		e.clock.after(start, -2*window-time.Microsecond)
		if res := e.refuse(take(key, a, 1)); res.RetryAfter != time.Microsecond {
			e.fatalf("a window less a microsecond after the clock stepped back, RetryAfter is %v, "+
				"want 1µs", res.RetryAfter)
		}
		e.clock.after(start, -2*window)
		e.admit(take(key, a, 3))
	}
}

func checkForward(e *env) {
	key, a := e.key(), e.alg(3)
	first := e.clock.now()
	e.admit(take(key, a, 2))
	e.clock.add(window / 3)
	e.admit(take(key, a, 1))
	e.clock.add(window / 3)
	if res, want := e.refuse(take(key, a, 1)), window-2*(window/3); res.RetryAfter != want {
		e.fatalf("RetryAfter is %v after the clock stepped forward, want %v", res.RetryAfter, want)
	}
	e.clock.after(first, window)
	e.wantLeft(key, a, 2, "the clock stepped forward")
	e.clock.add(1000 * window)
	e.wantLeft(key, a, 3, "the clock stepped forward by many windows")
	e.admit(take(key, a, 3))
}

var expiryRules = []rule{
	{name: "expiry/not-early", says: saysExpiry, check: checkNotEarly},
	{name: "expiry/run-out", says: saysExpiry, check: checkRunOut},
	{name: "expiry/window-grows", says: saysChange + " " + saysExpiry, check: checkWindowGrows},
	{name: "expiry/real-time", says: saysExpiry, needs: ownClock, check: checkRealTime},
	{name: "expiry/real-window-grows",
		says: saysExpiry, needs: ownClock, check: checkRealWindowGrows},
}

func checkNotEarly(e *env) {
	// The second Window is a microsecond short of a whole number of every larger unit.
	for _, w := range []time.Duration{window, window + time.Minute - time.Microsecond} {
		e.keepsStates(e.algorithms[0](driver.Limit{Max: 3, Window: w}))
	}
}

// keepsStates peeks at states of a shortly before they run out, and after they were renewed.
func (e *env) keepsStates(a driver.Algorithm) {
	w := a.Limit().Window
	begin := e.clock.now()
	var keys []string
	for range 40 {
		keys = append(keys, e.key())
		e.admit(take(keys[len(keys)-1], a, 2))
	}
	e.clock.after(begin, w/2)
	for _, key := range keys[:30] {
		e.admit(take(key, a, 1))
	}
	for _, at := range []time.Duration{w / 4, w / 2, w * 3 / 4, w - time.Millisecond,
		w - time.Microsecond} {
		e.clock.after(begin, at)
		for i, key := range keys {
			if i < 30 {
				e.refuse(take(key, a, 1))
			} else {
				e.refuse(take(key, a, 2))
			}
		}
	}
	e.clock.after(begin, w/2)
	e.clock.add(w - time.Microsecond)
	for _, key := range keys[:30] {
		e.wantLeft(key, a, 2, "the first of two takes has left the window")
	}
}

func checkRunOut(e *env) {
	key, a := e.key(), e.algOf("l", 3)
	long := e.algorithms[0](driver.Limit{Name: "l", Max: 3, Window: 6 * window})
	begin := e.clock.now()
	e.admit(take(key, a, 3))
	e.clock.after(begin, window-time.Microsecond)
	e.refuse(take(key, long, 1))
	e.clock.after(begin, window)
	e.wantLeft(key, a, 3, "the state has run out")
	e.wantLeft(key, long, 3, "the state has run out under the parameters that wrote it")
	e.admit(take(key, long, 3))
	e.refuse(take(key, a, 1))
}

func checkWindowGrows(e *env) {
	key, a := e.key(), e.algOf("l", 3)
	long := e.algorithms[0](driver.Limit{Name: "l", Max: 3, Window: 6 * window})
	begin := e.clock.now()
	e.admit(take(key, a, 2))
	e.clock.after(begin, window/2)
	e.admit(take(key, long, 1))
	for _, at := range []time.Duration{window, 2 * window, 6*window - time.Microsecond} {
		e.clock.after(begin, at)
		e.refuse(take(key, long, 1))
	}
	e.clock.after(begin, 6*window)
	e.wantLeft(key, long, 2, "the first record has left the larger window")
}

// checkRealTime lets a state run out in real time. Then it takes all it can, with peeks and
// refusals in between. The first of these takes are spread over a window, so that it notices a
// state that is deleted with its first record.
func checkRealTime(e *env) {
	const short = 240_700 * time.Microsecond
	const most, windows = 3, 3
	const patience = 10 // windows in which the case makes calls, which a busy machine may delay
	begin := time.Now()
	spanned := func(d driver.Demand) (driver.Result, span) {
		called := time.Since(begin)
		res := e.do(d)
		return res, span{called, time.Since(begin)}
	}
	key := e.key()
	a := e.algorithms[0](driver.Limit{Max: most, Window: short})
	full, first := spanned(take(key, a, most))
	time.Sleep(full.ResetAfter - 30*time.Millisecond)
	for {
		if res, last := spanned(take(key, a, 1)); res.Allowed {
			if age := last.returned - first.called; age < short-clockError(short) {
				e.fatalf("what was admitted counts for %v, want %v", age, short)
			}
			break
		}
	}

	key = e.key()
	var admitted []span
	var asked, last time.Duration // in which it made calls, and the time of the last
	for {
		res, call := spanned(take(key, a, 1))
		if res.Allowed {
			admitted = append(admitted, call)
		}
		if last > 0 {
			asked += min(call.called-last, short)
		}
		last = call.called
		if apart := closest(admitted, most+1); apart < short-clockError(short) {
			e.fatalf("%d units were admitted within %v, the limit is %d in any %v", most+1,
				apart, most, short)
		}
		if len(admitted) >= most*(windows-1) && last-admitted[0].called > windows*short {
			break
		}
		if asked > patience*short {
			e.fatalf("only %d units were admitted in %d windows, each of which allows %d",
				len(admitted), patience, most)
		}
		e.do(peek(key, a, most))
		switch {
		case len(admitted) < most:
			time.Sleep(short / most)
		case res.RetryAfter > 5*time.Millisecond:
			time.Sleep(min(res.RetryAfter-4*time.Millisecond, 20*time.Millisecond))
		}
	}
}

func checkRealWindowGrows(e *env) {
	const short, long = 200 * time.Millisecond, 600 * time.Millisecond
	of := func(window time.Duration) driver.Algorithm {
		return e.algorithms[0](driver.Limit{Name: "l", Max: 2, Window: window})
	}
	var key string
	var begin time.Time
	for tries := 0; ; tries++ { // a busy machine may let the first state run out
		if tries == 10 {
			e.fatalf("ten times %v or more passed between two takes", short)
		}
		key, begin = e.key(), time.Now()
		e.admit(take(key, of(short), 1))
		time.Sleep(short / 4)
		e.admit(take(key, of(long), 1))
		if time.Since(begin) < short {
			break
		}
	}
	for {
		res := e.do(take(key, of(long), 1))
		if res.Allowed {
			if age := time.Since(begin); age < long-clockError(long) {
				e.fatalf("after %v the first of two admissions does not count in a window of %v",
					age, long)
			}
			return
		}
		time.Sleep(min(res.RetryAfter, 30*time.Millisecond))
	}
}
