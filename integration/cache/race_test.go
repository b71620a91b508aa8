package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// A cacheRace is a change by another client while a cached store is being refused.
type cacheRace struct {
	name   string
	change driver.Demand // the other client's demand
	after  algorithm.Log // a log that then has room
	// whether a second limit, which refuses nothing, is beside the first
	beside bool
}

// demands returns demands for one unit of key under a and, if race.beside is set, under the second
// limit. Their order depends on the key.
func (race cacheRace) demands(key string, a algorithm.Log) []driver.Demand {
	ds := []driver.Demand{{Key: key, Algorithm: a, N: 1}}
	if race.beside {
		ds = append(ds, driver.Demand{Key: key, Algorithm: besideLog, N: 1})
		if len(key)%2 == 0 {
			slices.Reverse(ds)
		}
	}
	return ds
}

const (
	racedUnits  = 8
	racedTakers = 3
	staleAfter  = servers.FaultTimeout // a stale refusal would last an hour
)

var (
	racedLog  = algorithm.SlidingLog(ratelimit.PerHour("raced", racedUnits))
	raisedLog = algorithm.SlidingLog(ratelimit.PerHour("raced", 2*racedUnits))

	// besideLog refuses nothing.
	besideLog = algorithm.SlidingLog(ratelimit.PerDay("beside", 1_000_000))
)

// promptly bounds how late a change is seen on an idle machine.
const promptly = 50 * time.Millisecond

var cacheRaces = []cacheRace{
	{"reset", driver.Demand{Algorithm: racedLog, Op: driver.OpReset}, racedLog, false},
	{"raised limit", driver.Demand{Algorithm: raisedLog, N: 1}, raisedLog, false},
}

// TestCacheRaces: a cached store sees every change that another client makes while the store is
// being refused, under one limit or two. With RATELIMIT_FULL set each server gets 10,000 changes of
// each kind.
func TestCacheRaces(t *testing.T) {
	t.Parallel()
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		rounds := 100
		switch {
		case depth.Full && !tgt.Cluster:
			rounds = 10_000
		case tgt.Image == servers.Newest():
			rounds = 300
		}
		clients.EachCachingOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			for _, race := range cacheRaces {
				for _, beside := range []bool{false, true} {
					race.beside = beside
					t.Run(fmt.Sprintf("%s/two=%t", race.name, beside), func(t *testing.T) {
						opts := serverstore.Options{Prefix: servers.UniquePrefix(),
							Timeout: clients.Patient}
						store := lib.NewCache(t, clients.To(tgt),
							clients.CacheOptions{Options: opts, Age: time.Hour})
						race.rounds(t, tgt.Name+", "+lib.Name, rounds, store,
							clients.CalmStore(t, tgt, &opts))
						if s := store.Stats().Cache; s.Hits == 0 || s.Discarded == 0 ||
							s.Invalidations == 0 {
							t.Errorf("got %+v, want hits, discards and invalidations: this test "+
								"proves nothing", s)
						}
					})
				}
			}
		})
	})
}

// TestCacheRacesWhileSlotsMove is TestCacheRaces in a slot of a cluster that keeps moving from one
// server to another.
func TestCacheRacesWhileSlotsMove(t *testing.T) {
	t.Parallel()
	rounds := depth.Of(100, 3000)
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		cl := servers.StartCluster(t, image)
		admin := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cl.Addrs()})
		defer admin.Close()
		clients.EachCaching(t, func(t *testing.T, lib clients.Library) {
			for _, race := range cacheRaces {
				for _, beside := range []bool{false, true} {
					race.beside = beside
					t.Run(fmt.Sprintf("%s/two=%t", race.name, beside), func(t *testing.T) {
						// a slot without other keys, so that it moves quickly
						tag := servers.FreshKey(t)
						opts := serverstore.Options{Prefix: servers.UniquePrefix(),
							Timeout: clients.Patient, Tag: func(string) string { return tag }}
						store := lib.NewCache(t, clients.Dialing{Addrs: cl.Addrs(), Cluster: true},
							clients.CacheOptions{Options: opts, Age: time.Hour})
						other, err := redisstore.New(admin, &opts)
						if err != nil {
							t.Fatal(err)
						}
						defer other.Close()
						var over atomic.Bool
						var moves atomic.Int64
						var mover sync.WaitGroup
						mover.Go(func() {
							for !over.Load() && !t.Failed() {
								moveSlot(t, admin, "{="+tag+"}")
								moves.Add(1)
								time.Sleep(20 * time.Millisecond)
							}
						})
						// moves take long on a busy machine
						for first := true; first || moves.Load() < 2 && !t.Failed(); first = false {
							race.rounds(t, image+" cluster whose slots move, "+lib.Name,
								rounds, store, other)
						}
						over.Store(true)
						mover.Wait()
						if stats := store.Stats().Cache; stats.Hits == 0 {
							t.Errorf("got %+v, want hits: this test proves nothing", stats)
						}
					})
				}
			}
		})
	})
}

