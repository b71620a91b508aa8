//go:build !race

package memorystore

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// TestNoAllocations: a decision on a key that has a state allocates nothing. The race detector
// drops pooled values at random, so the test runs only without it.
func TestNoAllocations(t *testing.T) {
	s := open(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	day := algorithm.SlidingLog(driver.PerDay("day", 1_000_000_000)).WithResolution(time.Hour)
	second := algorithm.SlidingLog(driver.PerSecond("second", 100))
	limit := driver.PerSecond("other", 100)
	for name, algorithms := range map[string][]driver.Algorithm{
		"one": {second}, "several": {second, day}, "bucket": {algorithm.GCRA(limit)},
		"fixed": {algorithm.FixedWindow(limit)}, "counter": {algorithm.SlidingWindowCounter(limit)},
	} {
		l, err := ratelimit.New(s, algorithms...)
		if err != nil {
			t.Fatal(err)
		}
		key := strings.Repeat("k", 30) + name
		step := func() {
			if _, err := l.Allow(ctx, key); err != nil {
				t.Fatal(err)
			}
		}
		for range 10_000 {
			step()
		}
		if allocs := testing.AllocsPerRun(1000, step); math.Floor(allocs) != 0 {
			t.Errorf("%s: %v allocations a decision", name, allocs)
		}
	}
}
