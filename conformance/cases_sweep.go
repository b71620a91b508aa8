package conformance

import (
	"fmt"
	"runtime"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

var sweepRules = []rule{
	{name: "expiry/sweep", says: saysExpiry, needs: sweep,
		// A run meets a state in its last millisecond only by chance.
		check: differential{store: swept, seeds: 4 * seedsAtCI}.check},
	{name: "expiry/sweep-not-early", says: saysExpiry + " " + saysShared, needs: sweep,
		check: checkSweepNotEarly},
	{name: "expiry/sweep-storm",
		says: saysExpiry + " " + saysShared, needs: ownClock | sweep, check: checkSweepStorm},
}

// swept returns the store of the harness, after a sweep.
func swept(e *env, i int) driver.Store {
	e.sweepIfCan()
	return only(e, i)
}

// sweepIfCan sweeps if the harness has the hook.
func (e *env) sweepIfCan() {
	if e.harness.Sweep == nil {
		return
	}
	if err := e.harness.Sweep(); err != nil {
		e.fatalf("Sweep: %w", err)
	}
}

// checkSweepNotEarly sweeps when a state is about to run out, and when it has.
func checkSweepNotEarly(e *env) {
	for range 20 {
		e.clock.add(time.Duration(e.rand.Int64N(5000)) * time.Microsecond)
		key, a := e.key(), e.alg(2)
		begin := e.clock.now()
		e.admit(take(key, a, 1))
		e.sweepIfCan()
		e.clock.after(begin, window/2)
		e.admit(take(key, a, 1))
		for _, at := range []time.Duration{window / 2, window - time.Millisecond,
			window - time.Microsecond} {
			e.clock.after(begin, at)
			e.sweepIfCan()
			e.refuse(take(key, a, 1))
		}
		for _, at := range []time.Duration{window, window*3/2 - time.Millisecond,
			window*3/2 - time.Microsecond} {
			e.clock.after(begin, at)
			e.sweepIfCan()
			e.wantLeft(key, a, 1, "the first of two takes has left the window")
		}
		e.clock.after(begin, window*3/2)
		e.sweepIfCan()
		e.wantLeft(key, a, 2, "both takes have left the window")
		e.admit(take(key, a, 2))
		e.sweepIfCan()
		e.refuse(take(key, a, 1))
	}
	checkSweepOfRenewed(e)
}

// checkSweepOfRenewed sweeps states that have run out while takes renew them, each at a random
// instant of the sweep.
func checkSweepOfRenewed(e *env) {
	const goroutines, least = 8, 20
	rounds := e.scale(10_000)
	a, begin, budget := e.alg(2), time.Now(), e.atMost(time.Second, time.Minute)
	keys := make([]string, goroutines)
	for g := range keys {
		keys[g] = e.key()
	}
	lasted := time.Microsecond
	for round := 0; round < least || round < rounds && time.Since(begin) < budget; round++ {
		var waits [goroutines]time.Duration
		for g := range waits {
			waits[g] = time.Duration(e.rand.Int64N(2 * int64(lasted)))
		}
		var swept time.Duration
		e.together(goroutines+1, func(g int) error {
			from := time.Now()
			if g == goroutines {
				err := e.harness.Sweep()
				swept = time.Since(from)
				return err
			}
			for time.Since(from) < waits[g] {
				runtime.Gosched()
			}
			return e.wantOneLeft(take(keys[g], a, 1))
		})
		lasted = min(max(swept, time.Microsecond), 10*time.Millisecond)
		e.together(goroutines, func(g int) error { return e.wantOneLeft(peek(keys[g], a, 1)) })
		e.clock.add(window)
	}
}

// wantOneLeft returns an error unless one unit is left after d.
func (e *env) wantOneLeft(d driver.Demand) error {
	res, err := e.store.Take(e.ctx, d)
	if err == nil && res.Remaining != 1 {
		err = fmt.Errorf("during or after a sweep, %v on a state that had run out and was "+
			"renewed returned %+v, want 1 left", d.Op, res)
	}
	return err
}

// checkSweepStorm sweeps all the time, while each goroutine renews a state just when it has run
// out, and counts by the store's stamps. A busy machine has as many rounds as an idle one, each
// with enough calls to exceed the limit.
func checkSweepStorm(e *env) {
	const goroutines, most, rounds = 8, 3, 12
	const short, burst = 50 * time.Millisecond, 10 * time.Millisecond
	a := e.algorithms[0](driver.Limit{Max: most, Window: short})
	keys := make([]string, goroutines)
	for g := range keys {
		keys[g] = e.key()
	}
	done, swept := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-done:
				swept <- nil
				return
			default:
			}
			if err := e.harness.Sweep(); err != nil {
				swept <- err
				return
			}
			time.Sleep(100 * time.Microsecond)
		}
	}()
	defer func() {
		close(done)
		if err := <-swept; err != nil {
			e.fatalf("Sweep: %w", err)
		}
	}()
	end := time.Now().Add(16 * short)
	e.together(goroutines, func(g int) error {
		r := newRand(e.seed, g)
		var admitted []span
		begin := time.Now()
		for round := 0; round < rounds || time.Now().Before(end); round++ {
			var full, took time.Duration // when all units are free again, and how long a call takes
			from := time.Now()
			for n := 0; n <= most || time.Since(from) < burst; n++ {
				called := time.Since(begin)
				res, err := e.store.Take(e.ctx, take(keys[g], a, 1))
				if err != nil {
					return err
				}
				returned := time.Since(begin)
				took = returned - called
				if full = res.ResetAfter; res.Allowed {
					admitted = append(admitted, span{called, returned})
				} else {
					time.Sleep(200 * time.Microsecond)
				}
			}
			// the store decides somewhere in the next call
			time.Sleep(full - took + time.Duration(r.Int64N(int64(took+time.Millisecond))))
		}
		if apart := closest(admitted, most+1); apart < short-clockError(short) {
			return fmt.Errorf("%d units were admitted within %v, the limit is %d in any %v",
				most+1, apart, most, short)
		}
		return nil
	})
}
