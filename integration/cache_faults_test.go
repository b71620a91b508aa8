package integration

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

// threeAnHour is a limit that is soon used up and whose window no test outlasts.
var threeAnHour = algorithm.SlidingLog(ratelimit.PerHour(3))

// ask decides d, and wants no error.
func ask(t testing.TB, s ratelimit.Store, d ratelimit.Demand) ratelimit.Result {
	t.Helper()
	res, err := s.Take(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// wantRefused holds that s refuses d, and where that was decided.
func wantRefused(t testing.TB, s ratelimit.Store, d ratelimit.Demand, source ratelimit.Source) {
	t.Helper()
	if res := ask(t, s, d); res.Allowed || res.Source != source {
		t.Fatalf("%+v, want a refusal from %v", res, source)
	}
}

// useUp uses up a limit of three on a fresh key, and returns the demand whose refusal s has cached.
func useUp(t testing.TB, s ratelimit.Store) ratelimit.Demand {
	t.Helper()
	d := ratelimit.Demand{Key: freshKey(t), Algorithm: threeAnHour, N: 3}
	if res := ask(t, s, d); !res.Allowed {
		t.Fatalf("%+v", res)
	}
	d.N = 1
	wantRefused(t, s, d, ratelimit.SourceStore)
	wantRefused(t, s, d, ratelimit.SourceCache)
	return d
}

// within polls until done, for no longer than a fault may be felt.
func within(t testing.TB, done func() bool, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), faultTimeout)
	defer cancel()
	if err := poll(ctx, func() (bool, error) { return done(), nil }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// decided wants no more than an answer, which an unsettled connection may deny for a while.
func decided(t testing.TB, s ratelimit.Store, d ratelimit.Demand) (res ratelimit.Result) {
	t.Helper()
	within(t, func() bool {
		var err error
		res, err = s.Take(t.Context(), d)
		return err == nil
	}, "no decision")
	return res
}

// TestCacheAsksNothing counts the scripts that a server runs while refusals come from the cache.
func TestCacheAsksNothing(t *testing.T) {
	const callers, each = 8, 125
	eachTarget(t, func(t *testing.T, tgt *target) {
		control := tgt.client(t)
		eachCaching(t, func(t *testing.T, lib library) {
			s := lib.newCache(t, tgt.dialing(), cacheOptions{Options: redisstore.Options{Prefix: uniquePrefix(), Timeout: patient}, age: time.Hour})
			d := useUp(t, s)
			before := countScripts(t, control)
			if before == 0 {
				t.Fatal("no script was counted")
			}
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for range each {
						if res, err := s.Take(t.Context(), d); err != nil || res.Allowed || res.Source != ratelimit.SourceCache {
							t.Errorf("%+v, %v", res, err)
						}
					}
				})
			}
			wg.Wait()
			if n := countScripts(t, control) - before; n != 0 {
				t.Errorf("%d scripts ran for %d refusals", n, callers*each)
			}
			if n := s.CacheStats().Refusals; n != callers*each+1 {
				t.Errorf("%d refusals counted", n)
			}
		})
	})
}

// countScripts returns how many scripts the servers behind c have run.
func countScripts(t testing.TB, c redis.UniversalClient) (sum int64) {
	t.Helper()
	var mu sync.Mutex
	count := func(ctx context.Context, node *redis.Client) error {
		stats, err := node.InfoMap(ctx, "commandstats").Result()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, command := range []string{"eval", "evalsha"} {
			stat := stats["Commandstats"]["cmdstat_"+command]
			calls, _, _ := strings.Cut(strings.TrimPrefix(stat, "calls="), ",")
			var n int64
			if stat != "" {
				if n, err = strconv.ParseInt(calls, 10, 64); err != nil {
					return err
				}
			}
			sum += n
		}
		return nil
	}
	var err error
	if cluster, ok := c.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(t.Context(), count)
	} else {
		err = count(t.Context(), c.(*redis.Client))
	}
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// TestCacheFrozen freezes a server whose refusals are cached. With what Open sets they are given for no longer than 1.5s, then there are errors;
// nothing is admitted, and when the server is back all is as before.
func TestCacheFrozen(t *testing.T) {
	const longest = 2500 * time.Millisecond // with room for a machine that is busy with other tests
	eachImage(t, "redis:8", func(t *testing.T, image string) {
		server := startServer(t, image)
		eachCaching(t, func(t *testing.T, lib library) {
			s := lib.newCache(t, dialing{addrs: []string{server.addr}}, cacheOptions{age: time.Hour, hasty: true, Options: redisstore.Options{Timeout: promptTimeout}})
			d := useUp(t, s)
			server.pause(t)
			served, n := servedFromCache(t, s, d)
			ran.measured("%s frozen, %s: %d refusals were given from the cache, for %v", image, lib.name, n, served.Round(time.Millisecond))
			if served > longest {
				t.Errorf("refusals were given for %v", served)
			}
			if n == 0 || s.CacheStats().Flushes == 0 {
				t.Errorf("%d refusals, %+v", n, s.CacheStats())
			}
			server.unpause(t)
			if res := decided(t, s, d); res.Allowed {
				t.Errorf("%+v after the server is back", res)
			}
			within(t, func() bool { return decided(t, s, d).Source == ratelimit.SourceCache }, "not cached again")
		})
	})
}