// rounds runs race that many times, each on its own key, and records how soon store sees the
// changes. In a full run it fails if a cached refusal comes too late after a change.
func (race cacheRace) rounds(
	t *testing.T, where string, rounds int, store clients.Caching, other ratelimit.Store,
) {
	t.Helper()
	all, prefix := make([]sighting, rounds), servers.FreshKey(t)
	r := rand.New(rand.NewPCG(uint64(rounds), 6))
	standstill := servers.WatchStandstill()
	for i := range all {
		seen, err := race.run(t.Context(), store, other, fmt.Sprint(prefix, i), r)
		if err != nil {
			t.Errorf("round %d: %v; %+v", i, err, store.Stats().Cache)
			return
		}
		all[i] = seen
	}
	still := standstill()
	admitted := sorted(all, func(s sighting) time.Duration { return s.admitted })
	refused := sorted(all, func(s sighting) time.Duration { return s.refused })
	given := 0
	for _, s := range all {
		given = max(given, s.given)
	}
	limits := "one limit"
	if race.beside {
		limits = "two limits"
	}
	servers.Measured("%s, %d × %s by another client, %s: admitted after %v at the median, "+
		"%v at 99 %%, %v at most; last refused from the cache after %v at 99 %%, %v at most; "+
		"%d refusals given meanwhile at most, %d in all that came too late to be kept; "+
		"the machine stood still for up to %v",
		where, rounds, race.name, limits, micros(admitted[rounds/2]),
		micros(admitted[rounds*99/100]),
		micros(admitted[rounds-1]), micros(refused[rounds*99/100]), micros(refused[rounds-1]),
		given, store.Stats().Cache.Discarded, micros(still))
	if late := refused[rounds-1]; depth.Full && late > promptly+2*still {
		t.Errorf("the cache refused %v after the change, want at most %v; the machine stood still "+
			"for up to %v", late, promptly, still)
	}
}

// A sighting is how soon after a change a store admitted, and when its cache refused last.
type sighting struct {
	admitted, refused time.Duration
	given             int // number of refusals after the change
}

func sorted(all []sighting, of func(sighting) time.Duration) []time.Duration {
	times := make([]time.Duration, len(all))
	for i, s := range all {
		times[i] = of(s)
	}
	slices.Sort(times)
	return times
}

func micros(d time.Duration) time.Duration { return d.Round(time.Microsecond) }

// run fills the log of key, has several goroutines ask store for more, changes the log through the
// store other meanwhile, and asks store until it admits.
func (race cacheRace) run(
	ctx context.Context, store, other ratelimit.Store, key string, r *rand.Rand,
) (seen sighting, err error) {
	fill := driver.Demand{Key: key, Algorithm: racedLog, N: racedUnits}
	if _, err := other.Take(ctx, fill); err != nil {
		return sighting{}, err
	}
	one := race.demands(key, racedLog)
	takers, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	failed := make([]error, racedTakers)
	for i := range failed {
		wg.Go(func() {
			for takers.Err() == nil {
				if answer, err := asked(ctx, store, one...); answer == admission || err != nil {
					failed[i] = err
					return
				}
			}
		})
	}
	for range r.IntN(4) { // 0: the first refusals are in flight; 3: one is cached
		if _, err := asked(ctx, store, one...); err != nil {
			return sighting{}, err
		}
	}
	change := race.change
	change.Key = key
	if res, err := other.Take(ctx, change); err != nil || !res.Allowed {
		return sighting{}, fmt.Errorf("the change got %+v, %v; want an admission", res, err)
	}
	changed := time.Now()
	after := race.demands(key, race.after)
	for {
		asking := time.Since(changed)
		answer, err := asked(ctx, store, after...)
		if err != nil {
			return sighting{}, err
		}
		if answer == admission {
			break
		}
		seen.given++
		if answer == cachedRefusal {
			seen.refused = asking
		}
		if asking > staleAfter {
			return sighting{}, fmt.Errorf("still refused %v after the change", staleAfter)
		}
	}
	seen.admitted = time.Since(changed)
	// the takers ask for the same, so each of them is admitted in the end
	if race.after == racedLog {
		within := time.AfterFunc(staleAfter, stop)
		wg.Wait()
		if !within.Stop() {
			return sighting{}, fmt.Errorf("other goroutines are still refused %v later", staleAfter)
		}
	} else {
		stop()
		wg.Wait()
	}
	return seen, errors.Join(failed...)
}

// An answer is how a caching store answered.
type answer int

const (
	admission answer = iota
	refusal
	cachedRefusal
)

// asked is a TakeAll that yields the processor after a refusal from the cache.
func asked(
	ctx context.Context, store ratelimit.Store, ds ...driver.Demand,
) (answer, error) {
	began := time.Now()
	out := make([]ratelimit.Result, len(ds))
	err := store.TakeAll(ctx, ds, out)
	switch {
	case err != nil:
		return refusal, fmt.Errorf("after %v: %w", time.Since(began), err)
	case out[0].Source == ratelimit.SourceCache:
		time.Sleep(20 * time.Microsecond)
		return cachedRefusal, nil
	case slices.ContainsFunc(out, func(res ratelimit.Result) bool { return !res.Allowed }):
		return refusal, nil
	}
	return admission, nil
}
