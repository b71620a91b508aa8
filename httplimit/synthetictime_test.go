package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/httplimit"
)

// TestSyntheticTime is the recipe in docs/testing.md for code that uses a limiter.
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

// TestHandlerInSyntheticTime is the recipe for a handler behind the middleware: limit is what the
// program wraps its handlers with.
func TestHandlerInSyntheticTime(t *testing.T) {
	limit := func(store ratelimit.Store, next http.Handler) http.Handler {
		limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("login", 2)))
		if err != nil {
			t.Fatal(err)
		}
		return httplimit.Handler(limiter, httplimit.Header("X-User"), next)
	}
	login := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	synctest.Test(t, func(t *testing.T) {
		store, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		handler := limit(store, login)
		wantStatus := func(want int) {
			t.Helper()
			w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/login", nil)
			r.Header.Set("X-User", "ann")
			if handler.ServeHTTP(w, r); w.Code != want {
				t.Errorf("answered with %d, want %d", w.Code, want)
			}
		}
		wantStatus(http.StatusOK)
		wantStatus(http.StatusOK)
		wantStatus(http.StatusTooManyRequests)
		time.Sleep(time.Minute)
		wantStatus(http.StatusOK)
		store.Close() // from here on as in an outage
		wantStatus(http.StatusServiceUnavailable)
	})
}
