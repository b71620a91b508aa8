package ratelimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/direct"
)

var _ direct.Store = (*memorystore.Store)(nil)

// around wraps the memory store: it embeds it, with its Direct, and has a Take of its own.
type around struct {
	*memorystore.Store
	takes *int
}

func (s around) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	*s.takes++
	return s.Store.Take(ctx, d)
}

// directStore is around with the direct path of the memory store, whose calls it counts.
type directStore struct {
	around
	calls *int
}

func (s directStore) Direct(ratelimit.Store) direct.Taker {
	return directTaker{s.Store.Direct(s.Store), s.calls}
}

type directTaker struct {
	direct.Taker
	calls *int
}

func (t directTaker) TakeFields(
	ctx context.Context, key string, a ratelimit.Algorithm, op driver.Op, n int64,
) (
	allowed bool, source ratelimit.Source, remaining int64,
	retryAfter, resetAfter time.Duration, err error,
) {
	*t.calls++
	return t.Taker.TakeFields(ctx, key, a, op, n)
}

// aroundLog wraps the log: it embeds it and has a Step of its own.
type aroundLog struct {
	algorithm.Log
	corrupt bool
}

func (a aroundLog) Step(state []byte, now int64, d driver.Demand) (
	[]byte, time.Duration, ratelimit.Result,
) {
	next, keep, res := a.Log.Step(state, now, d)
	res.Source = ratelimit.SourceLocal
	if a.corrupt && !res.Allowed {
		keep = -1
	}
	return next, keep, res
}

// TestAllowDirect compares two ways to the memory store: the direct one of Allow, and Take, which
// Allow uses if another store is around it. They return equal results and errors.
func TestAllowDirect(t *testing.T) {
	limit := ratelimit.Limit{Name: "direct", Max: 5, Window: 100 * time.Millisecond}
	log := algorithm.SlidingLog(limit)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, a := range map[string]ratelimit.Algorithm{
		"log":     log,
		"coarse":  log.WithResolution(7 * time.Millisecond),
		"around":  aroundLog{log, false},
		"corrupt": aroundLog{log, true},
	} {
		t.Run(name, func(t *testing.T) {
			var clock atomic.Int64
			clock.Store(1_790_000_000_000_000)
			var takes [2]int
			directCalls := 0
			var stores [2]*memorystore.Store
			var limiters [2]*ratelimit.Limiter
			for i := range stores {
				s, err := memorystore.New(&memorystore.Options{Now: clock.Load, MaxKeys: 2})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				stores[i] = s
			}
			if stores[0].Direct(stores[0]) == nil || stores[0].Direct(stores[1]) != nil ||
				stores[0].Direct(around{stores[0], nil}) != nil {
				t.Fatal("a store has a direct path for another, or none for itself")
			}
			for i, s := range []ratelimit.Store{
				directStore{around{stores[0], &takes[0]}, &directCalls}, around{stores[1], &takes[1]},
			} {
				var err error
				if limiters[i], err = ratelimit.New(s, a); err != nil {
					t.Fatal(err)
				}
			}
			seen := map[string]int{}
			allow := func(ctx context.Context, key string) {
				t.Helper()
				takes, directCalls = [2]int{}, 0
				got, gotErr := limiters[0].Allow(ctx, key)
				want, wantErr := limiters[1].Allow(ctx, key)
				if got != want || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
					t.Fatalf("%+v, %v; with a store around it %+v, %v", got, gotErr, want, wantErr)
				}
				if directCalls != 1 || takes != [2]int{0, 1} {
					t.Fatalf("%d direct calls, Takes %d; want 1, [0 1]", directCalls, takes)
				}
				_, wrapped := a.(aroundLog)
				own := got.Source == ratelimit.SourceLocal
				if gotErr == nil && wrapped != own {
					t.Fatalf("%+v is not what Step returned", got)
				}
				seen[fmt.Sprint(want.Allowed, wantErr != nil)]++
			}
			random := rand.New(rand.NewPCG(1, 2))
			keys := []string{"a", strings.Repeat("long", 100), "beyond MaxKeys", ""}
			for range 3000 {
				clock.Add(random.Int64N(20_000))
				if random.IntN(100) == 0 {
					clock.Add(-150_000) // back by more than a window
				}
				ctx := t.Context()
				if random.IntN(20) == 0 {
					ctx = canceled
				}
				allow(ctx, keys[random.IntN(len(keys))])
			}
			for i := range stores {
				stores[i].Close()
			}
			allow(t.Context(), "a")
			if seen["true false"] == 0 || seen["false true"] == 0 ||
				seen["false false"] == 0 && name != "corrupt" {
				t.Errorf("the calls were too much alike: %v", seen)
			}
		})
	}
}
