package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

// TestCacheRefusalThatWrote steps a clock back by more than a window, so that a refusal writes. The server then tells nobody that has read the
// state before of later changes, nor whoever is refused, so that refusal is not cached and those before are forgotten.
func TestCacheRefusalThatWrote(t *testing.T) {
	const back = 3 * time.Hour
	eachTarget(t, func(t *testing.T, tgt *target) {
		eachCaching(t, func(t *testing.T, lib library) {
			for _, act := range []struct {
				what  string
				do    func(t testing.TB, s ratelimit.Store, d ratelimit.Demand)
				after time.Duration // when what is cached wrongly would be given
			}{
				{"refused Take", func(t testing.TB, s ratelimit.Store, d ratelimit.Demand) {
					wantRefused(t, s, d, ratelimit.SourceStore)
				}, time.Minute},
				{"refused equal Takes", func(t testing.TB, s ratelimit.Store, d ratelimit.Demand) {
					done := make(chan error)
					for range 8 {
						go func() { _, err := s.Take(context.WithoutCancel(t.Context()), d); done <- err }()
					}
					for range 8 {
						if err := <-done; err != nil {
							t.Error(err)
						}
					}
				}, time.Minute},
				{"Look", func(t testing.TB, s ratelimit.Store, d ratelimit.Demand) {
					d.Op = ratelimit.Look
					ask(t, s, d)
				}, back + time.Minute},
				{"Look for less", func(t testing.TB, s ratelimit.Store, d ratelimit.Demand) {
					d.Op, d.N = ratelimit.Look, 1
					ask(t, s, d)
				}, back + time.Minute},
				{"refused TakeAll", func(t testing.TB, s ratelimit.Store, d ratelimit.Demand) {
					full := ratelimit.Demand{Key: freshKey(t), Algorithm: threeAnHour, N: 3}
					ask(t, s, full)
					one := d
					one.N = 1 // for which there is room
					if err := s.TakeAll(t.Context(), []ratelimit.Demand{full, one}, make([]ratelimit.Result, 2)); err != nil {
						t.Fatal(err)
					}
				}, back + time.Minute},
			} {
				for _, alone := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/alone=%t", act.what, alone), func(t *testing.T) {
						var now steppedClock
						now.step(time.Duration(time.Now().UnixMicro()) * time.Microsecond)
						opts := redisstore.Options{
							Prefix: uniquePrefix(), Timeout: patient, Now: now.read, Alone: alone, Tag: func(string) string { return "one" },
						}
						d := tgt.dialing()
						d.multiplex = -1 // NOLOOP is of a connection
						s, other := lib.newCache(t, d, cacheOptions{Options: opts, age: time.Hour}), calmStore(t, tgt, &opts)
						demand := ratelimit.Demand{Key: freshKey(t), Algorithm: tenAnHour, N: 8}
						ask(t, other, demand)
						demand.N = 5
						wantRefused(t, s, demand, ratelimit.SourceStore)
						wantRefused(t, s, demand, ratelimit.SourceCache)

						now.step(-back)
						act.do(t, s, demand)
						now.step(act.after)
						reset := demand
						reset.Op = ratelimit.Reset
						ask(t, other, reset)
						within(t, func() bool { return ask(t, s, demand).Allowed }, "the Reset is not seen")
					})
				}
			}
		})
	})
}

// A steppedClock goes when it is told to.
type steppedClock struct{ now atomic.Int64 }

func (c *steppedClock) read() int64          { return c.now.Load() }
func (c *steppedClock) step(d time.Duration) { c.now.Add(d.Microseconds()) }

