package conformance

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

const saysSafe = "All methods are safe for concurrent use."

var concurrencyRules = []rule{
	{name: "concurrency/count", says: saysShared + " " + saysSafe,
		check: func(e *env) { checkCount(e, only) }},
	{name: "concurrency/count-two-clients", says: saysShared, needs: second,
		check: func(e *env) { checkCount(e, either) }},
	{name: "concurrency/count-scripts-dropped",
		says: saysShared, needs: dropScripts, check: checkCountDropping},
	{name: "concurrency/weights", says: saysShared, check: checkCountWeights},
	{name: "concurrency/keys", says: saysSafe, check: checkManyKeys},
	{name: "concurrency/rolling-window",
		says: saysShared, needs: ownClock, check: checkRollingStorm},
	{name: "concurrency/history", says: saysShared + " " + saysRepeated, needs: history,
		check: func(e *env) { checkRecorded(e, only) }},
	{name: "concurrency/history-two-clients", says: saysShared, needs: history | second,
		check: func(e *env) { checkRecorded(e, either) }},
}

// checkCount has 64 goroutines take twice as many units as there are.
func checkCount(e *env, client func(*env, int) driver.Store) {
	const goroutines = 64
	each := e.scale(12)
	most := int64(goroutines * each / 2)
	key, a := e.key(), e.alg(most)
	var admitted atomic.Int64
	e.together(goroutines, func(g int) error {
		for range each {
			res, err := client(e, g).Take(e.ctx, take(key, a, 1))
			if err != nil {
				return err
			}
			if res.Allowed {
				admitted.Add(1)
			}
		}
		return nil
	})
	if n := admitted.Load(); n != most {
		e.fatalf("%d of %d takes were admitted, want %d", n, goroutines*each, most)
	}
	e.wantLeft(key, a, 0, "as many takes as there were units")
}

func checkCountDropping(e *env) {
	done, dropped := make(chan struct{}), make(chan error, 1)
	drop(e, dropNow)
	go func() {
		var err error
		for err == nil {
			select {
			case <-done:
				dropped <- nil
				return
			case <-time.After(500 * time.Microsecond):
				err = e.harness.DropScripts()
			}
		}
		dropped <- err
	}()
	defer func() {
		close(done)
		if err := <-dropped; err != nil {
			e.fatalf("DropScripts: %w", err)
		}
	}()
	checkCount(e, only)
}

func checkCountWeights(e *env) {
	const most = 500
	key, a := e.key(), e.alg(most)
	var admitted atomic.Int64
	e.together(64, func(g int) error {
		for i := range 8 {
			n := int64(1 + (g+i)%5)
			res, err := e.store.Take(e.ctx, take(key, a, n))
			if err != nil {
				return err
			}
			if res.Allowed {
				admitted.Add(n)
			}
		}
		return nil
	})
	left := e.left(key, a)
	if n := admitted.Load(); n+left != most || left > 4 {
		e.fatalf("%d units were admitted and %d are left, want %d in all and at most 4 left",
			n, left, most)
	}
}

// checkManyKeys has goroutines use the same keys at the same time, to load what keys share.
func checkManyKeys(e *env) {
	const goroutines, most = 32, 16
	keys := make([]string, 50)
	for i := range keys {
		keys[i] = e.key()
	}
	a := e.alg(most)
	admitted := make([]atomic.Int64, len(keys))
	e.together(goroutines, func(g int) error {
		for i := range keys {
			k := (i*7 + g) % len(keys)
			res, err := e.store.Take(e.ctx, take(keys[k], a, 1))
			if err != nil {
				return err
			}
			if res.Allowed {
				admitted[k].Add(1)
			}
		}
		return nil
	})
	for k := range keys {
		if n := admitted[k].Load(); n != most {
			e.fatalf("%d of %d takes of one key were admitted, want %d", n, goroutines, most)
		}
	}
}

// checkRollingStorm takes as fast as it can in real time, and counts what was admitted between the
// call of one take and the return of another.
func checkRollingStorm(e *env) {
	const goroutines, most = 16, 40
	// the admissions and calls after which it ends, on a busy machine too
	const least, enough = 3 * most, 8_000
	const short = 50 * time.Millisecond
	key, a := e.key(), e.algorithms[0](driver.Limit{Max: most, Window: short})
	var mu sync.Mutex
	var admitted []span
	var calls, n atomic.Int64
	begin := time.Now()
	e.together(goroutines, func(int) error {
		for time.Since(begin) < 8*short || n.Load() < least && calls.Load() < enough {
			called := time.Since(begin)
			res, err := e.store.Take(e.ctx, take(key, a, 1))
			if err != nil {
				return err
			}
			calls.Add(1)
			if res.Allowed {
				n.Add(1)
				mu.Lock()
				admitted = append(admitted, span{called, time.Since(begin)})
				mu.Unlock()
			} else {
				time.Sleep(min(res.RetryAfter, time.Millisecond))
			}
		}
		return nil
	})
	if apart := closest(admitted, most+1); apart < short-clockError(short) {
		e.fatalf("%d units were admitted within %v, the limit is %d in any %v",
			most+1, apart, most, short)
	}
	if len(admitted) < least {
		e.fatalf("only %d of %d takes were admitted in 8 windows of %d or more",
			len(admitted), calls.Load(), most)
	}
}
