// Package recipes_test tests recipes of docs/cookbook.md and of other pages.
package recipes_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantCounts compares how many calls ended how.
func wantCounts(t *testing.T, when any, got, want map[string]int) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%v: %v, want %v", when, got, want)
	}
}

// recipeStore returns a store, in a bubble of synctest.
func recipeStore(t *testing.T) ratelimit.Store {
	store, err := memorystore.New(nil)
	noErr(t, err)
	t.Cleanup(func() { store.Close() })
	return store
}

// planThenCredits charges n units to the plan or, if that has no room, to the credits.
func planThenCredits(
	ctx context.Context, plan, credits *ratelimit.Limiter, account string, n int64,
) (ratelimit.Result, error) {
	res, err := plan.AllowN(ctx, account, n)
	if err != nil || res.Allowed {
		return res, err
	}
	paid, err := credits.AllowN(ctx, account, n)
	if err == nil && !paid.Allowed && res.RetryAfter < paid.RetryAfter {
		return res, nil // try again when the plan has room
	}
	return paid, err
}

// TestRecipePlanThenCredits: concurrent calls are charged to the plan first, each to one of both,
// and neither holds more than its Max.
func TestRecipePlanThenCredits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := recipeStore(t)
		plan, err := ratelimit.New(store,
			algorithm.SlidingLog(ratelimit.PerMinute("plan", 10)))
		noErr(t, err)
		credits, err := ratelimit.New(store, algorithm.SlidingLog(
			ratelimit.Limit{Name: "credits", Max: 25, Window: 30 * 24 * time.Hour}))
		noErr(t, err)
		for minute, want := range []map[string]int{
			{"plan": 10, "credits": 10}, {"plan": 10, "credits": 10},
			{"plan": 10, "credits": 5, "refused": 5}, {"plan": 10, "refused": 10},
		} {
			got := make(map[string]int)
			var mu sync.Mutex
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					res, err := planThenCredits(t.Context(), plan, credits, "acme", 1)
					noErr(t, err)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case res.Allowed:
						got[res.Limit.Name]++
					case res.RetryAfter == time.Minute:
						got["refused"]++
					}
				})
			}
			wg.Wait()
			wantCounts(t, minute, got, want)
			time.Sleep(time.Minute)
		}
	})
}

// TestRecipeShare: ordinary callers leave a fifth of the quota to important ones, who may use all
// of it.
func TestRecipeShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := recipeStore(t)
		quota := algorithm.SlidingLog(ratelimit.PerMinute("quota", 100))
		important, err1 := ratelimit.New(store, quota)
		ordinary, err2 := ratelimit.New(store, quota,
			algorithm.SlidingLog(ratelimit.PerMinute("ordinary", 80)))
		noErr(t, errors.Join(err1, err2))
		count := func(l *ratelimit.Limiter) int {
			n := 0
			for range 200 {
				res, err := l.Allow(t.Context(), "acme")
				noErr(t, err)
				if res.Allowed {
					n++
				}
			}
			return n
		}
		wantCounts(t, "ordinary first",
			map[string]int{"ordinary": count(ordinary), "important": count(important)},
			map[string]int{"ordinary": 80, "important": 20})
		time.Sleep(time.Minute)
		wantCounts(t, "important first",
			map[string]int{"important": count(important), "ordinary": count(ordinary)},
			map[string]int{"important": 100, "ordinary": 0})
	})
}

// slower lets a call begin at once within the quota, and beyond it when its turn at the pace comes.
func slower(ctx context.Context, quota, pace *ratelimit.Limiter, tenant string) error {
	res, err := quota.Allow(ctx, tenant)
	if err != nil || res.Allowed {
		return err
	}
	_, err = pace.Wait(ctx, tenant)
	return err
}

// TestRecipeSlower: calls beyond the quota begin one a second, and not at all after their deadline.
func TestRecipeSlower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := recipeStore(t)
		quota, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerHour("quota", 10)))
		noErr(t, err)
		pace, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerSecond("pace", 1)))
		noErr(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var mu sync.Mutex
		var begun []time.Duration
		began, late := time.Now(), 0
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				err := slower(ctx, quota, pace, "acme")
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					late++
					return
				}
				begun = append(begun, time.Since(began))
			})
		}
		wg.Wait()
		want := make([]time.Duration, 10) // at once
		for i := range 5 {
			want = append(want, time.Duration(i)*time.Second)
		}
		if slices.Sort(begun); !slices.Equal(begun, want) || late != 5 {
			t.Errorf("begun after %v, and %d not; want %v", begun, late, want)
		}
	})
}
