package integration

import (
	"bytes"
	"cmp"
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
	around int // admissions that left a large state as long as it was
	call   algorithm.Call
}

// step decides d on both sides and compares the results.
func (w *twin) step(t testing.TB, now int64, d ratelimit.Demand) ratelimit.Result {
	t.Helper()
	next, keep, want := d.Step(w.state, now)
	if keep > 0 {
		if d.Op == ratelimit.Take && len(next) == len(w.state) && len(next) > 5000 {
			w.around++
		}
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
	t.Parallel()
	eachServer(t, func(t *testing.T, tgt *target) {
		client := tgt.client(t)
		for seed := range uint64(4) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 3))
				playTwin(t, client, r, recipe{steps: 1500, change: 40, back: 20, swap: 10, log: randomLog, tick: randomTick})
			})
		}
	})
}

// TestLuaStepOnLargeLogs is the same on logs of several hundred records, rings that go round and become longer and shorter, of which a
// server reads and writes only parts.
func TestLuaStepOnLargeLogs(t *testing.T) {
	t.Parallel()
	dense := func(r *rand.Rand) algorithm.Log {
		limit := ratelimit.Limit{Name: "twin", Max: []int64{600, 900}[r.IntN(2)], Window: []time.Duration{10 * time.Minute, 11 * time.Minute}[r.IntN(2)]}
		return algorithm.SlidingLog(limit).WithResolution([]time.Duration{0, 0, 0, 7 * time.Microsecond}[r.IntN(4)])
	}
	pace := int64(1500)
	tick := func(r *rand.Rand, window int64) int64 {
		switch r.IntN(800) {
		case 0:
			return r.Int64N(window) - window/4
		case 1:
			return r.Int64N(window / 50)
		case 2:
			pace = 500 << r.IntN(5)
		}
		return max(0, r.Int64N(window/pace)-window/pace/8)
	}
	eachServer(t, func(t *testing.T, tgt *target) {
		var around int
		for seed := range uint64(3) {
			w := playTwin(t, tgt.client(t), rand.New(rand.NewPCG(seed, 4)), recipe{calm: true, wide: true, steps: 4000, change: 1500, back: 700, swap: 300, log: dense, tick: tick})
			around += w.around
		}
		if around < 800 {
			t.Errorf("%d admissions changed no length: too few rings for what this tests", around)
		}
	})
}

// TestLuaRingFillsUp brings a ring around while it is half empty, and then more records than it has slots.
func TestLuaRingFillsUp(t *testing.T) {
	eachServer(t, func(t *testing.T, tgt *target) {
		w := &twin{client: tgt.client(t), key: fmt.Sprintf("ring:%d", time.Now().UnixNano())}
		defer w.client.Del(context.Background(), w.key)
		limit := ratelimit.Limit{Max: 2000, Window: time.Minute}
		d := ratelimit.Demand{Key: "k", Algorithm: algorithm.SlidingLog(limit), N: 1}
		now := time.Now().UnixMicro()
		for _, phase := range []struct {
			n    int
			tick time.Duration
		}{
			{500, 100 * time.Millisecond}, {200, 300 * time.Millisecond}, // half a ring, and round
			{900, time.Millisecond},
		} {
			for range phase.n {
				now += phase.tick.Microseconds()
				w.step(t, now, d)
			}
		}
		w.step(t, now, ratelimit.Demand{Key: "k", Algorithm: d.Algorithm, Op: ratelimit.Look, N: limit.Max})
		w.swap(t)
		w.step(t, now, ratelimit.Demand{Key: "k", Algorithm: d.Algorithm, Op: ratelimit.Look, N: limit.Max})
	})
}

