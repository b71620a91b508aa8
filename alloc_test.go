//go:build !race

package ratelimit_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

// constStore gives every valid demand the same answer and allocates nothing.
type constStore struct{ res ratelimit.Result }

func (s constStore) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	return s.res, driver.CheckTake(ctx, d)
}

func (s constStore) TakeAll(
	ctx context.Context, ds []driver.Demand, out []ratelimit.Result,
) error {
	for i := range out {
		out[i] = s.res
	}
	return driver.CheckTakeAll(ctx, ds, out)
}

// TestAllocations: calls allocate nothing but the results that they return in a slice. The race
// detector drops pooled values at random, so these figures hold only without it.
func TestAllocations(t *testing.T) {
	ctx := t.Context()
	for _, tt := range []struct {
		name   string
		limits []ratelimit.Limit
	}{
		{"one limit", []ratelimit.Limit{ratelimit.PerSecond("a", 10)}},
		{"several limits", []ratelimit.Limit{
			ratelimit.PerSecond("a", 10), ratelimit.PerMinute("b", 10), ratelimit.PerDay("c", 10),
		}},
	} {
		for _, allowed := range []bool{true, false} {
			limiter := newLimiter(t, constStore{ratelimit.Result{Allowed: allowed}}, tt.limits...)
			calls := map[string]func() error{
				"Allow":  func() error { _, err := limiter.Allow(ctx, "k"); return err },
				"AllowN": func() error { _, err := limiter.AllowN(ctx, "k", 2); return err },
				"AllowAll": func() error {
					_, err := ratelimit.AllowAll(ctx, claim(limiter, 2))
					return err
				},
				"Peek": func() error { _, err := limiter.Peek(ctx, "k"); return err },
				"PeekAll": func() error {
					_, err := ratelimit.PeekAll(ctx, claim(limiter, 2))
					return err
				},
				"Force": func() error { _, err := limiter.Force(ctx, "k", 2); return err },
				"Reset": func() error { return limiter.Reset(ctx, "k") },
			}
			if allowed {
				calls["Wait"] = func() error { _, err := limiter.Wait(ctx, "k"); return err }
				calls["WaitAll"] = func() error {
					_, err := ratelimit.WaitAll(ctx, claim(limiter, 2))
					return err
				}
			}
			for name, call := range calls {
				if err := call(); err != nil {
					t.Fatalf("%s, %s: %v", tt.name, name, err)
				}
				want := 0.0
				if strings.HasSuffix(name, "All") {
					want = 1 // its results
				}
				if n := testing.AllocsPerRun(200, func() { _ = call() }); n != want {
					t.Errorf("%s, allowed %v: %s allocates %v times, want %v",
						tt.name, allowed, name, n, want)
				}
			}
		}
	}
}

// TestAllocationsInMemory: single calls on the memory store allocate nothing.
func TestAllocationsInMemory(t *testing.T) {
	store, err := memorystore.New(nil)
	noErr(t, err)
	defer store.Close()
	log := algorithm.SlidingLog(ratelimit.PerDay("day", driver.MaxUnits))
	l, err := ratelimit.New(store, log.WithResolution(time.Minute))
	noErr(t, err)
	ctx := t.Context()
	for name, call := range map[string]func() (ratelimit.Result, error){
		"Peek":   func() (ratelimit.Result, error) { return l.Peek(ctx, "k") },
		"Allow":  func() (ratelimit.Result, error) { return l.Allow(ctx, "k") },
		"AllowN": func() (ratelimit.Result, error) { return l.AllowN(ctx, "k", 2) },
		"Wait":   func() (ratelimit.Result, error) { return l.Wait(ctx, "k") },
	} {
		n := testing.AllocsPerRun(200, func() {
			if _, err := call(); err != nil {
				t.Error(err)
			}
		})
		if n != 0 {
			t.Errorf("%s allocates %v times, want 0", name, n)
		}
	}
}