// servedFromCache takes from a server that does not answer until the cache has nothing left, and a while longer. It returns for how long,
// and how often, the cache refused.
func servedFromCache(t testing.TB, s ratelimit.Store, d ratelimit.Demand) (served time.Duration, n int) {
	t.Helper()
	start := time.Now()
	for errs := 0; errs < 5; {
		res, err := s.Take(t.Context(), d)
		switch {
		case err == nil && res.Allowed:
			t.Fatalf("%+v from a server that is away", res)
		case err == nil && res.Source == ratelimit.SourceCache:
			served, n, errs = time.Since(start), n+1, 0
			time.Sleep(time.Millisecond)
		case err == nil:
			t.Fatalf("%+v from a server that is away", res)
		case !errors.Is(err, ratelimit.ErrUnavailable) && !errors.Is(err, ratelimit.ErrOutcomeUnknown):
			t.Fatal(err)
		default:
			errs++
		}
		if time.Since(start) > faultTimeout {
			t.Fatalf("still given after %v", faultTimeout)
		}
	}
	return served, n
}

// TestCacheServerGone kills a server, and stops one: its clients learn of it at once.
func TestCacheServerGone(t *testing.T) {
	const longest = time.Second // on a machine that is busy with other tests
	eachImage(t, "redis:8", func(t *testing.T, image string) {
		server := startServer(t, image)
		eachCaching(t, func(t *testing.T, lib library) {
			for _, fault := range []struct {
				what string
				act  func(testing.TB)
				kept bool // the server has what it held
			}{{"kill", server.kill, false}, {"stop", server.stop, true}} {
				t.Run(fault.what, func(t *testing.T) {
					s := lib.newCache(t, dialing{addrs: []string{server.addr}}, cacheOptions{age: time.Hour, hasty: true, Options: redisstore.Options{Timeout: promptTimeout}})
					d := useUp(t, s)
					fault.act(t)
					served, _ := servedFromCache(t, s, d)
					ran.measured("%s, %s after %s: refusals were given for %v", image, lib.name, fault.what, served.Round(time.Millisecond))
					if served > longest {
						t.Errorf("refusals were given for %v", served)
					}
					if stats := s.CacheStats(); stats.Flushes == 0 || stats.Entries != 0 {
						t.Errorf("%+v", stats)
					}
					server.start(t)
					if res := decided(t, s, d); res.Allowed == fault.kept {
						t.Errorf("%+v after the server is back", res)
					}
					useUp(t, s)
				})
			}
		})
	})
}

