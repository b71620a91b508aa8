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

// heldTwin decides groups of demands twice: by the Lua steps on a server and by the Go steps in
// memory.
type heldTwin struct {
	client redis.UniversalClient
	keys   []string
	states [][]byte
	calls  []lua.Run
	groups []heldGroup // decided in Go and not on the server
	seen   map[string]int
}

// heldGroup is a group of demands, of which the i-th is on the state keys[i], with the results in
// Go.
type heldGroup struct {
	now  int64
	keys []int
	ds   []driver.Demand
	want []driver.Result
}

func newHeldTwin(t *testing.T, client redis.UniversalClient, states int) *heldTwin {
	t.Helper()
	w := &heldTwin{client: client, states: make([][]byte, states), seen: make(map[string]int),
		calls: make([]lua.Run, stepsAtOnce)}
	tag := fmt.Sprintf("{held:%d}", time.Now().UnixNano()) // a call has one slot
	for i := range states {
		key := fmt.Sprint(tag, ":", i)
		w.keys = append(w.keys, key)
		t.Cleanup(func() { client.Del(context.Background(), key, key+":h") })
	}
	return w
}

// decide decides a group in Go. The server decides it at the next compare or before.
func (w *heldTwin) decide(t *testing.T, now int64, keys []int, ds []driver.Demand) {
	t.Helper()
	g := heldGroup{now, keys, ds, make([]driver.Result, len(ds))}
	run := func(step func(driver.Demand, []byte, int64) ([]byte, time.Duration, driver.Result)) {
		for i, d := range ds {
			next, keep, res := step(d, w.states[keys[i]], now)
			if keep < 0 {
				t.Fatalf("%v in Go: the state is corrupt: %x", d.Op, w.states[keys[i]])
			}
			if keep > 0 {
				w.states[keys[i]] = next
			}
			g.want[i] = res
		}
	}
	admitted := true
	if len(ds) > 1 {
		run(driver.Demand.Peek)
		for _, res := range g.want {
			admitted = admitted && res.Allowed
		}
		ds = driver.Grant(ds, g.want)
	}
	if admitted {
		run(driver.Demand.Step)
	}
	for i, d := range ds {
		w.seen[fmt.Sprintf("%v %t %t %d", d.Op, g.want[i].Allowed, g.want[i].Units > 0,
			min(len(ds), 2))]++
	}
	w.groups = append(w.groups, g)
	if len(w.groups) == stepsAtOnce {
		w.compare(t)
	}
}

// compare has the server decide the pending groups and compares the results.
func (w *heldTwin) compare(t *testing.T) {
	t.Helper()
	pipe := newTransaction(w.client)
	replies := make([]*redis.Cmd, len(w.groups))
	for i, g := range w.groups {
		w.calls[i].Begin(g.now)
		var keys []string
		for _, key := range g.keys {
			keys = append(keys, w.keys[key])
		}
		if err := w.calls[i].Add(keys, g.ds); err != nil {
			t.Fatal(err)
		}
		replies[i] = pipe.run(t, &w.calls[i])
		for _, key := range w.calls[i].Keys() {
			pipe.Persist(t.Context(), key) // the clock of g stands while that of the server runs
		}
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, g := range w.groups {
		got := make([]driver.Result, len(g.ds))
		if err := w.calls[i].Results(replies[i].Val().(string), 0, got); err != nil {
			t.Fatalf("%v of %d at %d: %v", g.ds[0].Op, len(g.ds), g.now, err)
		}
		for j, d := range g.ds {
			if got[j] != g.want[j] {
				t.Fatalf("%v of %d units by %d, %d of %d at %d under %v:\n got %+v in Lua,\n"+
					"want %+v as in Go", d.Op, d.N, d.ID, j+1, len(g.ds), g.now, d.Algorithm,
					got[j], g.want[j])
			}
		}
	}
	w.groups = w.groups[:0]
}

// heldAlgorithms are algorithms with holds, of one limit each, by what is inside.
var heldAlgorithms = map[string]func(driver.Limit) algorithm.Held{
	"log": func(l driver.Limit) algorithm.Held { return algorithm.Budget(algorithm.SlidingLog(l)) },
	"coarse log": func(l driver.Limit) algorithm.Held {
		return algorithm.Budget(algorithm.SlidingLog(l).WithResolution(l.Window / 16))
	},
	"log ahead": func(l driver.Limit) algorithm.Held {
		return algorithm.Budget(algorithm.SlidingLog(l).Ahead(l.Window / 20))
	},
	"fixed": func(l driver.Limit) algorithm.Held {
		return algorithm.Budget(algorithm.FixedWindow(l))
	},
	"months": func(l driver.Limit) algorithm.Held {
		return algorithm.Budget(algorithm.Monthly(l.Name, l.Max))
	},
	"counter": func(l driver.Limit) algorithm.Held {
		return algorithm.Budget(algorithm.SlidingWindowCounter(l))
	},
	"bucket": func(l driver.Limit) algorithm.Held {
		return algorithm.Budget(algorithm.GCRA(l))
	},
	"bucket with a debt": func(l driver.Limit) algorithm.Held {
		return algorithm.Budget(algorithm.GCRA(l).WithDebt(2 * l.Window))
	},
	"bucket ahead": func(l driver.Limit) algorithm.Held {
		return algorithm.Budget(algorithm.GCRA(l).WithDebt(2 * l.Window).Ahead(l.Window / 20))
	},
	"flight": func(l driver.Limit) algorithm.Held { return algorithm.InFlight(l.Name, l.Max) },
}

// TestHeldInLua: in random histories of holds, with changing limits, time-outs and clocks, the Lua
// step and the Go step give the same results, alone and in groups.
func TestHeldInLua(t *testing.T) {
	t.Parallel()
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		for name, newHeld := range heldAlgorithms {
			t.Run(name, func(t *testing.T) {
				for seed := range uint64(2) {
					playHeld(t, client, rand.New(rand.NewPCG(seed, 7)), newHeld)
				}
			})
		}
	})
}