// TestCallWrote compares what a call says of writing with the states themselves, before and after, in random calls on clocks that step back.
func TestCallWrote(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, tgt *target) {
		client := tgt.client(t)
		tag := fmt.Sprintf("{wrote:%d}", time.Now().UnixNano())
		var wrote, quiet [2]int // of a call with one demand, and with several
		for seed := range uint64(3) {
			r := rand.New(rand.NewPCG(seed, 7))
			keys := make([]string, 6)
			for i := range keys {
				keys[i] = fmt.Sprint(tag, seed, i)
			}
			defer client.Del(context.Background(), keys...)
			now := time.Now().UnixMicro()
			var call algorithm.Call
			for range 500 {
				now = max(1, now+randomTick(r, time.Hour.Microseconds()))
				groups := randomGroups(r, keys)
				call.Begin(now)
				for _, g := range groups {
					if err := g.add(&call); err != nil {
						t.Fatal(err)
					}
				}
				before := statesOf(t, client, keys)
				reply := runCall(t, client, &call)
				after := statesOf(t, client, keys)
				several := 1
				if len(groups) == 1 && len(groups[0].demands) == 1 && groups[0].times == 1 {
					several = 0
				}
				for i, g := range groups {
					out := make([]ratelimit.Result, max(g.times, len(g.demands)))
					if err := call.Results(reply, i, out); err != nil {
						t.Fatal(err)
					}
					if g.changes(out) {
						continue
					}
					changed := false
					for _, key := range g.keys {
						changed = changed || before[key] != after[key]
					}
					if got := call.Wrote(reply, i); got != changed {
						t.Fatalf("group %d of %d, %d × %+v: Wrote %t, and the states changed: %t; %+v", i, len(groups), g.times, g.demands, got, changed, out)
					}
					if changed {
						wrote[several]++
					} else {
						quiet[several]++
					}
				}
			}
		}
		if min(wrote[0], wrote[1], quiet[0], quiet[1]) < 10 {
			t.Errorf("%d wrote and %d did not: too few for what this tests", wrote, quiet)
		}
	})
}

// callGroup is a group of a call: demands, or one that is equal to others.
type callGroup struct {
	keys    []string
	demands []ratelimit.Demand
	times   int
}

func (g callGroup) add(call *algorithm.Call) error {
	if g.times > 1 {
		return call.AddSame(g.keys[0], g.demands[0], g.times)
	}
	return call.Add(g.keys, g.demands)
}

// changes tells that the outcome itself says that states may have changed.
func (g callGroup) changes(out []ratelimit.Result) bool {
	if len(g.demands) > 1 {
		for _, res := range out {
			if !res.Allowed {
				return false
			}
		}
		return true
	}
	for _, res := range out {
		if res.Allowed && g.demands[0].Op != ratelimit.Look {
			return true
		}
	}
	return false
}

// randomGroups returns groups with a key of keys for each demand.
func randomGroups(r *rand.Rand, keys []string) (groups []callGroup) {
	log := func() ratelimit.Algorithm {
		limit := ratelimit.PerHour([]int64{2, 3}[r.IntN(2)])
		return algorithm.SlidingLog(limit.Named("wrote"))
	}
	left := r.Perm(len(keys))
	for range 1 + r.IntN(2)*r.IntN(4) {
		g := callGroup{times: 1}
		for range 1 + r.IntN(2)*r.IntN(2) {
			if len(left) == 0 {
				break
			}
			d := ratelimit.Demand{Key: "wrote", Algorithm: log(), N: 1 + r.Int64N(2)}
			switch r.IntN(8) {
			case 0, 1:
				d.Op = ratelimit.Look
			case 2:
				d.Op, d.N = ratelimit.Force, 1
			}
			g.keys, g.demands = append(g.keys, keys[left[0]]), append(g.demands, d)
			left = left[1:]
		}
		if len(g.demands) == 0 {
			break
		}
		if len(g.demands) == 1 && r.IntN(2) == 0 {
			g.times = 1 + r.IntN(4)
		}
		groups = append(groups, g)
	}
	return groups
}

func statesOf(t testing.TB, client redis.UniversalClient, keys []string) map[string]string {
	t.Helper()
	values, err := client.MGet(t.Context(), keys...).Result()
	if err != nil {
		t.Fatal(err)
	}
	states := make(map[string]string)
	for i, v := range values {
		states[keys[i]], _ = v.(string)
	}
	return states
}
