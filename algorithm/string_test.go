package algorithm_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// TestString: an algorithm is printed with its parameters, not with the pointer to them.
func TestString(t *testing.T) {
	limit := driver.PerMinute("api", 60)
	for want, a := range map[string]driver.Algorithm{
		"api=60/1m0s with offset 10s": algorithm.FixedWindow(limit).WithOffset(10 * time.Second),
		"api=60 a month":              algorithm.Monthly("api", 60),
		"api=60 a month from day 31":  algorithm.Monthly("api", 60).WithDay(31),
		"api=60 a quarter":            algorithm.Quarterly("api", 60),
		"api=60/168h0m0s from Sunday": algorithm.Weekly("api", 60, time.Sunday),
		"api=60 a month with offset 5h0m0s": algorithm.Monthly("api", 60).
			WithOffset(5 * time.Hour),
		"api=60/30s":                   algorithm.TokenBucket("api", 2, 60),
		"api=60/1m0s with debt 1h0m0s": algorithm.GCRA(limit).WithDebt(time.Hour),
		"0/0s with debt 1h0m0s":        algorithm.Bucket{}.WithDebt(time.Hour),
		"60/1m0s":                      algorithm.SlidingWindowCounter(driver.PerMinute("", 60)),
		"0/0s":                         algorithm.Fixed{},
		"api=60/1m0s with holds of 5s": algorithm.Budget(algorithm.GCRA(limit)).
			WithTimeout(5 * time.Second),
		"calls=5/1m0s in flight": algorithm.InFlight("calls", 5),
	} {
		if got := fmt.Sprintf("%+v", a); got != want {
			t.Errorf("%T: got %q, want %q", a, got, want)
		}
	}
}
