package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
)

const saysSafe = "All methods are safe for simultaneous use."

var concurrencyRules = []rule{
	{name: "concurrency/count", says: saysShared + " " + saysSafe, check: func(e *env) { checkCount(e, only) }},
	{name: "concurrency/count-two-clients", says: saysShared, needs: second, check: func(e *env) { checkCount(e, either) }},
	{name: "concurrency/count-scripts-dropped", says: saysShared, needs: dropScripts, check: checkCountDropping},
	{name: "concurrency/weights", says: saysShared, check: checkCountWeights},
	{name: "concurrency/give-backs", says: saysShared + " " + saysGiveBack, check: checkCountGiveBacks},
	{name: "concurrency/keys", says: saysSafe, check: checkManyKeys},
	{name: "concurrency/rolling-window", says: saysShared, needs: ownClock, check: checkRollingStorm},
	{name: "concurrency/history", says: saysShared, needs: history, check: func(e *env) { checkRecorded(e, only) }},
	{name: "concurrency/history-two-clients", says: saysShared, needs: history | second, check: func(e *env) { checkRecorded(e, either) }},
}

// only asks the one client.
func only(e *env, _ int) ratelimit.Store { return e.store }

// newOrder returns a function that returns two or three of n indices in random order.
func newOrder(seed uint64, goroutine, n int) func() []int {
	r := rand.New(rand.NewPCG(seed, uint64(goroutine)))
	return func() []int { return r.Perm(n)[:2+r.IntN(2)] }
}

// checkCount lets 64 goroutines take twice as much as there is.
func checkCount(e *env, client func(*env, int) ratelimit.Store) {
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
		e.fatalf("%d of %d units were admitted and %d are left", n, most, left)
	}
}

// checkCountGiveBacks gives back half of what it takes, on a clock that moves with every call.
func checkCountGiveBacks(e *env) {
	const goroutines, each, most = 32, 12, 1000
	e.clock.tick.Store(1)
	key, a := e.key(), e.alg(most)
	e.together(goroutines, func(int) error {
		for i := range each {
			res, err := e.store.Take(e.ctx, take(key, a, 2))
			if err == nil && !res.Allowed {
				err = fmt.Errorf("a take was refused with units left: %+v", res)
			}
			if err == nil && i%2 == 0 {
				_, err = e.store.Take(e.ctx, giveBack(key, a, 2, res.At))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	e.wantLeft(key, a, most-goroutines*each, "half of the units were given back")
}

// checkManyKeys lets goroutines use keys that others use at the same time, so that what is shared between keys is under load.
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

// checkRollingStorm takes as fast as it can in real time, and counts by the store's stamps.
func checkRollingStorm(e *env) {
	const goroutines, most = 16, 40
	const short = 50 * time.Millisecond
	key, a := e.key(), e.algorithms[0](ratelimit.Limit{Max: most, Window: short})
	var mu sync.Mutex
	var stamps []int64
	end := time.Now().Add(8 * short)
	e.together(goroutines, func(int) error {
		for time.Now().Before(end) {
			res, err := e.store.Take(e.ctx, take(key, a, 1))
			if err != nil {
				return err
			}
			if res.Allowed {
				mu.Lock()
				stamps = append(stamps, res.At)
				mu.Unlock()
			} else {
				time.Sleep(min(res.RetryAfter, time.Millisecond))
			}
		}
		return nil
	})
	slices.Sort(stamps)
	for i := most; i < len(stamps); i++ {
		if apart := time.Duration(stamps[i]-stamps[i-most]) * time.Microsecond; apart < short {
			e.fatalf("%d were admitted within %v, %d in any %v is the limit", most+1, apart, most, short)
		}
	}
	if len(stamps) < 3*most {
		e.fatalf("only %d were admitted in 8 windows of %d", len(stamps), most)
	}
}

// checkRecorded records what clients do at once, in rounds in which the clock stands still, and has the history checked.
func checkRecorded(e *env, client func(*env, int) ratelimit.Store) {
	const clients, each = 6, 4
	limits := []ratelimit.Algorithm{e.named("a", 4), e.named("b", 7)}
	_, single := e.except["takeall"]
	key, begin := e.key(), time.Now()
	var history []Operation
	at := e.clock.now()
	for round := range e.scale(25) {
		e.clock.add(time.Duration(e.rand.Int64N(int64(window/4))) - time.Second)
		now := e.clock.now()
		e.settle()
		settled := time.Since(begin)
		recorded := make([][]Operation, clients)
		e.together(clients, func(c int) error {
			r := rand.New(rand.NewPCG(e.seed, uint64(round*clients+c)))
			for range each {
				ds := []ratelimit.Demand{take(key, limits[r.IntN(2)], 1+r.Int64N(2))}
				if !single && r.IntN(3) == 0 {
					ds = []ratelimit.Demand{take(key, limits[0], 1), take(key, limits[1], 1)}
				}
				switch d := &ds[0]; r.IntN(8) {
				case 0:
					d.Op = ratelimit.Look
				case 1:
					d.Op, d.At = ratelimit.GiveBack, pick(r, now, at)
				case 2:
					if r.IntN(4) == 0 {
						d.Op = pick(r, ratelimit.Force, ratelimit.Reset)
					}
				}
				op := Operation{Client: c, Now: now, Demands: ds, Results: make([]ratelimit.Result, len(ds)), Call: time.Since(begin)}
				var err error
				if len(ds) == 1 {
					op.Results[0], err = client(e, c).Take(e.ctx, ds[0])
				} else {
					err = client(e, c).TakeAll(e.ctx, ds, op.Results)
				}
				op.Return = time.Since(begin)
				if e.second != nil && op.Results[0].Source == ratelimit.SourceCache {
					op.Call = settled // what the other client has done since may not be known
				}
				if err != nil {
					return err
				}
				recorded[c] = append(recorded[c], op)
			}
			return nil
		})
		for _, ops := range recorded {
			history = append(history, ops...)
			at = ops[len(ops)-1].Results[0].At
		}
	}
	if err := e.checkHistory(history); err != nil {
		e.fatalf("the history of %d calls is not linearizable: %w", len(history), err)
	}
}
