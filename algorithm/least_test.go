package algorithm_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// TestLeast: a demand of which a part is enough gets the most units that a demand for all or
// nothing would get, and is otherwise refused as one for the least.
func TestLeast(t *testing.T) {
	for name, newAlgorithm := range map[string]func(driver.Limit) driver.Algorithm{
		"log": func(l driver.Limit) driver.Algorithm { return algorithm.SlidingLog(l) },
		"coarse log": func(l driver.Limit) driver.Algorithm {
			return algorithm.SlidingLog(l).WithResolution(l.Window / 10)
		},
		"bucket": func(l driver.Limit) driver.Algorithm { return algorithm.GCRA(l) },
		"fixed":  func(l driver.Limit) driver.Algorithm { return algorithm.FixedWindow(l) },
		"counter": func(l driver.Limit) driver.Algorithm {
			return algorithm.SlidingWindowCounter(l)
		},
		"budget": func(l driver.Limit) driver.Algorithm {
			return algorithm.Budget(algorithm.SlidingLog(l))
		},
		"flight": func(l driver.Limit) driver.Algorithm { return algorithm.InFlight("f", l.Max) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, 9))
			var state []byte
			now, granted := int64(1_700_000_000_000_000), 0
			for i := range 20_000 {
				a := newAlgorithm(driver.Limit{Max: 1 + r.Int64N(12), Window: time.Second})
				if now += r.Int64N(200_000); r.IntN(500) == 0 {
					now -= 2_000_000
				}
				d := driver.Demand{Key: "k", Algorithm: a, Least: 1 + r.Int64N(a.Limit().Max)}
				d.N = d.Least + r.Int64N(20)
				if h, ok := a.(driver.Holder); ok && (h.InFlight() || r.IntN(2) == 0) {
					d.Op, d.ID, d.HoldTimeout = driver.OpHold, 1+r.Uint64N(1<<60), time.Minute
				}
				want, wantKeep, wantRes := mostOf(d, state, now)
				got, keep, res := d.Step(bytes.Clone(state), now)
				if res != wantRes || keep != wantKeep || !bytes.Equal(got, want) {
					t.Fatalf("step %d: %d units, at least %d, of %v: %+v, keep %v; want %+v, %v",
						i, d.N, d.Least, a.Limit(), res, keep, wantRes, wantKeep)
				}
				if keep > 0 {
					state = got
				}
				if res.Allowed && res.Units < d.N {
					granted++
				}
			}
			if granted < 100 {
				t.Errorf("%d parts, want more: this test proves nothing", granted)
			}
		})
	}
}

// mostOf tries all numbers of units of d, and returns what Step does for the largest that fits, or
// for the least.
func mostOf(
	d driver.Demand, state []byte, now int64,
) (next []byte, keep time.Duration, res driver.Result) {
	least, most := d.Least, min(d.N, d.Algorithm.Limit().Max)
	d.Least = 0
	for d.N = most; ; d.N-- {
		next, keep, res = d.Step(bytes.Clone(state), now)
		if res.Allowed || d.N == least {
			return next, keep, res
		}
	}
}
