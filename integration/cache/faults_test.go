package cache

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// useUp uses up a limit of three on a fresh key and returns the demand, whose refusal s has cached.
func useUp(t testing.TB, s ratelimit.Store) driver.Demand {
	t.Helper()
	d := driver.Demand{Key: servers.FreshKey(t), Algorithm: clients.ThreeAnHour, N: 3}
	if res := clients.Ask(t, s, d); !res.Allowed {
		t.Fatalf("got %+v, want an admission", res)
	}
	d.N = 1
	clients.WantRefused(t, s, d, ratelimit.SourceStore)
	clients.WantCached(t, s, d)
	return d
}

// TestCacheAsksNothing: a server runs no script for refusals from the cache.
func TestCacheAsksNothing(t *testing.T) {
	const callers, each = 8, 125
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		control := tgt.Client(t)
		clients.EachCachingOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			s := lib.NewCache(t, clients.To(tgt),
				clients.CacheOptions{Options: serverstore.Options{Prefix: servers.UniquePrefix(),
					Timeout: clients.Patient}, Age: time.Hour})
			d := useUp(t, s)
			before := servers.CountScripts(t, control)
			if before == 0 {
				t.Fatal("the server has counted no script: this test proves nothing")
			}
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for range each {
						if res, err := s.Take(t.Context(), d); err != nil || res.Allowed ||
							res.Source != ratelimit.SourceCache {
							t.Errorf("got %+v, %v; want a refusal from the cache", res, err)
						}
					}
				})
			}
			wg.Wait()
			if n := servers.CountScripts(t, control) - before; n != 0 {
				t.Errorf("%d scripts ran for %d cached refusals, want none", n, callers*each)
			}
			if n := s.Stats().Cache.Hits; n != callers*each+1 {
				t.Errorf("got %d hits, want %d", n, callers*each+1)
			}
		})
	})
}

// TestCacheFrozen freezes a server whose refusals are cached. With the timeouts of Open they are
// returned for at most 1.5s, and errors follow; nothing is admitted, and everything works again
// when the server recovers.
func TestCacheFrozen(t *testing.T) {
	// 1.5s, and room for a busy machine; standstills are added
	const longest = 2500 * time.Millisecond
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		clients.EachCaching(t, func(t *testing.T, lib clients.Library) {
			s := lib.NewCache(t, clients.Dialing{Addrs: []string{server.Addr}},
				clients.CacheOptions{Age: time.Hour, Hasty: true,
					Options: serverstore.Options{Timeout: clients.PromptTimeout}})
			d := useUp(t, s)
			server.Pause(t)
			served, n, still := servedFromCache(t, s, d)
			servers.Measured("%s frozen, %s: %d refusals were given from the cache, for %v", image,
				lib.Name, n, served.Round(time.Millisecond))
			if served > longest+2*still {
				t.Errorf("the cache refused for %v, want at most %v; the machine stood still "+
					"for %v", served, longest, still)
			}
			if n == 0 || s.Stats().Cache.Flushes == 0 {
				t.Errorf("got %d cached refusals and %+v, want some and a flush", n,
					s.Stats().Cache)
			}
			server.Unpause(t)
			if res := clients.Decided(t, s, d); res.Allowed {
				t.Errorf("after the server recovered: got %+v, want a refusal", res)
			}
			servers.Within(t,
				func() bool { return clients.Decided(t, s, d).Source == ratelimit.SourceCache },
				"no refusal was cached again")
		})
	})
}

// servedFromCache takes from a server that does not answer until the cache is empty and five calls
// have failed. It returns for how long and how often the cache refused, and the longest time for
// which the machine stood still.
func servedFromCache(t testing.TB, s ratelimit.Store, d driver.Demand) (
	served time.Duration, n int, still time.Duration,
) {
	t.Helper()
	watched := servers.WatchStandstill()
	defer watched()
	start := time.Now()
	for errs := 0; errs < 5; {
		res, err := s.Take(t.Context(), d)
		switch {
		case err == nil && res.Allowed:
			t.Fatalf("got %+v, want errors: the server is unavailable", res)
		case err == nil && res.Source == ratelimit.SourceCache:
			served, n, errs = time.Since(start), n+1, 0
			time.Sleep(time.Millisecond)
		case err == nil:
			t.Fatalf("got %+v, want errors: the server is unavailable", res)
		case !errors.Is(err, ratelimit.ErrUnavailable) &&
			!errors.Is(err, ratelimit.ErrOutcomeUnknown):
			t.Fatal(err)
		default:
			errs++
		}
		if time.Since(start) > servers.FaultTimeout {
			t.Fatalf("the cache still refuses after %v", servers.FaultTimeout)
		}
	}
	return served, n, watched()
}

