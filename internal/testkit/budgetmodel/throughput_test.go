package budgetmodel_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

// TestThroughput prints the part of a minute budget that calls with exact estimates use when there
// are always calls that wait. The least that may be used leaves room for another order of the
// calls.
func TestThroughput(t *testing.T) {
	for _, tt := range []struct {
		mean          time.Duration
		random, equal float64
	}{
		{2 * time.Second, 0.98, 0.97}, {10 * time.Second, 0.97, 0.82},
		{20 * time.Second, 0.92, 0.72}, {time.Minute, 0.58, 0.48},
	} {
		use := func(what string, least float64, lasts func(*rand.Rand) time.Duration) {
			synctest.Test(t, func(t *testing.T) {
				got := throughput(t, lasts)
				t.Logf("calls of %v, %s: %.2f of the limit", tt.mean, what, got)
				if got < least || got > 1.001 {
					t.Errorf("want %.2f to 1", least)
				}
			})
		}
		use("of random length", tt.random, func(r *rand.Rand) time.Duration {
			return time.Duration(r.ExpFloat64() * float64(tt.mean))
		})
		use("all of one length", tt.equal, func(*rand.Rand) time.Duration { return tt.mean })
	}
}

// throughput returns the units that calls use, divided by the limit.
func throughput(t *testing.T, lasts func(*rand.Rand) time.Duration) float64 {
	const limit, minutes, callers = 10_000, 20, 300
	store, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	tokens, err := ratelimit.New(store,
		algorithm.Budget(algorithm.SlidingLog(ratelimit.PerMinute("tokens", limit))))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var used atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		random := rand.New(rand.NewPCG(uint64(i), 0))
		wg.Go(func() {
			for ctx.Err() == nil {
				n := 1 + random.Int64N(100)
				r, err := tokens.Acquire(ctx, "tenant", n)
				if err != nil {
					continue // ctx has ended
				}
				time.Sleep(lasts(random))
				if err := r.Commit(ctx); err != nil {
					t.Error(err)
				}
				used.Add(n)
			}
		})
	}
	time.Sleep(2 * time.Minute)
	before := used.Load()
	time.Sleep(minutes * time.Minute)
	after := used.Load()
	cancel()
	wg.Wait()
	return float64(after-before) / limit / minutes
}
