package faults

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/layer"
)

// TestShortDeadlines calls with deadlines that are too short, as clients of a service can. On a
// healthy server such calls get no more than the limit and open no breaker. On a frozen server the
// breaker still opens, within a second on a quiet machine, and calls that have time left are
// answered at once.
func TestShortDeadlines(t *testing.T) {
	t.Parallel()
	image := faultImages()[0]
	server := servers.Start(t, image)
	for _, lib := range clients.Libraries {
		t.Run(lib.Name, func(t *testing.T) {
			c := lib.Client(t, clients.Dialing{Addrs: []string{server.Addr}, Prompt: true})
			guarded, err := layer.NewBreaker(c.NewStore(t, nil), nil)
			if err != nil {
				t.Fatal(err)
			}
			local, err := layer.NewDegraded(guarded, &layer.DegradedOptions{Instances: 2})
			if err != nil {
				t.Fatal(err)
			}
			defer local.Close()
			open := twoAnHour(t, guarded).WithPolicy(ratelimit.FailOpen)

			// The limit is used up, and the server is healthy.
			key := servers.FreshKey(t)
			patient := c.NewStore(t, &serverstore.Options{Timeout: clients.Patient})
			servers.Within(t, func() bool {
				_, err := twoAnHour(t, patient).AllowN(t.Context(), key, 2)
				return err == nil // the outcome of an earlier one may be unknown on a busy machine
			}, "the limit is not used up")
			var admitted atomic.Int64
			hasty(25, 20,
				func(i int) time.Duration { return time.Duration(i%10) * 10 * time.Microsecond },
				func(ctx context.Context) {
					if res, _ := open.Allow(ctx, key); res.Allowed {
						admitted.Add(1)
					}
				})
			if n := admitted.Load(); n > 0 {
				t.Errorf("%d admitted beyond the limit", n)
			}
			if st := guarded.Stats(); st.Opened > 0 {
				t.Errorf("callers with short deadlines opened the breaker of a healthy server: %+v",
					st)
			}

			server.Signal(t, "SIGSTOP")
			defer server.Signal(t, "SIGCONT")
			began := time.Now()
			for guarded.Stats().Opened == 0 {
				if time.Since(began) > servers.FaultTimeout {
					t.Fatalf("the breaker does not open: %+v", guarded.Stats())
				}
				hasty(25, 1, func(int) time.Duration { return 20 * time.Millisecond },
					func(ctx context.Context) {
						_, _ = open.Allow(ctx, key)
					})
			}
			servers.Measured("%s frozen, %s: with deadlines of 20ms the breaker opened after %v",
				image, lib.Name, time.Since(began).Round(time.Millisecond))
			within, cancel := context.WithTimeout(t.Context(), clients.Patient)
			defer cancel()
			if res, err := open.Allow(within, key); err != nil ||
				res.Source != ratelimit.SourceOpen {
				t.Errorf("FailOpen: %+v, %v", res, err)
			}
			if res, err := twoAnHour(t, local).Allow(within, servers.FreshKey(t)); err != nil ||
				res.Source != ratelimit.SourceLocal {
				t.Errorf("Degraded: %+v, %v", res, err)
			}
		})
	}
}

func twoAnHour(t testing.TB, s ratelimit.Store) *ratelimit.Limiter {
	t.Helper()
	l, err := ratelimit.New(s, algorithm.SlidingLog(ratelimit.PerHour("hour", 2)))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// hasty runs n callers that make as many calls each, with the deadline of the i-th call.
func hasty(n, each int, deadline func(i int) time.Duration, call func(context.Context)) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for i := range each {
				ctx, cancel := context.WithTimeout(context.Background(), deadline(i))
				call(ctx)
				cancel()
			}
		})
	}
	wg.Wait()
}
