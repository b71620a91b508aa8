package stores

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestBatchedTakes: many goroutines take from a few hot and many cold keys, and some leave at any
// moment. No limit is exceeded, nothing is refused below its limit, and no goroutine leaks.
func TestBatchedTakes(t *testing.T) {
	const callers, each, hot, cold, limit = 96, 150, 4, 1000, 400
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		store := clients.CalmStore(t, tgt,
			&serverstore.Options{Prefix: servers.UniquePrefix(), Timeout: clients.Patient})
		log := algorithm.SlidingLog(ratelimit.PerHour("hour", limit))
		demand := func(key string) driver.Demand {
			return driver.Demand{Key: key, Algorithm: log, N: 1}
		}
		if _, err := store.Take(t.Context(), demand("first")); err != nil {
			t.Fatal(err)
		}
		goroutines := runtime.NumGoroutine()
		var admitted, unknown [hot]atomic.Int64
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(c), 5))
				for range each {
					k := r.IntN(hot + 2)
					key := fmt.Sprint("hot", k)
					if k >= hot {
						key = fmt.Sprint("cold", r.IntN(cold))
					}
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if r.IntN(20) == 0 {
						ctx, cancel = context.WithTimeout(ctx,
							time.Duration(r.IntN(1000))*time.Microsecond)
					}
					res, err := store.Take(ctx, demand(key))
					cancel()
					switch {
					case errors.Is(err, ratelimit.ErrOutcomeUnknown) &&
						errors.Is(err, context.DeadlineExceeded):
						if k < hot {
							unknown[k].Add(1)
						}
					case err != nil && !errors.Is(err, context.DeadlineExceeded):
						t.Error(err)
					case err == nil && k < hot && res.Allowed:
						admitted[k].Add(1)
					case err == nil && k >= hot && !res.Allowed:
						t.Errorf("cold key: got %+v, want an admission", res)
					}
				}
			})
		}
		wg.Wait()
		var left int64
		for k := range hot {
			n, lost := admitted[k].Load(), unknown[k].Load()
			left += lost
			if n > limit || n+lost < limit {
				t.Errorf("key %d: %d admitted and %d of unknown outcome, limit %d",
					k, n, lost, limit)
			}
		}
		if left == 0 {
			t.Error("no outcome is unknown: this test proves nothing")
		}
		ctx, cancel := context.WithTimeout(t.Context(), servers.FaultTimeout)
		defer cancel()
		// A client keeps a few goroutines for a cluster's connections.
		if err := servers.Poll(ctx,
			func() (bool, error) {
				return runtime.NumGoroutine() <= goroutines+8,
					nil
			}); err != nil {
			t.Errorf("%d goroutines, want at most %d", runtime.NumGoroutine(), goroutines+8)
		}
	})
}
