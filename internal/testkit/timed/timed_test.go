package timed_test

import (
	"testing"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/timed"
)

// TestNow: results tell times on both sides of a time that is near.
func TestNow(t *testing.T) {
	a := timed.Of(algorithm.SlidingLog(driver.PerMinute("limit", 3)))
	for _, now := range []int64{0, 1, 1 << 36, 1_800_000_000_000_000, 1<<51 - 1} {
		_, _, res := driver.Demand{Key: "k", Algorithm: a, N: 2}.Step(nil, now)
		for _, apart := range []int64{0, 1, -1, 9 * 3_600_000_000, -9 * 3_600_000_000} {
			if got := timed.Now(res, now+apart); got != now {
				t.Errorf("near %d: got %d, want %d", now+apart, got, now)
			}
		}
		if got := timed.Free(res); got != 1 {
			t.Errorf("%d units are left, want 1", got)
		}
	}
}