// TestCacheServerGone kills or stops a server: its clients notice at once and drop the cached
// refusals.
func TestCacheServerGone(t *testing.T) {
	const longest = time.Second // on a busy machine; standstills are added
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		clients.EachCaching(t, func(t *testing.T, lib clients.Library) {
			for _, fault := range []struct {
				what string
				act  func(testing.TB)
				kept bool // the server keeps its data
			}{{"kill", server.Kill, false}, {"stop", server.Stop, true}} {
				t.Run(fault.what, func(t *testing.T) {
					s := lib.NewCache(t, clients.Dialing{Addrs: []string{server.Addr}},
						clients.CacheOptions{Age: time.Hour, Hasty: true,
							Options: serverstore.Options{Timeout: clients.PromptTimeout}})
					d := useUp(t, s)
					fault.act(t)
					served, _, still := servedFromCache(t, s, d)
					servers.Measured("%s, %s after %s: refusals were given for %v", image, lib.Name,
						fault.what, served.Round(time.Millisecond))
					if served > longest+2*still {
						t.Errorf("the cache refused for %v, want at most %v; the machine stood "+
							"still for %v", served, longest, still)
					}
					if stats := s.Stats().Cache; stats.Flushes == 0 || stats.Entries != 0 {
						t.Errorf("got %+v, want a flush and no entry", stats)
					}
					server.Start(t)
					if res := clients.Decided(t, s, d); res.Allowed == fault.kept {
						t.Errorf("after the server recovered: got %+v, want Allowed %t", res,
							!fault.kept)
					}
					useUp(t, s)
				})
			}
		})
	})
}

