package integration

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

// runCall sends a call as it is, without any store.
func runCall(t testing.TB, client redis.UniversalClient, call *algorithm.Call) string {
	t.Helper()
	args := make([]any, len(call.Args()))
	for i, a := range call.Args() {
		args[i] = a
	}
	reply, err := client.Eval(t.Context(), call.Program().Source, call.Keys(), args...).Text()
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// twin is one state kept twice: by the Lua step on a server and by the Go step in memory. Now and then each takes over the other's bytes.
type twin struct {
	client redis.UniversalClient
	key    string
	state  []byte
	call   algorithm.Call
}

// step decides d on both sides and compares the results.
func (w *twin) step(t testing.TB, now int64, d ratelimit.Demand) ratelimit.Result {
	t.Helper()
	next, keep, want := d.Step(w.state, now)
	if keep > 0 {
		w.state = next
	}
	w.call.Begin(now)
	if err := w.call.Add([]string{w.key}, []ratelimit.Demand{d}); err != nil {
		t.Fatal(err)
	}
	var got [1]ratelimit.Result
	if err := w.call.Results(runCall(t, w.client, &w.call), 0, got[:]); err != nil {
		t.Fatal(err)
	}
	if got[0] != want {
		t.Fatalf("%v of %d at %d under %v: Lua %+v, Go %+v", d.Op, d.N, now, d.Algorithm.Limit(), got[0], want)
	}
	return want
}

// swap gives each side the bytes that the other wrote.
func (w *twin) swap(t testing.TB) {
	t.Helper()
	lua, err := w.client.Get(t.Context(), w.key).Bytes()
	if err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	if len(w.state) == 0 {
		err = w.client.Del(t.Context(), w.key).Err()
	} else {
		err = w.client.Set(t.Context(), w.key, w.state, time.Hour).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	w.state = bytes.Clone(lua)
}

// TestLuaStepIsGoStep runs random histories, limits and clocks that change under way included, through both forms of the step.
func TestLuaStepIsGoStep(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		client := tgt.client(t)
		for seed := range uint64(4) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 3))
				playTwin(t, client, r, recipe{steps: 1500, change: 40, back: 20, log: randomLog, tick: randomTick})
			})
		}
	})
}

// TestLuaStepOnLargeLogs is the same on logs of several hundred records, of which a server reads and writes only parts.
func TestLuaStepOnLargeLogs(t *testing.T) {
	dense := func(r *rand.Rand) algorithm.Log {
		limit := ratelimit.Limit{Name: "twin", Max: 2000, Window: []time.Duration{10 * time.Minute, 11 * time.Minute}[r.IntN(2)]}
		return algorithm.SlidingLog(limit).WithResolution([]time.Duration{0, 0, 0, 7 * time.Microsecond}[r.IntN(4)])
	}
	tick := func(r *rand.Rand, window int64) int64 {
		if r.IntN(300) == 0 {
			return r.Int64N(window/2) - window/8
		}
		return r.Int64N(window / 400)
	}
	eachTarget(t, func(t *testing.T, tgt *target) {
		w := playTwin(t, tgt.client(t), rand.New(rand.NewPCG(1, 4)), recipe{calm: true, steps: 4000, change: 1000, back: 900, log: dense, tick: tick})
		if len(w.state) < 4000 {
			t.Errorf("the log ended at %d bytes: too few for what this tests", len(w.state))
		}
	})
}

// recipe says how a random history is made: a change of the log every so many steps, give-backs to one of so many stamps back.
type recipe struct {
	calm                bool // nothing that empties or fills the log at once
	steps, change, back int
	log                 func(*rand.Rand) algorithm.Log
	tick                func(r *rand.Rand, window int64) int64
}