// TestCacheFlushes has another client do to a server what makes cached refusals untrue, or not, and reads the counters.
func TestCacheFlushes(t *testing.T) {
	eachImage(t, "redis:8", func(t *testing.T, image string) {
		server := startServer(t, image)
		admin := newCalm(t, server.addr)
		do := func(args ...any) func(testing.TB, ratelimit.Demand) {
			return func(t testing.TB, _ ratelimit.Demand) {
				t.Helper()
				if err := admin.Do(t.Context(), args...).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		stored := func(d ratelimit.Demand) string {
			keys, err := admin.Keys(t.Context(), "*"+d.Key+"*").Result()
			if err != nil || len(keys) != 1 {
				t.Fatal(keys, err)
			}
			return keys[0]
		}
		for _, tt := range []struct {
			what      string
			act       func(testing.TB, ratelimit.Demand)
			forgotten bool // by the server
			flushes   bool
			pushes    int64
		}{
			{what: "FLUSHALL", act: do("FLUSHALL"), forgotten: true, flushes: true},
			{what: "FLUSHDB", act: do("FLUSHDB"), forgotten: true, flushes: true},
			{what: "CLIENT KILL", act: do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"), flushes: true},
			{what: "DEL", act: func(t testing.TB, d ratelimit.Demand) { do("DEL", stored(d))(t, d) }, forgotten: true, pushes: 1},
			{what: "expiry", act: func(t testing.TB, d ratelimit.Demand) { do("PEXPIRE", stored(d), 1)(t, d) }, forgotten: true, pushes: 1},
			{what: "overwritten", act: func(t testing.TB, d ratelimit.Demand) { do("SET", stored(d), "")(t, d) }, forgotten: true, pushes: 1},
		} {
			t.Run(tt.what, func(t *testing.T) {
				eachCaching(t, func(t *testing.T, lib library) {
					s := lib.newCache(t, dialing{addrs: []string{server.addr}}, cacheOptions{age: time.Hour})
					d := useUp(t, s)
					if stats := s.CacheStats(); stats.Flushes != 0 || stats.Stored != 1 || stats.Refusals != 1 || stats.Entries != 1 || stats.Poisoned != 0 {
						t.Errorf("before: %+v", stats)
					}
					tt.act(t, d)
					within(t, func() bool { return s.CacheStats().Entries == 0 }, "not dropped")
					if stats := s.CacheStats(); stats.Flushes > 0 != tt.flushes || stats.Pushes < tt.pushes || stats.Bytes != 0 {
						t.Errorf("%+v", stats)
					}
					if tt.what == "expiry" { // it was told of the new time to live, which is not over
						within(t, func() bool { return decided(t, s, d).Allowed }, "not expired")
						return
					}
					if res := decided(t, s, d); res.Allowed != tt.forgotten || res.Source != ratelimit.SourceStore {
						t.Errorf("%+v", res)
					}
				})
			})
		}
		t.Run("SCRIPT FLUSH", func(t *testing.T) {
			eachCaching(t, func(t *testing.T, lib library) {
				s := lib.newCache(t, dialing{addrs: []string{server.addr}}, cacheOptions{age: time.Hour})
				d := useUp(t, s)
				do("SCRIPT", "FLUSH")(t, d)
				for range 10 {
					wantRefused(t, s, d, ratelimit.SourceCache)
				}
				useUp(t, s) // with the script unknown
				wantRefused(t, s, d, ratelimit.SourceCache)
				if stats := s.CacheStats(); stats.Flushes != 0 || stats.Stored != 2 || stats.Entries != 2 {
					t.Errorf("%+v", stats)
				}
			})
		})
		// No server tells of SWAPDB.
		t.Run("SWAPDB", func(t *testing.T) {
			eachCaching(t, func(t *testing.T, lib library) {
				const age = 200 * time.Millisecond
				s := lib.newCache(t, dialing{addrs: []string{server.addr}}, cacheOptions{age: age})
				d := useUp(t, s)
				start := time.Now()
				do("SWAPDB", 0, 1)(t, d)
				defer do("SWAPDB", 0, 1)(t, d)
				within(t, func() bool { return decided(t, s, d).Allowed }, "never seen")
				if seen := time.Since(start); seen > age+staleAfter {
					t.Errorf("seen after %v", seen)
				}
			})
		})
	})
}

// TestCacheFlushesMeanwhile holds that a refusal that is on its way when the server forgets everything is not kept.
func TestCacheFlushesMeanwhile(t *testing.T) {
	eachImage(t, "redis:8", func(t *testing.T, image string) {
		server := startServer(t, image)
		admin := newCalm(t, server.addr)
		eachCaching(t, func(t *testing.T, lib library) {
			s := lib.newCache(t, dialing{addrs: []string{server.addr}}, cacheOptions{age: time.Hour, Options: redisstore.Options{Timeout: patient}})
			for range 50 {
				d := ratelimit.Demand{Key: freshKey(t), Algorithm: threeAnHour, N: 3}
				ask(t, s, d)
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
				within(t, func() bool { return ask(t, s, d).Allowed }, "a refusal from before FLUSHALL was kept")
			}
		})
	})
}
