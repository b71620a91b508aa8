//go:build !race

package layer_test

import (
	"context"
	"testing"
	"time"

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