func playTwin(t *testing.T, client redis.UniversalClient, r *rand.Rand, h recipe) *twin {
	t.Helper()
	w := &twin{client: client, key: fmt.Sprintf("twin:%d:%d", r.Uint64(), time.Now().UnixNano())}
	t.Cleanup(func() { client.Del(context.Background(), w.key) })
	now := time.Now().UnixMicro()
	var stamps []int64
	log := h.log(r)
	for range h.steps {
		if r.IntN(h.change) == 0 {
			log = h.log(r)
		}
		now = max(1, now+h.tick(r, log.Limit().Window.Microseconds()))
		stamps = stamps[max(0, len(stamps)-h.back):]
		d := randomDemand(r, log, stamps)
		if h.calm && (d.Op == ratelimit.Reset || d.Op == ratelimit.Force) {
			d.Op, d.N = ratelimit.Look, min(d.N, d.Algorithm.Limit().Max)
		}
		res := w.step(t, now, d)
		if res.Allowed && (d.Op == ratelimit.Take || d.Op == ratelimit.Force) {
			stamps = append(stamps, res.At)
		}
		if r.IntN(10) == 0 {
			w.swap(t)
		}
	}
	return w
}

func randomLog(r *rand.Rand) algorithm.Log {
	limit := ratelimit.Limit{
		Name:   "twin",
		Max:    []int64{1, 5, 60, 1000}[r.IntN(4)],
		Window: []time.Duration{time.Minute, 10 * time.Minute, 24 * time.Hour, ratelimit.MaxWindow}[r.IntN(4)],
	}
	return algorithm.SlidingLog(limit).WithResolution([]time.Duration{0, 0, 7 * time.Microsecond, time.Second, time.Minute}[r.IntN(5)])
}

func randomTick(r *rand.Rand, window int64) int64 {
	switch r.IntN(12) {
	case 0:
		return window - 1 + r.Int64N(3)
	case 1:
		return -r.Int64N(window)
	case 2:
		return -window - r.Int64N(window)
	case 3:
		return r.Int64N(2 * window)
	case 4:
		return 0
	}
	return r.Int64N(window/20 + 1)
}

func randomDemand(r *rand.Rand, log algorithm.Log, stamps []int64) ratelimit.Demand {
	limit := log.Limit().Max
	d := ratelimit.Demand{Key: "twin", Algorithm: log, N: 1 + r.Int64N(min(limit, 7))}
	switch r.IntN(16) {
	case 0, 1, 2:
		d.Op = ratelimit.Look
	case 3:
		d.Op, d.N = ratelimit.Force, 1+r.Int64N(2*limit)
	case 4:
		if r.IntN(8) == 0 {
			d.Op, d.N = ratelimit.Force, ratelimit.MaxUnits
		}
	case 5, 6, 7:
		d.Op = ratelimit.GiveBack
		if len(stamps) > 0 {
			d.At = stamps[r.IntN(len(stamps))]
		}
	case 8:
		if r.IntN(10) == 0 {
			d.Op = ratelimit.Reset
		}
	}
	return d
}

// TestLuaRebase keeps a log alive for longer than an offset of 48 bits reaches.
func TestLuaRebase(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		w := &twin{client: tgt.client(t), key: fmt.Sprintf("rebase:%d", time.Now().UnixNano())}
		d := ratelimit.Demand{Key: "k", Algorithm: algorithm.SlidingLog(ratelimit.Limit{Max: 5, Window: ratelimit.MaxWindow}), N: 1}
		now := int64(1_700_000_000_000_000)
		for i := range 80 {
			now += int64(91 * 24 * time.Hour / time.Microsecond)
			w.step(t, now, d)
			if i%7 == 0 {
				w.swap(t)
			}
		}
	})
}

