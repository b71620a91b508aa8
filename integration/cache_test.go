package integration

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

// TestCachedRefusals asks again for what was refused, and the server hears nothing of it.
func TestCachedRefusals(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		eachCaching(t, func(t *testing.T, lib library) {
			store := lib.newCache(t, tgt.dialing(), cacheOptions{Options: redisstore.Options{Prefix: uniquePrefix(), Timeout: patient}, age: time.Hour})
			d := ratelimit.Demand{Key: "k", Algorithm: algorithm.SlidingLog(ratelimit.PerHour(3)), N: 1}
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
			for range 100 {
				ask(false, ratelimit.SourceCache)
			}
			if s := store.CacheStats(); !s.Enabled || s.Refusals != 100 || s.Stored != 1 || s.Entries != 1 || s.Bytes <= 0 {
				t.Errorf("%+v", s)
			}
		})
	})
}
