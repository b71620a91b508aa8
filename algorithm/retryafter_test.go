package algorithm_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// TestRetryAfterBound: on a clock that steps back by any time, and with units that are forced,
// RetryAfter is exact and no longer than its documentation says.
func TestRetryAfterBound(t *testing.T) {
	const window = time.Second
	for name, tt := range map[string]struct {
		algorithm func(driver.Limit) driver.Algorithm
		most      time.Duration // without units that a bucket owes
		owes      bool
		coarse    bool
	}{
		"log": {most: 2 * window,
			algorithm: func(l driver.Limit) driver.Algorithm {
				return algorithm.SlidingLog(l)
			}},
		"coarse log": {most: 2*window + 2*window/7, coarse: true,
			algorithm: func(l driver.Limit) driver.Algorithm {
				return algorithm.SlidingLog(l).WithResolution(window / 7)
			}},
		"bucket":  {most: 2 * window, owes: true, algorithm: inexact["bucket"]},
		"fixed":   {most: 2 * window, algorithm: inexact["fixed"]},
		"counter": {most: 3 * window, algorithm: inexact["counter"]},
		"block": {most: window, algorithm: func(driver.Limit) driver.Algorithm {
			return algorithm.Blocking("retry", window)
		}},
	} {
		random := rand.New(rand.NewPCG(5, 6))
		longest, refusals := time.Duration(0), 0
		for range 400 {
			a := tt.algorithm(driver.Limit{Name: "retry", Max: 1 + random.Int64N(9),
				Window: window})
			limit := a.Limit()
			s, owed := stepper{now: 1e15}, time.Duration(0)
			for range 60 {
				pass := []time.Duration{window / 8, 2 * window}[random.IntN(2)]
				s.now += random.Int64N(pass.Microseconds())
				if random.IntN(4) == 0 {
					back := []time.Duration{window, 5 * window}[random.IntN(2)]
					s.now -= random.Int64N(back.Microseconds())
				}
				d := driver.Demand{Key: "k", Algorithm: a, N: 1 + random.Int64N(limit.Max)}
				if random.IntN(8) == 0 {
					d.Op, d.N = driver.OpForce, 1+random.Int64N(20*limit.Max)
					if tt.owes {
						owed += time.Duration(d.N) * window / time.Duration(limit.Max)
					}
				}
				next, keep, res := d.Step(bytes.Clone(s.state), s.now)
				if keep < 0 {
					t.Fatalf("%s: the state is corrupt", name)
				}
				if keep > 0 {
					s.state = next
				}
				if res.Allowed {
					continue
				}
				refusals++
				longest = max(longest, res.RetryAfter-owed)
				if most := tt.most + owed + time.Microsecond; res.RetryAfter > most {
					t.Fatalf("%s: RetryAfter is %v, want %v at most", name, res.RetryAfter, most)
				}
				after := func(wait time.Duration) bool {
					d.Op = driver.OpPeek
					_, _, res := d.Step(bytes.Clone(s.state), s.now+wait.Microseconds())
					return res.Allowed
				}
				if !after(res.RetryAfter) || !tt.coarse && after(res.RetryAfter-time.Microsecond) {
					t.Fatalf("%s: RetryAfter %v is not exact", name, res.RetryAfter)
				}
			}
		}
		if refusals < 1000 || longest < tt.most*9/10 {
			t.Errorf("%s: %d refusals, the longest for %v; want 1000 and nearly %v", name, refusals,
				longest, tt.most)
		}
	}
}
