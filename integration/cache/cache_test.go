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

// TestCachedRefusals: repeated demands are refused from the cache.
func TestCachedRefusals(t *testing.T) {
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		clients.EachCachingOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			store := lib.NewCache(t, clients.To(tgt),
				clients.CacheOptions{Options: serverstore.Options{Prefix: servers.UniquePrefix(),
					Timeout: clients.Patient}, Age: time.Hour})
			d := driver.Demand{Key: "k",
				Algorithm: algorithm.SlidingLog(ratelimit.PerHour("hour", 3)), N: 1}
			ask := func(allowed bool, source ratelimit.Source) {
				t.Helper()
				res, err := store.Take(t.Context(), d)
				if err != nil || res.Allowed != allowed || res.Source != source {
					t.Fatalf("%+v, %v; want Allowed %t from %v", res, err, allowed, source)
				}
			}
			for range 3 {
				ask(true, ratelimit.SourceStore)
			}
			ask(false, ratelimit.SourceStore)
			clients.WantCached(t, store, d)
			for range 99 {
				ask(false, ratelimit.SourceCache)
			}
			// a refusal is counted after it can be returned
			servers.Within(t, func() bool { return store.Stats().Cache.Stored > 0 },
				"no refusal was stored")
			if s := store.Stats().Cache; !s.Enabled || s.Hits != 100 || s.Stored != 1 ||
				s.Entries != 1 || s.Bytes <= 0 {
				t.Errorf("got %+v, want 100 hits on one stored entry", s)
			}
		})
	})
}