func playHeld(
	t *testing.T, client redis.UniversalClient, r *rand.Rand,
	newHeld func(driver.Limit) algorithm.Held,
) {
	const states = 3
	w := newHeldTwin(t, client, states)
	window, timeout := time.Minute, time.Minute
	var as [states]driver.Algorithm
	change := func() {
		window = []time.Duration{time.Minute, time.Minute, time.Hour, 10 * time.Second}[r.IntN(4)]
		timeout = []time.Duration{time.Minute, time.Minute, time.Second,
			5 * time.Minute}[r.IntN(4)]
		for i := range states - 1 {
			limit := driver.Limit{Name: "held", Window: window,
				Max: []int64{1, 10, 100, 100_000}[r.IntN(4)]}
			held := newHeld(limit).WithTimeout(timeout)
			if !held.InFlight() && r.IntN(2) == 0 {
				held = held.ChargeTimeouts()
			}
			as[i] = held
		}
		as[states-1] = algorithm.SlidingLog(driver.Limit{Name: "log", Max: 20, Window: window})
	}
	change()
	now := time.Now().UnixMicro()
	next := uint64(0)
	for range 2500 {
		if r.IntN(150) == 0 {
			change()
		}
		now = max(1, now+heldTick(r, timeout.Microseconds(), window.Microseconds()))
		keys := r.Perm(states)[:[]int{1, 1, 1, 2, 3}[r.IntN(5)]]
		if len(keys) == 1 {
			keys[0] = r.IntN(states - 1)
		}
		next++
		var ds []driver.Demand
		for _, key := range keys {
			ds = append(ds, heldDemand(r, as[key], next))
		}
		if r.IntN(5) == 0 {
			grantPart(r, ds)
		}
		w.decide(t, now, keys, ds)
	}
	w.compare(t)
	for _, what := range []string{"hold true true 1", "hold false false 1", "hold false false 2",
		"hold true true 2", "settle true false 2"} {
		if w.seen[what] < 20 {
			t.Errorf("%q: %d times, want 20 or more: this test proves nothing", what, w.seen[what])
		}
	}
}

func heldTick(r *rand.Rand, timeout, window int64) int64 {
	switch r.IntN(40) {
	case 0:
		return r.Int64N(2 * window)
	case 1:
		return -r.Int64N(2 * window)
	case 2:
		return -timeout - r.Int64N(4*timeout)
	case 3, 4:
		return r.Int64N(2 * timeout)
	case 5:
		return (23 + r.Int64N(3)) * time.Hour.Microseconds()
	case 6, 7, 8, 9, 10:
		return 0
	case 11:
		return -r.Int64N(timeout)
	}
	return r.Int64N(timeout / 20)
}

// grantPart makes a part enough for the takes and holds among ds.
func grantPart(r *rand.Rand, ds []driver.Demand) {
	least, more := driver.MaxUnits, r.Int64N(30)
	for _, d := range ds {
		least = min(least, 1+r.Int64N(d.Algorithm.Limit().Max))
	}
	for i := range ds {
		if d := &ds[i]; d.Op == driver.OpTake || d.Op == driver.OpHold && d.N > 0 {
			d.N, d.Least = least+more, least
		}
	}
}

// heldDemand returns a random demand. The IDs are those of the last steps.
func heldDemand(r *rand.Rand, a driver.Algorithm, newest uint64) driver.Demand {
	limit := a.Limit()
	few := func() int64 { return 1 + r.Int64N(max(1, min(limit.Max, limit.Max/4+3))) }
	d := driver.Demand{Key: "k", Algorithm: a, N: few()}
	h, ok := a.(driver.Holder)
	if !ok || !h.InFlight() && r.IntN(4) == 0 {
		d.Op = []driver.Op{driver.OpTake, driver.OpTake, driver.OpPeek,
			driver.OpForce}[r.IntN(4)]
		return d
	}
	d.ID = max(1, newest-min(newest, uint64(r.IntN(12)*r.IntN(12)))) << 27
	switch r.IntN(16) {
	case 0, 1, 2, 3, 4, 5:
		d.Op = driver.OpHold
		if r.IntN(3) > 0 {
			d.ID = newest << 27
		}
	case 6, 7:
		d.Op, d.N = driver.OpHold, 0
	case 8:
		d.Op = driver.OpPeek
	case 9:
		d.Op, d.ID = driver.OpPeek, 0
	case 10:
		if d.Op = driver.OpReset; r.IntN(12) > 0 {
			d.Op, d.N = driver.OpSettle, 0
		}
	default:
		d.Op = driver.OpSettle
		if r.IntN(8) == 0 {
			d.N = r.Int64N(3 * limit.Max)
		}
	}
	if d.Op == driver.OpHold && r.IntN(3) == 0 {
		d.HoldTimeout = max(h.HoldTimeout()/16,
			time.Duration(r.Int64N(int64(16*h.HoldTimeout())))).
			Truncate(time.Microsecond)
	}
	return d
}
