package requests

import (
	"net/http"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/httplimit"
)

// CheckOutcome tests that a middleware of net/http sees the status that a framework answers with.
// serve starts a server whose routes /401 and /200 answer with that status. The handler of /401
// returns an error if handlers of the framework can do so.
func CheckOutcome(t *testing.T, serve func(limit func(http.Handler) http.Handler) (url string)) {
	t.Helper()
	store, err := memorystore.New(&memorystore.Options{Now: func() int64 { return 1e15 }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	limiter, err := ratelimit.New(store,
		algorithm.Budget(algorithm.SlidingLog(ratelimit.PerHour("hour", 1))))
	if err != nil {
		t.Fatal(err)
	}
	url := serve(httplimit.New(httplimit.PerKey(limiter, httplimit.Header("X-User")),
		httplimit.WithCounting(func(status int) bool { return status != http.StatusUnauthorized })))
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	for i, c := range []struct {
		path   string
		status int
	}{
		{"/401", http.StatusUnauthorized}, // not counted
		{"/401", http.StatusUnauthorized},
		{"/200", http.StatusOK},
		{"/200", http.StatusTooManyRequests},
		{"/401", http.StatusTooManyRequests},
	} {
		if a := get(t, client, url+c.path, "ann"); a.status != c.status {
			t.Errorf("request %d, %s: answered with %d, want %d", i, c.path, a.status, c.status)
		}
	}
}