// recipe says how a random history is made: a change of the log every so many steps, give-backs to one of so many stamps back.
type recipe struct {
	calm                bool // nothing that empties or fills the log at once
	wide                bool // looks for any number of units
	steps, change, back int
	swap                int // so many steps on average until each side takes over the other's bytes
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
		if h.wide && d.Op == ratelimit.Look {
			d.N = 1 + r.Int64N(log.Limit().Max)
		}
		res := w.step(t, now, d)
		if res.Allowed && (d.Op == ratelimit.Take || d.Op == ratelimit.Force) {
			stamps = append(stamps, res.At)
		}
		if r.IntN(h.swap) == 0 {
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

func randomDemand(r *rand.Rand, log ratelimit.Algorithm, stamps []int64) ratelimit.Demand {
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
	eachServer(t, func(t *testing.T, tgt *target) {
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
	eachServer(t, func(t *testing.T, tgt *target) {
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

// unsummed is the log with a script that does not say that equal takes add up.
type unsummed struct{ algorithm.Log }

func (u unsummed) Script() ratelimit.Script {
	script := u.Log.Script()
	args := script.Args
	script.Name, script.Sums = "unsummed", false
	script.Args = func(dst []int64, d ratelimit.Demand) []int64 {
		d.Algorithm = d.Algorithm.(unsummed).Log
		return args(dst, d)
	}
	return script
}

// TestSameTakes holds equal takes, which the server decides in a few steps, to what the Go step answers to one after the other.
func TestSameTakes(t *testing.T) {
	t.Parallel()
	few := func(r *rand.Rand, window int64) int64 { return max(0, r.Int64N(window/1000)-window/8000) }
	for name, game := range map[string]sameGame{
		"log": {algorithm: func(r *rand.Rand) ratelimit.Algorithm { return randomLog(r) }, tick: randomTick},
		"large log": {records: 400, tick: few, algorithm: func(r *rand.Rand) ratelimit.Algorithm {
			limit := ratelimit.Limit{Name: "twin", Max: []int64{700, 5000}[r.IntN(2)], Window: 10 * time.Minute}
			return algorithm.SlidingLog(limit).WithResolution([]time.Duration{0, 0, 0, 7 * time.Microsecond}[r.IntN(4)])
		}},
		"unsummed": {most: 20, algorithm: func(r *rand.Rand) ratelimit.Algorithm { return unsummed{randomLog(r)} }, tick: randomTick},
		"quota": {tick: randomTick, algorithm: func(r *rand.Rand) ratelimit.Algorithm {
			return NewQuota(ratelimit.Limit{Name: "twin", Max: 1 + r.Int64N(60), Window: time.Duration(1+r.IntN(2)) * time.Hour})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, tgt *target) {
				first := 2 * uint64(slices.Index(images, tgt.image)+1) // each server has histories of its own
				for seed := range uint64(2) {
					game.play(t, tgt.client(t), rand.New(rand.NewPCG(first+seed, 6)))
				}
			})
		})
	}
}

// sameGame says how a random history with equal takes is made.
type sameGame struct {
	most      int // equal takes, 1000 unless said
	records   int // in each log at first
	algorithm func(*rand.Rand) ratelimit.Algorithm
	tick      func(r *rand.Rand, window int64) int64
}

func (game sameGame) play(t *testing.T, client redis.UniversalClient, r *rand.Rand) {
	t.Helper()
	twins := make([]*twin, 3)
	tag := fmt.Sprintf("{same:%d:%d}", r.Uint64(), time.Now().UnixNano())
	for i := range twins {
		twins[i] = &twin{client: client, key: fmt.Sprint(tag, i)}
		t.Cleanup(func() { client.Del(context.Background(), twins[i].key) })
	}
	now := time.Now().UnixMicro()
	a := game.algorithm(r)
	for range game.records {
		now += game.tick(r, a.Limit().Window.Microseconds())
		for _, w := range twins {
			w.state, _, _ = ratelimit.Demand{Key: "k", Algorithm: a, N: 1}.Step(w.state, now)
		}
	}
	for _, w := range twins {
		if err := client.Set(t.Context(), w.key, w.state, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var stamps []int64
	var call algorithm.Call
	for range 500 {
		if r.IntN(8) == 0 {
			a = game.algorithm(r)
		}
		now = max(1, now+game.tick(r, a.Limit().Window.Microseconds()))
		call.Begin(now)
		var said []string
		var want [][]ratelimit.Result
		for range 1 + r.IntN(4) {
			w, d, times := twins[r.IntN(len(twins))], randomDemand(r, a, stamps), 1+r.IntN(3)
			if d.Op == ratelimit.Take {
				times = min([]int{1, 2, 3, 4 + r.IntN(60), 1000}[r.IntN(5)], cmp.Or(game.most, 1000))
				if r.IntN(20) == 0 {
					d.N = 1 + r.Int64N(a.Limit().Max)
				}
			}
			if err := call.AddSame(w.key, d, times); err != nil {
				t.Fatal(err)
			}
			results := make([]ratelimit.Result, times)
			for i := range results {
				next, keep, res := d.Step(w.state, now)
				if keep > 0 {
					w.state = next
				}
				results[i] = res
			}
			want = append(want, results)
			said = append(said, fmt.Sprintf("%d times %v of %d on %s", times, d.Op, d.N, w.key))
			stamps = append(stamps[max(0, len(stamps)-20):], results[0].At)
		}
		reply := runCall(t, client, &call)
		// A clock that steps back must find what a short time to live would have dropped.
		if _, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for _, w := range twins {
				p.Persist(t.Context(), w.key)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for g := range want {
			got := make([]ratelimit.Result, len(want[g]))
			if err := call.Results(reply, g, got); err != nil {
				t.Fatal(err)
			}
			for i := range got {
				if got[i] != want[g][i] {
					t.Fatalf("%s at %d under %v, number %d: Lua %+v, Go %+v", said[g], now, a.Limit(), i, got[i], want[g][i])
				}
			}
		}
		if w := twins[r.IntN(len(twins))]; r.IntN(10) == 0 {
			w.swap(t)
		}
	}
}

// TestSameTakesAfterAChange is where the first of equal takes changes the instant at which the next are decided: a coarser resolution
// comes when the clock has stepped back.
func TestSameTakesAfterAChange(t *testing.T) {
	const minute = int64(time.Minute / time.Microsecond)
	base := time.Now().Truncate(24 * time.Hour).UnixMicro()
	log := func(window, resolution time.Duration) algorithm.Log {
		return algorithm.SlidingLog(ratelimit.Limit{Name: "twin", Max: 9, Window: window}).WithResolution(resolution)
	}
	for name, c := range map[string]struct {
		before []int64 // stamps of takes under two minutes
		now    int64
		log    algorithm.Log
		times  int
	}{
		"an older record is back":           {[]int64{base - minute - 3, base}, base - 10, log(time.Minute, 8*time.Microsecond), 3},
		"an older record is back, and full": {[]int64{base - minute - 3, base}, base - 10, log(time.Minute, 8*time.Microsecond), 6},
		"the newest is far ahead":           {[]int64{base + 7}, base + 7 - minute, log(time.Minute, time.Minute), 6},
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, tgt *target) {
				w := &twin{client: tgt.client(t), key: fmt.Sprintf("change:%d", time.Now().UnixNano())}
				for _, now := range c.before {
					w.step(t, now, ratelimit.Demand{Key: "k", Algorithm: log(2*time.Minute, 0), N: 1})
				}
				d := ratelimit.Demand{Key: "k", Algorithm: c.log, N: 2}
				w.call.Begin(c.now)
				if err := w.call.AddSame(w.key, d, c.times); err != nil {
					t.Fatal(err)
				}
				got, want := make([]ratelimit.Result, c.times), make([]ratelimit.Result, c.times)
				if err := w.call.Results(runCall(t, w.client, &w.call), 0, got); err != nil {
					t.Fatal(err)
				}
				for i := range want {
					next, keep, res := d.Step(w.state, c.now)
					if keep > 0 {
						w.state = next
					}
					want[i] = res
				}
				if !slices.Equal(got, want) {
					t.Errorf("got %+v, want %+v", got, want)
				}
				if want[1].At == want[0].At && want[1].Remaining == want[0].Remaining-d.N {
					t.Errorf("nothing changed after the first: %+v", want)
				}
				w.step(t, c.now, ratelimit.Demand{Key: "k", Algorithm: c.log, Op: ratelimit.Look, N: 9})
			})
		})
	}
}

// TestSameTakesUnlikeTheirSum lets the step tell that a sum is not what single takes are: these are then decided one by one.
func TestSameTakesUnlikeTheirSum(t *testing.T) {
	eachServer(t, func(t *testing.T, tgt *target) {
		const source = `
local function step(key, tail, now, op, n, at, args, pos)
  local used = #tail
  if n > 12 - used then return 0, 12 - used, 7, used, now end
  return 1, 12 - used - n, 0, %s, %s, 60000000, tail .. string.rep('x', n)
end`
		for name, text := range map[string]string{
			"reset": fmt.Sprintf(source, "used + n", "now"),
			"stamp": fmt.Sprintf(source, "12", "now + used + n"),
		} {
			key := fmt.Sprintf("unlike:%s:%d", name, time.Now().UnixNano())
			d := ratelimit.Demand{Key: "k", Algorithm: unlike{algorithm.SlidingLog(ratelimit.PerMinute(12)), name, text}, N: 5}
			run := func(add func(*algorithm.Call)) (out [4]ratelimit.Result) {
				t.Helper()
				defer tgt.client(t).Del(t.Context(), key)
				var call algorithm.Call
				call.Begin(1_000_000)
				add(&call)
				reply := runCall(t, tgt.client(t), &call)
				for i := range len(out) {
					group, to := i, out[i:i+1]
					if len(call.Args()) == 1 {
						group, to = 0, out[:]
					}
					if err := call.Results(reply, group, to); err != nil {
						t.Fatal(err)
					}
				}
				return out
			}
			got := run(func(c *algorithm.Call) {
				if err := c.AddSame(key, d, 4); err != nil {
					t.Fatal(err)
				}
			})
			want := run(func(c *algorithm.Call) {
				for range 4 {
					if err := c.Add([]string{key}, []ratelimit.Demand{d}); err != nil {
						t.Fatal(err)
					}
				}
			})
			if got != want || !got[1].Allowed || got[2].Allowed {
				t.Errorf("%s: got %+v, want %+v", name, got, want)
			}
		}
	})
}

// unlike is an algorithm that says of its takes that they add up, and they do not.
type unlike struct {
	ratelimit.Algorithm
	name, source string
}

func (u unlike) Script() ratelimit.Script {
	return ratelimit.Script{Name: u.name, Source: u.source, Sums: true, Args: func(dst []int64, _ ratelimit.Demand) []int64 { return dst }}
}

// TestCorruptState gives the Lua step what it did not write: an error for that group alone, nothing changed, and a Reset that clears it.
func TestCorruptState(t *testing.T) {
	eachServer(t, func(t *testing.T, tgt *target) {
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
			if err := call.AddSame(tag+"bad", d, 7); err != nil {
				t.Fatal(err)
			}
			reply := runCall(t, client, &call)
			if err := call.Results(reply, 2, make([]ratelimit.Result, 7)); err != ratelimit.ErrCorruptState {
				t.Errorf("%s: equal takes: %v", name, err)
			}
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

// partsScript is a step that writes in one way or another according to n.
const partsScript = `
local function step(key, tail, now, op, n, at, args, pos)
  if n == 1 then
    return 1, #tail, 0, 0, now, 60000000, '0123456789' .. string.rep('-', 4000)
  elseif n == 2 then
    return 1, #tail, 0, 0, now, nil, nil, 1, 'XY', 4010, 'en', 4012, 'd'
  elseif n == 3 then
    local front = redis.call('GETRANGE', key, 0, 3) .. redis.call('GETRANGE', key, '8', '11')
    return 1, #tail, 0, 0, now, nil, front .. string.sub(tail, -3) .. string.format('%.0f', (struct.unpack('>I7', args, pos))), 0, '[', 30, ']'
  elseif n == 4 then
    return 1, #tail, 0, 0, now, 90000000, nil, 0, 'late'
  end
  return 1, #tail, 0, 0, now, nil, ''
end`

type partsAlgorithm struct{ ratelimit.Algorithm }

func (partsAlgorithm) Script() ratelimit.Script {
	return ratelimit.Script{Name: "parts", Source: partsScript, Args: func(dst []int64, _ ratelimit.Demand) []int64 { return append(dst, 1<<52) }}
}

// TestStateParts writes and reads a state that is larger than what the frame reads, in calls of one demand and of several.
func TestStateParts(t *testing.T) {
	eachServer(t, func(t *testing.T, tgt *target) {
		client := tgt.client(t)
		key := fmt.Sprintf("parts:%d", time.Now().UnixNano())
		run := func(now int64, ns ...int64) (sizes []int64) {
			t.Helper()
			var call algorithm.Call
			call.Begin(now)
			for _, n := range ns {
				d := ratelimit.Demand{Key: "k", Algorithm: partsAlgorithm{algorithm.SlidingLog(ratelimit.PerMinute(1))}, N: n}
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
		check := func(what string, sizes, wantSizes []int64, want string, expires time.Duration) {
			t.Helper()
			if !slices.Equal(sizes, wantSizes) {
				t.Errorf("%s: sizes %d, want %d", what, sizes, wantSizes)
			}
			got := strings.ReplaceAll(client.Get(t.Context(), key).Val(), strings.Repeat("-", 100), ".")
			if got = strings.ReplaceAll(got, "\x00", "0"); got != want {
				t.Errorf("%s: state %q, want %q", what, got, want)
			}
			if ttl := client.PTTL(t.Context(), key).Val(); ttl < expires-5*time.Second || ttl > expires+time.Second {
				t.Errorf("%s: expires in %v", what, ttl)
			}
		}
		const digits = "4503599627370496"
		dots := strings.Repeat(".", 40)
		for _, now := range []int64{0, time.Now().UnixMicro()} {
			check("whole", run(now, 1), []int64{0}, "0123456789"+dots, time.Minute)
			check("parts", run(now, 2), []int64{160}, "0XY3456789"+dots+"end", time.Minute)
			check("parts, then a read of the same call", run(now, 2, 3), []int64{160, 160}, "[XY389--end"+digits+"000]", time.Minute)
			check("a part that is needed for longer", run(now, 4), []int64{31}, "late89--end"+digits+"000]", 90*time.Second)
			if sizes := run(now, 5); !slices.Equal(sizes, []int64{31}) || client.Exists(t.Context(), key).Val() != 0 {
				t.Errorf("delete: sizes %d, or the state is still there", sizes)
			}
			check("all at once", run(now, 1, 2, 4, 3), []int64{0, 160, 160, 160}, "[ate89--end"+digits+"000]", 90*time.Second)
			if sizes := run(now, 1, 5); !slices.Equal(sizes, []int64{31, 160}) || client.Exists(t.Context(), key).Val() != 0 {
				t.Errorf("delete: sizes %d, or the state is still there", sizes)
			}
		}
	})
}
