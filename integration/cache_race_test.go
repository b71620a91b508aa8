package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

// A cacheRace is a change by another client while refusals of a cached store are on their way.
type cacheRace struct {
	name   string
	change func(full ratelimit.Result) ratelimit.Demand // what the other asks for
	after  algorithm.Log                                // under which there is room then
}

const (
	racedUnits  = 8
	racedTakers = 3
	staleAfter  = 5 * time.Second // a stale refusal would be given for an hour
)

var (
	racedLog  = algorithm.SlidingLog(ratelimit.PerHour(racedUnits).Named("raced"))
	raisedLog = algorithm.SlidingLog(ratelimit.PerHour(2 * racedUnits).Named("raced"))
)

var cacheRaces = []cacheRace{
	{"reset", func(ratelimit.Result) ratelimit.Demand {
		return ratelimit.Demand{Algorithm: racedLog, Op: ratelimit.Reset}
	}, racedLog},
	{"giveback", func(full ratelimit.Result) ratelimit.Demand {
		return ratelimit.Demand{Algorithm: racedLog, Op: ratelimit.GiveBack, N: racedUnits, At: full.At}
	}, racedLog},
	{"raised limit", func(ratelimit.Result) ratelimit.Demand { return ratelimit.Demand{Algorithm: raisedLog, N: 1} }, raisedLog},
}

// TestCacheRaces changes states that a cached store is just being refused, from another client: it sees every change at once. With
// RATELIMIT_FULL set there are 10,000 changes of each kind on a server.
func TestCacheRaces(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, tgt *target) {
		rounds := 300
		if full && !tgt.cluster {
			rounds = 10_000
		}
		eachCaching(t, func(t *testing.T, lib library) {
			for _, race := range cacheRaces {
				t.Run(race.name, func(t *testing.T) {
					opts := redisstore.Options{Prefix: uniquePrefix(), Timeout: patient}
					store := lib.newCache(t, tgt.dialing(), cacheOptions{Options: opts, age: time.Hour})
					other := calmStore(t, tgt, &opts)
					seen, most := make([]time.Duration, rounds), 0
					r := rand.New(rand.NewPCG(uint64(rounds), 6))
					for i := range seen {
						after, given, err := race.run(t.Context(), store, other, fmt.Sprint("k", i), r)
						if err != nil {
							t.Fatalf("round %d: %v; %+v", i, err, store.CacheStats())
						}
						seen[i], most = after, max(most, given)
					}
					slices.Sort(seen)
					s := store.CacheStats()
					ran.measured("%s, %s, %d × %s by another client: seen after %v at the median, %v at 99 %%, %v at most; "+
						"%d refusals given meanwhile at most, %d in all that came too late to be kept",
						tgt.name, lib.name, rounds, race.name, micros(seen[rounds/2]), micros(seen[rounds*99/100]), micros(seen[rounds-1]), most, s.Poisoned)
					if s.Refusals == 0 || s.Poisoned == 0 || s.Pushes == 0 {
						t.Errorf("%+v: this test proves nothing", s)
					}
				})
			}
		})
	})
}

func micros(d time.Duration) time.Duration { return d.Round(time.Microsecond) }

// run fills the log of key, has several ask for more, and has other change it at some moment meanwhile. It returns how long after that
// store admits, and how often it was asked until then in vain.
func (race cacheRace) run(ctx context.Context, store, other ratelimit.Store, key string, r *rand.Rand) (seen time.Duration, given int, err error) {
	filled, err := other.Take(ctx, ratelimit.Demand{Key: key, Algorithm: racedLog, N: racedUnits})
	if err != nil {
		return 0, 0, err
	}
	one := ratelimit.Demand{Key: key, Algorithm: racedLog, N: 1}
	takers, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	failed := make([]error, racedTakers)
	for i := range failed {
		wg.Go(func() {
			for takers.Err() == nil {
				if admitted, err := asked(ctx, store, one); admitted || err != nil {
					failed[i] = err
					return
				}
			}
		})
	}
	for range r.IntN(4) { // none: the first refusals are on their way; three: one is cached
		if _, err := asked(ctx, store, one); err != nil {
			return 0, 0, err
		}
	}
	change := race.change(filled)
	change.Key = key
	if res, err := other.Take(ctx, change); err != nil || !res.Allowed {
		return 0, 0, fmt.Errorf("the change: %+v, %v", res, err)
	}
	changed := time.Now()
	after := one
	after.Algorithm = race.after
	for admitted := false; !admitted; given++ {
		if admitted, err = asked(ctx, store, after); err != nil {
			return 0, 0, err
		}
		if time.Since(changed) > staleAfter {
			return 0, 0, fmt.Errorf("still refused after %v", staleAfter)
		}
	}
	seen = time.Since(changed)
	if race.after == racedLog { // for which the takers have asked: they are admitted too, all by themselves
		within := time.AfterFunc(staleAfter, stop)
		wg.Wait()
		if !within.Stop() {
			return 0, 0, fmt.Errorf("refused to others after %v", staleAfter)
		}
	} else {
		stop()
		wg.Wait()
	}
	return seen, given - 1, errors.Join(failed...)
}

// asked is a Take that leaves the processor to the client after a refusal that cost nothing.
func asked(ctx context.Context, store ratelimit.Store, d ratelimit.Demand) (admitted bool, err error) {
	began := time.Now()
	res, err := store.Take(ctx, d)
	if err != nil {
		err = fmt.Errorf("after %v: %w", time.Since(began), err)
	}
	if err == nil && res.Source == ratelimit.SourceCache {
		time.Sleep(20 * time.Microsecond)
	}
	return res.Allowed, err
}
