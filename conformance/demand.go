package conformance

import (
	"time"

	"github.com/truewindow/ratelimit"
)

// window is that of most limits on an injected clock: the state outlives the case on a server whose keys expire in real time.
const window = 10 * time.Minute

// alg returns the first algorithm for units in any window.
func (e *env) alg(units int64) ratelimit.Algorithm {
	return e.algorithms[0](ratelimit.Limit{Max: units, Window: window})
}

// named is alg for a limit of that name.
func (e *env) named(name string, units int64) ratelimit.Algorithm {
	return e.algorithms[0](ratelimit.Limit{Name: name, Max: units, Window: window})
}

func take(key string, a ratelimit.Algorithm, n int64) ratelimit.Demand {
	return ratelimit.Demand{Key: key, Algorithm: a, N: n}
}

func look(key string, a ratelimit.Algorithm, n int64) ratelimit.Demand {
	return ratelimit.Demand{Key: key, Algorithm: a, Op: ratelimit.Look, N: n}
}

func force(key string, a ratelimit.Algorithm, n int64) ratelimit.Demand {
	return ratelimit.Demand{Key: key, Algorithm: a, Op: ratelimit.Force, N: n}
}

func giveBack(key string, a ratelimit.Algorithm, n, at int64) ratelimit.Demand {
	return ratelimit.Demand{Key: key, Algorithm: a, Op: ratelimit.GiveBack, N: n, At: at}
}

func reset(key string, a ratelimit.Algorithm) ratelimit.Demand {
	return ratelimit.Demand{Key: key, Algorithm: a, Op: ratelimit.Reset}
}

// do decides one demand, without an error.
func (e *env) do(d ratelimit.Demand) ratelimit.Result {
	res, err := e.store.Take(e.ctx, d)
	if err != nil {
		e.fatalf("%v of %d: %w", d.Op, d.N, err)
	}
	return res
}

// admit is do for a demand that must be admitted.
func (e *env) admit(d ratelimit.Demand) ratelimit.Result {
	res := e.do(d)
	if !res.Allowed {
		e.fatalf("%v of %d under %v was refused: %+v", d.Op, d.N, d.Algorithm.Limit(), res)
	}
	return res
}

// refuse is do for a demand that must be refused.
func (e *env) refuse(d ratelimit.Demand) ratelimit.Result {
	res := e.do(d)
	if res.Allowed {
		e.fatalf("%v of %d under %v was admitted: %+v", d.Op, d.N, d.Algorithm.Limit(), res)
	}
	return res
}

// all decides several demands as one, without an error.
func (e *env) all(ds ...ratelimit.Demand) []ratelimit.Result {
	out := make([]ratelimit.Result, len(ds))
	if err := e.store.TakeAll(e.ctx, ds, out); err != nil {
		e.fatalf("TakeAll of %d demands: %w", len(ds), err)
	}
	return out
}

// left returns how many units could be taken.
func (e *env) left(key string, a ratelimit.Algorithm) int64 {
	return e.do(look(key, a, 1)).Remaining
}

// wantLeft checks how many units could be taken, after what happened.
func (e *env) wantLeft(key string, a ratelimit.Algorithm, want int64, after string) {
	if got := e.left(key, a); got != want {
		e.fatalf("%d units of %v are left after %s, want %d", got, a.Limit(), after, want)
	}
}

func allowed(results []ratelimit.Result) bool {
	for i := range results {
		if !results[i].Allowed {
			return false
		}
	}
	return true
}

// same tells whether a store's result is the one that the step returned, or a refusal from a cache that promises no more.
func same(got, want ratelimit.Result) bool {
	if got.Source == ratelimit.SourceCache {
		return !want.Allowed && !got.Allowed && got.Limit == want.Limit && got.At <= want.At &&
			0 < got.RetryAfter && got.RetryAfter <= want.RetryAfter &&
			got.ResetAfter <= want.ResetAfter && 0 <= got.Remaining && got.Remaining < got.Limit
	}
	return got == want
}
