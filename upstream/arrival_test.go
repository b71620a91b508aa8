package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/upstream"
)

// trip is one request from the decision to its arrival, as times since a start.
type trip struct{ decided, arrived time.Duration }

// decidedKey is the key of a *time.Duration in the context of a request: when it was admitted.
type decidedKey struct{}

// timedStore tells requests when they were admitted.
type timedStore struct {
	ratelimit.Store
	start time.Time
}

func (s timedStore) TakeAll(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) error {
	decided := time.Since(s.start)
	err := s.Store.TakeAll(ctx, ds, out)
	if out[ratelimit.Binding(out)].Allowed {
		*ctx.Value(decidedKey{}).(*time.Duration) = decided
	}
	return err
}

// TestArrival counts at an upstream, in real time, the requests of two transports on one store: no
// window of a second holds more than the limit. It runs again if the machine is so busy that the
// times to the upstream differ by more than the margin, because the margin then promises nothing.
func TestArrival(t *testing.T) {
	const (
		limit  = 50
		margin = upstream.DefaultMargin
		tries  = 5
	)
	failed := false
	for range tries {
		trips, err := arrivals(t, limit, 1900*time.Millisecond)
		var at []time.Duration
		shortest, longest := time.Hour, time.Duration(0)
		for _, p := range trips {
			at = append(at, p.arrived)
			shortest = min(shortest, p.arrived-p.decided)
			longest = max(longest, p.arrived-p.decided)
		}
		most := mostInWindow(at, time.Second)
		t.Logf("%d requests, from %v to %v on their way; the fullest second held %d of %d",
			len(trips), shortest, longest, most, limit)
		switch {
		case err != nil || len(trips) != 2*limit: // on a busy machine some end at the deadline
			failed = true
			t.Logf("%d requests arrived, want %d: %v", len(trips), 2*limit, err)
		case most <= limit:
			return
		case longest-shortest < margin:
			t.Fatalf("a second held %d requests, more than the limit of %d", most, limit)
		}
	}
	if failed {
		t.Fatal("requests failed, or not exactly those that the limit admits arrived")
	}
	t.Skip("the machine is too busy: the times to the upstream differ by more than the margin")
}

// arrivals lets workers of two transports send as many requests as they can for some time, and
// returns the trips of the requests. failure is the error of a request that failed for another
// reason than the limit.
func arrivals(t *testing.T, limit int64, length time.Duration) (trips []trip, failure error) {
	t.Helper()
	const workers = 40 // of each transport
	store, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	start := time.Now()
	var mu sync.Mutex
	arrived := make(map[string]time.Duration)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		at := time.Since(start)
		mu.Lock()
		defer mu.Unlock()
		arrived[r.Header.Get("Name")] = at
	}))
	defer server.Close()
	decided := make(map[string]time.Duration)
	ctx, cancel := context.WithDeadline(t.Context(), start.Add(length))
	defer cancel()
	var all sync.WaitGroup
	for i := range 2 {
		base := &http.Transport{MaxIdleConnsPerHost: workers}
		defer base.CloseIdleConnections()
		rt := newTransport(t, timedStore{store, start}, upstream.Options{Base: base},
			ratelimit.PerSecond("maps", limit))
		for j := range workers {
			all.Go(func() {
				for k := 0; ; k++ {
					name := fmt.Sprint(i, j, k)
					var at time.Duration
					r := getFrom(context.WithValue(ctx, decidedKey{}, &at), server.URL)
					r.Header.Set("Name", name)
					res, err := rt.RoundTrip(r)
					if errors.As(err, new(*upstream.LimitError)) {
						return // the deadline is too near
					}
					if err != nil {
						mu.Lock()
						failure = err
						mu.Unlock()
						return
					}
					res.Body.Close()
					mu.Lock()
					decided[name] = at
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	for name, at := range arrived {
		trips = append(trips, trip{decided[name], at})
	}
	return trips, failure
}
