package algorithm_test

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// TestSlidingWindowCounter: the previous window counts in proportion to the part that is covered,
// rounded up.
func TestSlidingWindowCounter(t *testing.T) {
	a := algorithm.SlidingWindowCounter(driver.PerMinute("c", 10))
	s := &stepper{}
	const s1 = int64(1_000_000)
	for _, tt := range []struct {
		at               int64 // µs
		n                int64
		allowed          bool
		remaining        int64
		retry, untilFree time.Duration
	}{
		{110 * s1, 8, true, 2, 0, 70 * time.Second}, // it counts until the end of the next window
		{120 * s1, 3, false, 2, 7500 * time.Millisecond, time.Minute},
		{120*s1 + 7_499_999, 3, false, 2, time.Microsecond, 52_500_001 * time.Microsecond},
		{120*s1 + 7_500_000, 3, true, 0, 0, 112_500 * time.Millisecond},
		{150 * s1, 3, true, 0, 0, 90 * time.Second}, // half of 8 and 3
		{150 * s1, 10, false, 0, 90 * time.Second, 90 * time.Second},
		{300 * s1, 10, true, 0, 0, 2 * time.Minute}, // both windows are over
	} {
		s.now = tt.at
		res := s.take(t, a, tt.n)
		if res.Allowed != tt.allowed || res.Remaining != tt.remaining ||
			res.RetryAfter != tt.retry || res.ResetAfter != tt.untilFree {
			t.Errorf("at %d, %d units: %+v, want %+v", tt.at, tt.n, res, tt)
		}
	}
}

// TestSlidingWindowCounterIsModel compares Step with a map of units by window and rational numbers,
// with limits of all sizes.
func TestSlidingWindowCounterIsModel(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	refusals := 0
	for range 3000 {
		limit := driver.Limit{Name: "c", Max: 1 + random.Int64N(1<<random.IntN(41)),
			Window: time.Millisecond + time.Duration(random.Int64N(
				int64(driver.MaxWindow-time.Millisecond)>>random.IntN(34)))}
		window := limit.Window.Microseconds()
		a := algorithm.SlidingWindowCounter(limit)
		s, taken := &stepper{now: 1e15}, map[int64]int64{}
		for range 40 {
			s.now = min(s.now+random.Int64N(window), 4e15)
			d := driver.Demand{Op: driver.Op(random.IntN(3)), N: 1 + random.Int64N(limit.Max)}
			place, into := s.now/window, s.now%window
			part := new(big.Rat).Mul(rat(taken[place-1]), big.NewRat(window-into, window))
			used := taken[place] + ceil(part).Int64()
			fits := used+d.N <= limit.Max
			if fits && d.Op == driver.OpTake || d.Op == driver.OpForce {
				taken[place] += d.N
				used += d.N
			}
			got := s.step(t, a, d)
			if want := max(0, limit.Max-used); got.Remaining != want ||
				got.Allowed != (fits || d.Op == driver.OpForce) {
				t.Fatalf("%v of %d at %d, limit %v: %+v, want %d remaining, fits %v",
					d.Op, d.N, s.now, limit, got, want, fits)
			}
			if !got.Allowed {
				refusals++
				s.wantExactRetry(t, a, d.N, got)
			}
		}
	}
	if refusals < 1000 {
		t.Errorf("only %d refusals", refusals)
	}
}
