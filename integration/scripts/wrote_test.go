package scripts

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestCallWrote: Call.Wrote reports whether a group changed states, in random calls on clocks that
// step back.
func TestCallWrote(t *testing.T) {
	t.Parallel()
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		tag := fmt.Sprintf("{wrote:%d}", time.Now().UnixNano())
		pipe := newPipeline(client)
		var wrote, quiet [2]int // groups in calls with one demand, and with several
		for seed := range uint64(3) {
			r := rand.New(rand.NewPCG(seed, 7))
			keys := make([]string, 6)
			for i := range keys {
				keys[i] = fmt.Sprint(tag, seed, i)
			}
			defer client.Del(context.Background(), keys...)
			now := time.Now().UnixMicro()
			var call lua.Run
			for range 500 {
				now = max(1, now+randomTick(r, time.Hour.Microseconds()))
				groups := randomGroups(r, keys)
				call.Begin(now)
				for _, g := range groups {
					if err := g.add(&call); err != nil {
						t.Fatal(err)
					}
				}
				was := pipe.MGet(t.Context(), keys...)
				run := pipe.run(t, &call)
				is := pipe.MGet(t.Context(), keys...)
				if _, err := pipe.Exec(t.Context()); err != nil {
					t.Fatal(err)
				}
				before, after, reply := statesOf(keys, was), statesOf(keys, is), run.Val().(string)
				several := 1
				if len(groups) == 1 && len(groups[0].demands) == 1 && groups[0].times == 1 {
					several = 0
				}
				for i, g := range groups {
					out := make([]driver.Result, max(g.times, len(g.demands)))
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
						t.Fatalf("group %d of %d, %d × %+v: Wrote %t, but the states changed: %t; "+
							"%+v", i, len(groups), g.times, g.demands, got, changed, out)
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
			t.Errorf("%d groups wrote and %d did not, want 10 or more each: this test proves "+
				"nothing", wrote, quiet)
		}
	})
}

// callGroup is a group of a call: several demands, or times equal ones.
type callGroup struct {
	keys    []string
	demands []driver.Demand
	times   int
}

func (g callGroup) add(call *lua.Run) error {
	if g.times > 1 {
		return call.AddSame(g.keys[0], g.demands[0], g.times)
	}
	return call.Add(g.keys, g.demands)
}

// changes reports whether the results alone imply that states may have changed.
func (g callGroup) changes(out []driver.Result) bool {
	if len(g.demands) > 1 {
		for _, res := range out {
			if !res.Allowed {
				return false
			}
		}
		return true
	}
	for _, res := range out {
		if res.Allowed && g.demands[0].Op != driver.OpPeek {
			return true
		}
	}
	return false
}

// randomGroups returns groups whose demands use different keys of keys.
func randomGroups(r *rand.Rand, keys []string) (groups []callGroup) {
	log := func() driver.Algorithm {
		return algorithm.SlidingLog(driver.PerHour("wrote", []int64{2, 3}[r.IntN(2)]))
	}
	left := r.Perm(len(keys))
	for range 1 + r.IntN(2)*r.IntN(4) {
		g := callGroup{times: 1}
		for range 1 + r.IntN(2)*r.IntN(2) {
			if len(left) == 0 {
				break
			}
			d := driver.Demand{Key: "wrote", Algorithm: log(), N: 1 + r.Int64N(2)}
			switch r.IntN(8) {
			case 0, 1:
				d.Op = driver.OpPeek
			case 2:
				d.Op, d.N = driver.OpForce, 1
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

func statesOf(keys []string, values *redis.SliceCmd) map[string]string {
	states := make(map[string]string)
	for i, v := range values.Val() {
		states[keys[i]], _ = v.(string)
	}
	return states
}
