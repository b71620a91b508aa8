package conformance

import (
	"fmt"
	"math"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

var windowRules = []rule{
	{name: "window/short", says: saysRetry, needs: ownClock, check: checkShortWindows},
	{name: "window/long", says: saysRetry, check: checkLongWindows},
	{name: "result/large-numbers", says: saysStep, check: checkLargeNumbers},
	{name: "expiry/real-fractions", says: saysExpiry, needs: ownClock, check: checkRealFractions},
}

// checkShortWindows uses windows of a few milliseconds on the store's own clock.
func checkShortWindows(e *env) {
	const us = time.Microsecond
	for _, w := range []time.Duration{driver.MinWindow, 1001 * us, 1999 * us, 2500 * us,
		5 * time.Millisecond, 9999 * us, 10 * time.Millisecond, 15 * time.Millisecond,
		99_999 * us} {
		key, a := e.key(), e.algorithms[0](driver.Limit{Max: 1, Window: w})
		called := time.Now()
		first := e.admit(take(key, a, 1))
		admitted := time.Now()
		if first.ResetAfter != w {
			e.fatalf("ResetAfter of the only take in a window of %v is %v", w, first.ResetAfter)
		}
		for {
			asked := time.Now()
			res := e.do(take(key, a, 1))
			least, most := asked.Sub(admitted), time.Since(called) // the age of the first take
			if res.Allowed {
				if most < w-clockError(w) {
					e.fatalf("two units were admitted within %v, the limit is one in any %v",
						most, w)
				}
				break
			}
			if res.RetryAfter > w-least+clockError(w) || res.Source == driver.SourceStore &&
				res.RetryAfter < w-most-clockError(w) {
				e.fatalf("%v to %v after the only take in a window of %v, RetryAfter of another "+
					"take is %v", least, most, w, res.RetryAfter)
			}
			if res.RetryAfter > 3*time.Millisecond {
				time.Sleep(res.RetryAfter - 3*time.Millisecond)
			}
		}
	}
}

// checkLongWindows uses windows that do not fit into 31 or 32 bits of microseconds, milliseconds or
// seconds.
func checkLongWindows(e *env) {
	const us, ms = time.Microsecond, time.Millisecond
	for _, w := range []time.Duration{
		math.MaxInt32 * us, (1 << 31) * us, (1<<32 + 1) * us, math.MaxInt32 * ms, (1 << 31) * ms,
		(1<<31+1)*ms + us,
		math.MaxUint32 * ms, (1<<32+1)*ms + 999*us, driver.MaxWindow - us, driver.MaxWindow,
	} {
		key, a := e.key(), e.algorithms[0](driver.Limit{Name: "l", Max: 2, Window: w})
		begin := e.clock.now()
		if res := e.admit(take(key, a, 1)); res.ResetAfter != w {
			e.fatalf("ResetAfter of the only take in a window of %v is %v", w, res.ResetAfter)
		}
		e.clock.after(begin, w/2)
		e.admit(take(key, a, 1))
		if res := e.refuse(take(key, a, 1)); res.RetryAfter != w-(w/2).Truncate(us) {
			e.fatalf("half a window of %v after the first take, RetryAfter is %v, want %v",
				w, res.RetryAfter, w-(w/2).Truncate(us))
		}
		e.clock.after(begin, w-us)
		e.refuse(take(key, a, 1))
		e.clock.after(begin, w)
		e.wantLeft(key, a, 1, "the first of two takes has left the window")
		e.clock.after(begin, w/2)
		e.clock.add(w)
		e.wantLeft(key, a, 2, "both takes have left the window")
		e.admit(reset(key, a))
		e.clock.set(begin)
	}
}

// checkLargeNumbers takes units up to limits that do not fit into 24, 31, 32 or 40 bits.
func checkLargeNumbers(e *env) {
	for _, most := range []int64{1<<24 + 1, math.MaxInt32, 1 << 31, 1<<31 + 1, math.MaxUint32,
		1 << 32, 1<<32 + 1, 1<<33 + 3, driver.MaxUnits - 1, driver.MaxUnits} {
		key, a := e.key(), e.alg(most)
		used := int64(0)
		for _, n := range []int64{1, most / 2, 1, most/2 - 5, 1, 1} {
			used += n
			res := e.admit(take(key, a, n))
			if res.Remaining != most-used || res.Limit.Max != most {
				e.fatalf("with %d of %d units taken, Remaining and Limit are %d and %d",
					used, most, res.Remaining, res.Limit.Max)
			}
			e.clock.add(time.Second)
		}
		e.refuse(take(key, a, most-used+1))
		if res := e.do(peek(key, a, most)); res.Allowed || res.Remaining != most-used {
			e.fatalf("with %d of %d units taken, a peek for all returned %+v", used, most, res)
		}
		e.admit(take(key, a, most-used))
		e.refuse(take(key, a, 1))
		e.admit(reset(key, a))
	}
}

// checkRealFractions has states run out in real time, under windows that are nearly a millisecond
// longer than whole ones. A round is repeated if a busy machine delays its call until the state has
// run out.
func checkRealFractions(e *env) {
	const goroutines, enough, rounds = 4, 5, 50
	keys := make([]string, goroutines)
	for i := range keys {
		keys[i] = e.key()
	}
	const short = 40_900 * time.Microsecond
	a := e.algorithms[0](driver.Limit{Max: 1, Window: short})
	e.together(goroutines, func(g int) error {
		var last time.Duration // when the last admission was asked for
		refused, begin := false, time.Now()
		for round, proved := 0, 0; proved < enough && round < rounds; {
			called := time.Since(begin)
			res, err := e.store.Take(e.ctx, take(keys[g], a, 1))
			if err != nil {
				return err
			}
			if !res.Allowed {
				refused = true
				continue
			}
			if age := time.Since(begin) - last; round > 0 && age < short-clockError(short) {
				return fmt.Errorf("two units were admitted within %v, the limit is one in any %v",
					age, short)
			}
			if round++; refused {
				proved++
			}
			last, refused = called, false
			time.Sleep(short - 3*time.Millisecond)
		}
		return nil
	})
}
