package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// window is that of most limits on an injected clock: the state outlives the case on a server whose
// keys expire in real time.
const window = 10 * time.Minute

// alg returns the first algorithm for units in any window.
func (e *env) alg(units int64) driver.Algorithm {
	return e.algorithms[0](driver.Limit{Max: units, Window: window})
}

// algOf is alg for a limit of that name.
func (e *env) algOf(name string, units int64) driver.Algorithm {
	return e.algorithms[0](driver.Limit{Name: name, Max: units, Window: window})
}

func take(key string, a driver.Algorithm, n int64) driver.Demand {
	return driver.Demand{Key: key, Algorithm: a, N: n}
}

func peek(key string, a driver.Algorithm, n int64) driver.Demand {
	return driver.Demand{Key: key, Algorithm: a, Op: driver.OpPeek, N: n}
}

func force(key string, a driver.Algorithm, n int64) driver.Demand {
	return driver.Demand{Key: key, Algorithm: a, Op: driver.OpForce, N: n}
}

// A hold may be renewed by one of no units.
func hold(key string, a driver.Algorithm, id uint64, n int64) driver.Demand {
	return driver.Demand{Key: key, Algorithm: a, Op: driver.OpHold, ID: id, N: n}
}

func holdFor(
	key string, a driver.Algorithm, id uint64, n int64, length time.Duration,
) driver.Demand {
	d := hold(key, a, id, n)
	d.HoldTimeout = length
	return d
}

func settle(key string, a driver.Algorithm, id uint64, n int64) driver.Demand {
	return driver.Demand{Key: key, Algorithm: a, Op: driver.OpSettle, ID: id, N: n}
}

func reset(key string, a driver.Algorithm) driver.Demand {
	return driver.Demand{Key: key, Algorithm: a, Op: driver.OpReset}
}

// do decides one demand, without an error.
func (e *env) do(d driver.Demand) driver.Result {
	res, err := e.store.Take(e.ctx, d)
	if err != nil {
		e.fatalf("%v of %d: %w", d.Op, d.N, err)
	}
	return res
}

// admit is do for a demand that must be admitted.
func (e *env) admit(d driver.Demand) driver.Result {
	res := e.do(d)
	if !res.Allowed {
		e.fatalf("%v of %d under %v was refused: %+v", d.Op, d.N, d.Algorithm.Limit(), res)
	}
	return res
}

// refuse is do for a demand that must be refused.
func (e *env) refuse(d driver.Demand) driver.Result {
	res := e.do(d)
	if res.Allowed {
		e.fatalf("%v of %d under %v was admitted: %+v", d.Op, d.N, d.Algorithm.Limit(), res)
	}
	return res
}

// all decides several demands as one, without an error.
func (e *env) all(ds ...driver.Demand) []driver.Result {
	out := make([]driver.Result, len(ds))
	if err := e.store.TakeAll(e.ctx, ds, out); err != nil {
		e.fatalf("TakeAll of %d demands: %w", len(ds), err)
	}
	return out
}

// left returns how many units could be taken.
func (e *env) left(key string, a driver.Algorithm) int64 {
	return e.do(peek(key, a, 1)).Remaining
}

// wantLeft checks how many units could be taken, after what happened.
func (e *env) wantLeft(key string, a driver.Algorithm, want int64, after string) {
	if got := e.left(key, a); got != want {
		e.fatalf("%d units of %v are left after %s, want %d", got, a.Limit(), after, want)
	}
}

// awaitLeft returns how many units could be taken, from a store that may fail until it has
// connected again.
func (e *env) awaitLeft(key string, a driver.Algorithm) int64 {
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		res, err := e.store.Take(e.ctx, peek(key, a, 1))
		if err == nil {
			return res.Remaining
		}
		if !errors.Is(err, driver.ErrUnavailable) {
			e.fatalf("a peek returned the error %w", err)
		}
		if time.Since(begin) > recovery {
			e.fatalf("a peek still fails %v after the end of the fault: %w", recovery, err)
		}
	}
}

// recovery is how long a store may fail after a fault has ended.
const recovery = 10 * time.Second

// limits returns n demands for one unit of one key, under n limits: of 10 units, 11, …
func (e *env) limits(n int) (ds []driver.Demand) {
	key := e.key()
	for i := range n {
		ds = append(ds, take(key, e.algOf(fmt.Sprint("l", i), int64(10+i)), 1))
	}
	return ds
}

// spread returns n demands as limits does, each on a key of its own.
func (e *env) spread(n int) (ds []driver.Demand) {
	for i := range n {
		ds = append(ds, take(e.key(), e.alg(int64(10+i)), 1))
	}
	return ds
}
