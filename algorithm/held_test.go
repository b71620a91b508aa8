package algorithm_test

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// heldKey is one key of a Held.
type heldKey struct {
	t     *testing.T
	a     algorithm.Held
	state []byte
	now   int64
}

func (k *heldKey) do(op driver.Op, id uint64, n int64) driver.Result {
	k.t.Helper()
	d := driver.Demand{Key: "k", Algorithm: k.a, Op: op, ID: id, N: n}
	if err := driver.CheckTake(k.t.Context(), d); err != nil {
		k.t.Fatal(err)
	}
	next, keep, res := d.Step(k.state, k.now)
	if keep < 0 {
		k.t.Fatalf("the state is corrupt: %x", k.state)
	}
	if keep > 0 {
		k.state = next
	}
	return res
}

func TestHeld(t *testing.T) {
	t.Parallel()
	limit := driver.Limit{Name: "tokens", Max: 10, Window: time.Minute}
	for name, a := range map[string]driver.Algorithm{
		"log": algorithm.SlidingLog(limit), "fixed": algorithm.FixedWindow(limit),
		"counter": algorithm.SlidingWindowCounter(limit), "bucket": algorithm.TokenBucket(limit),
	} {
		t.Run(name, func(t *testing.T) {
			k := &heldKey{t: t, a: algorithm.Budget(a), now: 1_800_000_000_000_000}
			if res := k.do(driver.OpHold, 1, 6); !res.Allowed || res.Units != 6 || res.Remaining != 4 {
				t.Fatalf("hold of 6: %+v", res)
			}
			if res := k.do(driver.OpHold, 2, 5); res.Allowed || res.Remaining != 4 {
				t.Fatalf("hold of 5 beside 6: %+v", res)
			}
			if res := k.do(driver.OpTake, 0, 4); !res.Allowed || res.Units != 4 || res.Remaining != 0 {
				t.Fatalf("take of 4: %+v", res)
			}
			if res := k.do(driver.OpSettle, 1, 2); res.Units != 2 || res.Remaining != 4 {
				t.Fatalf("settlement of 2: %+v", res)
			}
			if res := k.do(driver.OpSettle, 1, 2); res.Units != 0 || res.Remaining != 4 {
				t.Fatalf("second settlement of 2: %+v", res)
			}
			k.do(driver.OpHold, 3, 4)
			k.now += 2 * time.Minute.Microseconds()
			if res := k.do(driver.OpPeek, 0, 1); res.Remaining != 10 {
				t.Fatalf("after the time-out: %+v", res)
			}
			if res := k.do(driver.OpHold, 3, 0); res.Units != 4 || res.Remaining != 6 {
				t.Fatalf("late renewal: %+v", res)
			}
			if res := k.do(driver.OpSettle, 3, 5); res.Units != 5 || res.Remaining != 5 {
				t.Fatalf("settlement of more: %+v", res)
			}
		})
	}
}
