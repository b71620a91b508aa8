package integration

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

// TestClockOfClient decides in turn through a client that knows the time and one for which it is the year 2000, as it is in a bubble of synctest.
// Both count the same units at stamps of the server's clock, and are told truly how long to wait.
func TestClockOfClient(t *testing.T) {
	eachServer(t, func(t *testing.T, tgt *target) {
		eachLibrary(t, func(t *testing.T, lib library) {
			clockOfClient(t, func(t testing.TB, opts *redisstore.Options) ratelimit.Store {
				return lib.client(t, tgt.dialing()).newStore(t, opts)
			}, ratelimit.SourceStore)
		})
		t.Run("cached", func(t *testing.T) {
			eachCaching(t, func(t *testing.T, lib library) {
				clockOfClient(t, func(t testing.TB, opts *redisstore.Options) ratelimit.Store {
					return lib.caching(tgt.dialing()).store(t, opts)
				}, ratelimit.SourceCache)
			})
		})
	})
}

// clockOfClient is told where a refusal is decided that was given before.
func clockOfClient(t *testing.T, open func(testing.TB, *redisstore.Options) ratelimit.Store, again ratelimit.Source) {
	opts := redisstore.Options{Prefix: uniquePrefix(), Timeout: patient}
	limit := ratelimit.PerMinute(9)
	d := ratelimit.Demand{Key: "key", Algorithm: algorithm.SlidingLog(limit), N: 3}
	var results []ratelimit.Result
	right := open(t, &opts)
	start := time.Now()
	for range 2 {
		results = append(results, ask(t, right, d))
		synctest.Test(t, func(t *testing.T) {
			if year := time.Now().UTC().Year(); year != 2000 {
				t.Fatalf("the client knows that it is %d", year)
			}
			wrong := open(t, &opts)
			res := ask(t, wrong, d)
			if results = append(results, res); !res.Allowed {
				wantRefused(t, wrong, d, again)
			}
		})
	}
	for i, res := range results {
		if i < 3 != res.Allowed || res.Remaining != max(0, limit.Max-d.N*int64(i+1)) || res.Source != ratelimit.SourceStore {
			t.Errorf("%d: %+v", i, res)
		}
		since := time.Duration(res.At-results[0].At) * time.Microsecond
		if since < 0 || since > time.Since(start)+stepSlack {
			t.Errorf("%d: stamped %v after the first", i, since)
		}
		if !res.Allowed && res.RetryAfter != limit.Window-since {
			t.Errorf("%d: RetryAfter %v, want %v", i, res.RetryAfter, limit.Window-since)
		}
	}
}