// TestGroups holds the frame to its word: a group is admitted whole or leaves no trace, groups are independent and see each other.
func TestGroups(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		client := tgt.client(t)
		tag := fmt.Sprintf("{groups:%d}", time.Now().UnixNano())
		now := time.Now().UnixMicro()
		small := algorithm.SlidingLog(ratelimit.PerMinute(2))
		large := algorithm.SlidingLog(ratelimit.PerHour(10))
		take := func(a ratelimit.Algorithm, n int64) ratelimit.Demand {
			return ratelimit.Demand{Key: "k", Algorithm: a, N: n}
		}
		var call algorithm.Call
		call.Begin(now)
		groups := [][]ratelimit.Demand{
			{take(small, 1), take(large, 3)}, // admitted
			{take(small, 2), take(large, 1)}, // refused by small
			{take(large, 7)},                 // admitted: the refused group took nothing
			{take(small, 1)},                 // admitted
			{take(large, 1), {Key: "k", Algorithm: small, Op: ratelimit.Force, N: 5}}, // refused by large
		}
		for _, g := range groups {
			keys := make([]string, len(g))
			for i, d := range g {
				keys[i] = tag + d.Algorithm.Limit().Name
			}
			if err := call.Add(keys, g); err != nil {
				t.Fatal(err)
			}
		}
		if len(call.Keys()) != 2 {
			t.Errorf("keys %d, want each state once", len(call.Keys()))
		}
		reply := runCall(t, client, &call)
		for i, want := range [][]struct {
			allowed   bool
			remaining int64
		}{
			{{true, 1}, {true, 7}},
			{{false, 1}, {true, 7}},
			{{true, 0}},
			{{true, 0}},
			{{false, 0}, {true, 0}},
		} {
			out := make([]ratelimit.Result, len(want))
			if err := call.Results(reply, i, out); err != nil {
				t.Fatal(err)
			}
			for j, w := range want {
				if out[j].Allowed != w.allowed || out[j].Remaining != w.remaining {
					t.Errorf("group %d, demand %d: got %+v, want %+v", i, j, out[j], w)
				}
			}
		}
		for _, d := range groups[0] {
			if ttl := client.PTTL(t.Context(), tag+d.Algorithm.Limit().Name).Val(); ttl < d.Algorithm.Limit().Window-time.Minute/2 {
				t.Errorf("%v expires in %v", d.Algorithm.Limit(), ttl)
			}
		}
	})
}

// TestCorruptState gives the Lua step what it did not write: an error for that group alone, nothing changed, and a Reset that clears it.
func TestCorruptState(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		client := tgt.client(t)
		log := algorithm.SlidingLog(ratelimit.PerMinute(2))
		now := time.Now().UnixMicro()
		for name, spoil := range map[string]func(key string) error{
			"list":  func(key string) error { return client.RPush(t.Context(), key, "x").Err() },
			"short": func(key string) error { return client.Set(t.Context(), key, "x", time.Hour).Err() },
			"zeros": func(key string) error { return client.Set(t.Context(), key, make([]byte, 36), time.Hour).Err() },
			"ones": func(key string) error {
				return client.Set(t.Context(), key, bytes.Repeat([]byte{255}, 60), time.Hour).Err()
			},
		} {
			tag := fmt.Sprintf("{corrupt:%s:%d}", name, time.Now().UnixNano())
			if err := spoil(tag + "bad"); err != nil {
				t.Fatal(err)
			}
			before := client.Dump(t.Context(), tag+"bad").Val()
			var call algorithm.Call
			call.Begin(now)
			d := ratelimit.Demand{Key: "k", Algorithm: log, N: 1}
			for _, key := range []string{"bad", "good"} {
				if err := call.Add([]string{tag + key}, []ratelimit.Demand{d}); err != nil {
					t.Fatal(err)
				}
			}
			reply := runCall(t, client, &call)
			out := make([]ratelimit.Result, 1)
			if err := call.Results(reply, 0, out); err == nil || err != ratelimit.ErrCorruptState {
				t.Errorf("%s: got %v, %+v", name, err, out[0])
			}
			if err := call.Results(reply, 1, out); err != nil || !out[0].Allowed {
				t.Errorf("%s: the other group: %v, %+v", name, err, out[0])
			}
			if after := client.Dump(t.Context(), tag+"bad").Val(); after != before {
				t.Errorf("%s: the state was changed", name)
			}
			d.Op = ratelimit.Reset
			call.Begin(now)
			if err := call.Add([]string{tag + "bad"}, []ratelimit.Demand{d}); err != nil {
				t.Fatal(err)
			}
			if err := call.Results(runCall(t, client, &call), 0, out); err != nil {
				t.Errorf("%s: reset: %v", name, err)
			}
			if client.Exists(t.Context(), tag+"bad").Val() != 0 {
				t.Errorf("%s: still there after a reset", name)
			}
		}
	})
}

