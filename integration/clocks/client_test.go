package clocks

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/storeclock"
)

// TestClockOfClient decides in turn through a client with the right time and one in a synctest
// bubble, whose clock says 2000. Both count the same units by the server's clock, and
// RetryAfter is exact.
func TestClockOfClient(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		clients.EachOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			clockOfClient(t, func(t testing.TB, opts *serverstore.Options) ratelimit.Store {
				return lib.Client(t, clients.To(tgt)).NewStore(t, opts)
			}, func(t testing.TB, s ratelimit.Store, d driver.Demand) {
				clients.WantRefused(t, s, d, ratelimit.SourceStore)
			})
		})
		t.Run("cached", func(t *testing.T) {
			clients.EachCachingOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
				clockOfClient(t, func(t testing.TB, opts *serverstore.Options) ratelimit.Store {
					return lib.Caching(clients.To(tgt)).Store(t, opts)
				}, func(t testing.TB, s ratelimit.Store, d driver.Demand) {
					clients.WantCached(t, s, d)
				})
			})
		})
	})
}

// clockOfClient calls the parameter again after each refusal on the client with the wrong clock.
func clockOfClient(
	t *testing.T, open func(testing.TB, *serverstore.Options) ratelimit.Store,
	again func(testing.TB, ratelimit.Store, driver.Demand),
) {
	opts := serverstore.Options{Prefix: servers.UniquePrefix(), Timeout: clients.Patient}
	limit := ratelimit.PerMinute("minute", 9)
	d := driver.Demand{Key: "key", Algorithm: algorithm.SlidingLog(limit), N: 3}
	var results, shown []ratelimit.Result
	ask := func(t testing.TB, s ratelimit.Store) ratelimit.Result {
		t.Helper()
		out := make([]ratelimit.Result, 2)
		if err := s.TakeAll(t.Context(),
			[]driver.Demand{d, storeclock.Show(d.Key)}, out); err != nil {
			t.Fatal(err)
		}
		results, shown = append(results, out[0]), append(shown, out[1])
		return out[0]
	}
	right := open(t, &opts)
	start := time.Now()
	for range 2 {
		ask(t, right)
		synctest.Test(t, func(t *testing.T) {
			if year := time.Now().UTC().Year(); year != 2000 {
				t.Fatalf("the year of the client's clock is %d, want 2000", year)
			}
			// A client of a cluster closes connections seconds later, and no time passes after the
			// test.
			t.Cleanup(func() { time.Sleep(time.Minute) })
			wrong := open(t, &opts)
			if res := ask(t, wrong); !res.Allowed {
				again(t, wrong, d)
			}
		})
	}
	first := storeclock.Of(shown[0], start.UnixMicro())
	for i, res := range results {
		if i < 3 != res.Allowed || res.Remaining != max(0, limit.Max-d.N*int64(i+1)) ||
			res.Source != ratelimit.SourceStore {
			t.Errorf("%d: got %+v, want Allowed %t from the store", i, res, i < 3)
		}
		since := time.Duration(storeclock.Of(shown[i], start.UnixMicro())-first) * time.Microsecond
		if since < 0 || since > time.Since(start)+stepSlack {
			t.Errorf("%d: decided %v after the first, want the time that has passed", i,
				since)
		}
		if !res.Allowed && res.RetryAfter != limit.Window-since {
			t.Errorf("%d: RetryAfter %v, want %v", i, res.RetryAfter, limit.Window-since)
		}
	}
}