// TestCacheFlushes: which commands of another client invalidate cached refusals, and how the
// statistics count them.
func TestCacheFlushes(t *testing.T) {
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		admin := servers.Connect(t, server.Addr)
		do := func(args ...any) func(testing.TB, driver.Demand) {
			return func(t testing.TB, _ driver.Demand) {
				t.Helper()
				if err := admin.Do(t.Context(), args...).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		stored := func(d driver.Demand) string {
			keys, err := admin.Keys(t.Context(), "*"+d.Key+"*").Result()
			if err != nil || len(keys) != 1 {
				t.Fatal(keys, err)
			}
			return keys[0]
		}
		for _, tt := range []struct {
			what      string
			act       func(testing.TB, driver.Demand)
			forgotten bool // by the server
			flushes   bool
			pushes    int64
		}{
			{what: "FLUSHALL", act: do("FLUSHALL"), forgotten: true, flushes: true},
			{what: "FLUSHDB", act: do("FLUSHDB"), forgotten: true, flushes: true},
			{what: "CLIENT KILL", act: do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
				flushes: true},
			{what: "DEL", act: func(t testing.TB,
				d driver.Demand) {
				do("DEL", stored(d))(t, d)
			}, forgotten: true, pushes: 1},
			{what: "expiry", act: func(t testing.TB,
				d driver.Demand) {
				do("PEXPIRE", stored(d), 1)(t, d)
			}, forgotten: true, pushes: 1},
			{what: "overwritten", act: func(t testing.TB,
				d driver.Demand) {
				do("SET", stored(d), "")(t, d)
			}, forgotten: true, pushes: 1},
		} {
			t.Run(tt.what, func(t *testing.T) {
				clients.EachCaching(t, func(t *testing.T, lib clients.Library) {
					s := lib.NewCache(t, clients.Dialing{Addrs: []string{server.Addr}},
						clients.CacheOptions{Age: time.Hour})
					d := useUp(t, s)
					servers.Within(t, func() bool { return s.Stats().Cache.Stored > 0 },
						"no refusal was stored")
					if stats := s.Stats().Cache; stats.Flushes != 0 || stats.Stored != 1 ||
						stats.Hits != 1 || stats.Entries != 1 || stats.Discarded != 0 {
						t.Errorf("before: got %+v, want one entry and one hit", stats)
					}
					tt.act(t, d)
					servers.Within(t, func() bool { return s.Stats().Cache.Entries == 0 },
						"the refusal was not dropped")
					if stats := s.Stats().Cache; stats.Flushes > 0 != tt.flushes ||
						stats.Invalidations < tt.pushes || stats.Bytes != 0 {
						t.Errorf("got %+v, want flushes: %t, invalidations: %d or more, no bytes",
							stats, tt.flushes, tt.pushes)
					}
					// the server pushed the change of the time to live, before the key expires
					if tt.what == "expiry" {
						servers.Within(t, func() bool { return clients.Decided(t, s, d).Allowed },
							"the key did not expire")
						return
					}
					if res := clients.Decided(t, s, d); res.Allowed != tt.forgotten ||
						res.Source != ratelimit.SourceStore {
						t.Errorf("got %+v, want Allowed %t from the store", res, tt.forgotten)
					}
				})
			})
		}
		t.Run("SCRIPT FLUSH", func(t *testing.T) {
			clients.EachCaching(t, func(t *testing.T, lib clients.Library) {
				s := lib.NewCache(t, clients.Dialing{Addrs: []string{server.Addr}},
					clients.CacheOptions{Age: time.Hour})
				d := useUp(t, s)
				do("SCRIPT", "FLUSH")(t, d)
				for range 10 {
					clients.WantRefused(t, s, d, ratelimit.SourceCache)
				}
				useUp(t, s) // loads the script again
				clients.WantRefused(t, s, d, ratelimit.SourceCache)
				servers.Within(t, func() bool { return s.Stats().Cache.Stored > 1 },
					"no second refusal was stored")
				if stats := s.Stats().Cache; stats.Flushes != 0 || stats.Stored != 2 ||
					stats.Entries != 2 {
					t.Errorf("got %+v, want no flush and two entries", stats)
				}
			})
		})
		// SWAPDB pushes no invalidation on any server.
		t.Run("SWAPDB", func(t *testing.T) {
			clients.EachCaching(t, func(t *testing.T, lib clients.Library) {
				const age = 200 * time.Millisecond
				s := lib.NewCache(t, clients.Dialing{Addrs: []string{server.Addr}},
					clients.CacheOptions{Age: age})
				d := useUp(t, s)
				start := time.Now()
				do("SWAPDB", 0, 1)(t, d)
				defer do("SWAPDB", 0, 1)(t, d)
				servers.Within(t, func() bool { return clients.Decided(t, s, d).Allowed },
					"the change was not seen")
				if seen := time.Since(start); seen > age+staleAfter {
					t.Errorf("the change was seen after %v, want at most %v", seen, age+staleAfter)
				}
			})
		})
	})
}

// TestCacheFlushesMeanwhile: a refusal that is in flight when the server deletes everything is not
// cached.
func TestCacheFlushesMeanwhile(t *testing.T) {
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		admin := servers.Connect(t, server.Addr)
		clients.EachCaching(t, func(t *testing.T, lib clients.Library) {
			s := lib.NewCache(t, clients.Dialing{Addrs: []string{server.Addr}},
				clients.CacheOptions{Age: time.Hour,
					Options: serverstore.Options{Timeout: clients.Patient}})
			for range 50 {
				d := driver.Demand{Key: servers.FreshKey(t),
					Algorithm: clients.ThreeAnHour, N: 3}
				clients.Ask(t, s, d)
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() { s.Take(t.Context(), d) })
				}
				if err := admin.FlushAll(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				wg.Wait() // one of them may have used up the limit again
				if err := admin.FlushAll(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				servers.Within(t, func() bool { return clients.Ask(t, s, d).Allowed },
					"a refusal from before FLUSHALL was kept")
			}
		})
	})
}
