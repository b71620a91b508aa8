// Package retryablehttp tests that a client which retries waits as long as a refusal says.
package retryablehttp

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/httplimit"
)

// TestRetryAfter lets the client wait in real time. The client's own backoff is a millisecond, so
// it waits for a second only if it reads Retry-After. The clock of the store moves by that second
// when the client gets the refusal.
func TestRetryAfter(t *testing.T) {
	var now atomic.Int64
	now.Store(1e15)
	store, err := memorystore.New(&memorystore.Options{Now: now.Load})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerSecond("second", 1)))
	if err != nil {
		t.Fatal(err)
	}
	var worked atomic.Int64
	limit := httplimit.New(httplimit.PerKey(limiter, httplimit.Header("X-User")))
	server := httptest.NewServer(limit(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			worked.Add(1)
			_, _ = io.WriteString(w, "ok")
		})))
	defer server.Close()

	var statuses []int
	var refused time.Time
	client := retryablehttp.NewClient()
	client.HTTPClient = server.Client()
	client.Logger = nil
	client.RetryWaitMin, client.RetryWaitMax = time.Millisecond, time.Millisecond
	client.RetryMax = 1
	client.ResponseLogHook = func(_ retryablehttp.Logger, r *http.Response) {
		statuses = append(statuses, r.StatusCode)
		if r.StatusCode == http.StatusTooManyRequests {
			refused = time.Now()
			now.Add(time.Second.Microseconds())
		}
	}

	for range 2 {
		request, err := retryablehttp.NewRequestWithContext(
			t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-User", "ann")
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("answered with %d", response.StatusCode)
		}
	}
	if took := time.Since(refused); took < time.Second {
		t.Errorf("came back after %v, before the second was over", took)
	}
	want := []int{http.StatusOK, http.StatusTooManyRequests, http.StatusOK}
	if !slices.Equal(statuses, want) {
		t.Errorf("the client saw %v, want %v", statuses, want)
	}
	if n := worked.Load(); n != 2 {
		t.Errorf("the handler worked %d times, want 2", n)
	}
}
