package memorystore_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

// TestGuardMemoryAllocations: a decision in memory allocates nothing, on a hot key that is admitted
// or refused, and on keys whose windows are over.
func TestGuardMemoryAllocations(t *testing.T) {
	ctx := t.Context()
	var clock atomic.Int64
	clock.Store(time.Now().UnixMicro())
	store, err := memorystore.New(&memorystore.Options{Now: clock.Load})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	const max = 100
	window := time.Minute
	limiter, err := ratelimit.New(store,
		algorithm.SlidingLog(driver.Limit{Name: "guard", Max: max, Window: window}))
	if err != nil {
		t.Fatal(err)
	}
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = fmt.Sprintf("user:%d", i)
	}
	for _, guard := range []struct {
		name    string
		keys    []string
		tick    time.Duration // between two decisions
		allowed bool
	}{
		{"hot, admitted", keys[:1], window / max, true},
		{"hot, refused", keys[:1], 0, false},
		{"new window", keys, window/time.Duration(len(keys)) + time.Microsecond, true},
	} {
		i := 0
		decide := func() (driver.Result, error) {
			clock.Add(guard.tick.Microseconds())
			i++
			return limiter.Allow(ctx, guard.keys[i%len(guard.keys)])
		}
		for range 10 * max { // the logs grow to their size
			if _, err := decide(); err != nil {
				t.Fatal(err)
			}
		}
		n := testing.AllocsPerRun(1000, func() {
			if res, err := decide(); err != nil || res.Allowed != guard.allowed {
				t.Fatalf("%s: %+v, %v", guard.name, res, err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations a decision, want none", guard.name, n)
		}
	}
}
