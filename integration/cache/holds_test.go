package cache

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestCacheHolds: a refusal because of a hold is cached until the hold is renewed or settled, by
// this store or another.
func TestCacheHolds(t *testing.T) {
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		clients.EachCachingOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			opts := clients.CacheOptions{Options: serverstore.Options{
				Prefix: servers.UniquePrefix(), Timeout: clients.Patient}, Age: time.Hour}
			s := lib.NewCache(t, clients.To(tgt), opts)
			other := lib.NewCache(t, clients.To(tgt), opts)
			for what, by := range map[string]ratelimit.Store{"own": s, "another": other} {
				d := driver.Demand{Key: servers.FreshKey(t), N: 5,
					Algorithm: algorithm.Budget(
						algorithm.SlidingLog(ratelimit.PerHour("held", 10)))}
				do := func(op driver.Op, n int64) {
					t.Helper()
					d := d
					d.Op, d.N, d.ID = op, n, 7
					if res := clients.Ask(t, by, d); !res.Allowed || op == driver.OpHold &&
						res.Units != 8 {
						t.Fatalf("%s: %v of %d: %+v", what, op, n, res)
					}
				}
				do(driver.OpHold, 8)
				clients.WantRefused(t, s, d, ratelimit.SourceStore)
				clients.WantCached(t, s, d)
				do(driver.OpHold, 0)
				servers.Within(t, func() bool {
					return clients.Ask(t, s, d).Source == ratelimit.SourceStore
				}, what+": a renewal leaves the cached refusal")
				clients.WantCached(t, s, d)
				do(driver.OpSettle, 0)
				servers.Within(t, func() bool { return clients.Ask(t, s, d).Allowed },
					what+": refused after the settlement")
			}
		})
	})
}
