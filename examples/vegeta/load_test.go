// Package vegeta tests with a load generator that a limit admits exactly what it says.
package vegeta

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/httplimit"
)

const (
	limit    = 100 // requests of a user in an hour
	rate     = 300 // requests of all users in a second
	duration = 2 * time.Second
)

func TestExactUnderLoad(t *testing.T) {
	store, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerHour("hour", limit)))
	if err != nil {
		t.Fatal(err)
	}
	var worked atomic.Int64
	handler := httplimit.New(httplimit.PerKey(limiter, httplimit.Header("X-User")))(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { worked.Add(1) }))
	server := httptest.NewServer(handler)
	defer server.Close()

	users := []string{"ann", "bob"}
	var targets []vegeta.Target
	for _, user := range users {
		targets = append(targets, vegeta.Target{
			Method: http.MethodGet, URL: server.URL, Header: http.Header{"X-User": {user}},
		})
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	attacker := vegeta.NewAttacker(vegeta.Client(&http.Client{Transport: transport}))
	statuses := map[uint16]int{}
	for result := range attacker.Attack(vegeta.NewStaticTargeter(targets...),
		vegeta.Rate{Freq: rate, Per: time.Second}, duration, "limit") {
		statuses[result.Code]++
		if result.Code == http.StatusTooManyRequests && result.Headers.Get("Retry-After") == "" {
			t.Error("a refusal without Retry-After")
		}
	}

	admitted, sent := len(users)*limit, 0
	for _, n := range statuses {
		sent += n
	}
	if sent < 2*admitted { // a busy generator sends fewer than the rate says
		t.Fatalf("only %d requests were sent", sent)
	}
	want := map[uint16]int{
		http.StatusOK: admitted, http.StatusTooManyRequests: sent - admitted,
	}
	if !maps.Equal(statuses, want) {
		t.Errorf("answered with %v, want %v", statuses, want)
	}
	if n := worked.Load(); n != int64(admitted) {
		t.Errorf("the handler worked %d times, want %d", n, admitted)
	}
}
