package ratelimit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

// TestSyntheticTime is the recipe in docs/cookbook.md for testing code that uses a limiter.
func TestSyntheticTime(t *testing.T) {
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		store, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("login", 1)))
		if err != nil {
			t.Fatal(err)
		}

		if res, err := limiter.Allow(t.Context(), "user:42"); err != nil || !res.Allowed {
			t.Fatalf("the first: %+v, %v", res, err)
		}
		time.Sleep(20 * time.Second) // takes no time
		res, err := limiter.Allow(t.Context(), "user:42")
		if err != nil || res.Allowed || res.RetryAfter != 40*time.Second {
			t.Errorf("after 20 s: %+v, %v", res, err)
		}
		// Wait sleeps for 40 s of the test's time.
		if _, err := limiter.Wait(t.Context(), "user:42"); err != nil {
			t.Error(err)
		}
	})
	if real := time.Since(began); real > 30*time.Second {
		t.Errorf("took %v of real time", real)
	}
}