// handleScript is a step that does nothing but use the handle, in one way or another according to n.
const handleScript = `
local function step(s, now, op, n, at, args)
  local size = s.size
  if n == 1 then
    replace(s, '0123456789' .. string.rep('-', 4000))
    keep(s, 60000000)
  elseif n == 2 then
    patch(s, 1, 'XY')
    patch(s, s.size, 'end')
  else
    replace(s, range(s, 0, 4) .. range(s, s.size - 4, 4) .. range(s, 8, 4) .. string.sub(range(s, 0, s.size), -3) .. string.format('%.0f', (struct.unpack('>I7', args))))
  end
  return 1, size, 0, 0, now
end`

type handleAlgorithm struct{ ratelimit.Algorithm }

func (handleAlgorithm) Script() ratelimit.Script {
	return ratelimit.Script{Name: "handle", Source: handleScript, Args: func(dst []int64, _ ratelimit.Demand) []int64 { return append(dst, 1<<52) }}
}

// TestStateHandle writes and reads a state that is larger than what the frame reads at once, in calls of one demand and of several.
func TestStateHandle(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		client := tgt.client(t)
		key := fmt.Sprintf("handle:%d", time.Now().UnixNano())
		run := func(now int64, ns ...int64) (sizes []int64) {
			t.Helper()
			var call algorithm.Call
			call.Begin(now)
			for _, n := range ns {
				d := ratelimit.Demand{Key: "k", Algorithm: handleAlgorithm{algorithm.SlidingLog(ratelimit.PerMinute(1))}, N: n}
				if err := call.Add([]string{key}, []ratelimit.Demand{d}); err != nil {
					t.Fatal(err)
				}
			}
			reply := runCall(t, client, &call)
			for i := range ns {
				var out [1]ratelimit.Result
				if err := call.Results(reply, i, out[:]); err != nil {
					t.Fatal(err)
				}
				sizes = append(sizes, out[0].Remaining)
			}
			return sizes
		}
		check := func(what string, sizes, wantSizes []int64, want string) {
			t.Helper()
			if !slices.Equal(sizes, wantSizes) {
				t.Errorf("%s: sizes %d, want %d", what, sizes, wantSizes)
			}
			if got := strings.ReplaceAll(client.Get(t.Context(), key).Val(), strings.Repeat("-", 100), "."); got != want {
				t.Errorf("%s: state %q, want %q", what, got, want)
			}
			if ttl := client.PTTL(t.Context(), key).Val(); ttl < 55*time.Second || ttl > time.Minute+time.Second {
				t.Errorf("%s: expires in %v", what, ttl)
			}
		}
		dots := strings.Repeat(".", 40)
		for _, now := range []int64{0, time.Now().UnixMicro()} {
			check("replace", run(now, 1), []int64{0}, "0123456789"+dots)
			check("patch", run(now, 2), []int64{4010}, "0XY3456789"+dots+"end")
			check("patch, then a read of the same call", run(now, 2, 3), []int64{4013, 4016}, "0XY3dend89--end4503599627370496")
			client.Del(t.Context(), key)
			check("all at once", run(now, 1, 2, 3), []int64{0, 4010, 4013}, "0XY3-end89--end4503599627370496")
			client.Del(t.Context(), key)
		}
	})
}
