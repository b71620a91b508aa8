//go:build !race

package layer_test

import (
	"context"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// The race detector drops pooled values at random, so these figures hold without it only.
func TestAllocations(t *testing.T) {
	inner := broken{}
	soon, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ds, out := []driver.Demand{unit("k"), unit("l"), unit("m")}, make([]driver.Result, 3)
	for name, tt := range map[string]struct {
		store        driver.Store
		one, several float64
	}{
		"prefix":  {prefix(t, inner), 1, 3},  // the keys
		"hashed":  {hashed(t, inner), 1, 3},  // the keys
		"timeout": {timeout(t, inner), 0, 0}, // a minute, and the caller has set an earlier one
	} {
		if got := testing.AllocsPerRun(200,
			func() { _, _ = tt.store.Take(soon, ds[0]) }); got > tt.one {
			t.Errorf("%s: a Take allocates %v times, want %v", name, got, tt.one)
		}
		if got := testing.AllocsPerRun(200,
			func() { _ = tt.store.TakeAll(soon, ds, out) }); got > tt.several {
			t.Errorf("%s: a TakeAll of 3 allocates %v times, want %v", name, got, tt.several)
		}
	}
}

// TestLeasedAllocations: a decision from leases allocates nothing.
func TestLeasedAllocations(t *testing.T) {
	many := algorithm.SlidingLog(driver.PerMinute("many", 1e9))
	s, d := newLeased(t, newOutage(t), nil), of("k", many, 1000)
	for {
		take(t, s, d)
		if units, _ := s.LeaseOf("k", many); units > 10_000 {
			break
		}
	}
	d.N = 1
	ds, out := []driver.Demand{d}, make([]driver.Result, 1)
	before := s.Stats()
	if got := testing.AllocsPerRun(2000, func() { _, _ = s.Take(t.Context(), d) }); got != 0 {
		t.Errorf("a Take allocates %v times", got)
	}
	if got := testing.AllocsPerRun(2000, func() { _ = s.TakeAll(t.Context(), ds, out) }); got != 0 {
		t.Errorf("a TakeAll allocates %v times", got)
	}
	after := s.Stats()
	if here := after.Admitted - before.Admitted; here < 3500 {
		t.Errorf("%d of 4000 were decided from leases", here)
	}
}
