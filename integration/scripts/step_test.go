package scripts

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestLuaStepOnLargeLogs: in random histories, with changing limits and clocks, the Lua step and
// the Go step give the same results on logs of several hundred records and on rings that wrap
// around, grow and shrink, of which a server reads and writes only parts. TestLuaStepsAreGoSteps
// has smaller ones.
func TestLuaStepOnLargeLogs(t *testing.T) {
	t.Parallel()
	dense := func(r *rand.Rand) algorithm.Log {
		limit := driver.Limit{Name: "twin", Max: []int64{2400, 3600}[r.IntN(2)],
			Window: []time.Duration{10 * time.Minute, 11 * time.Minute}[r.IntN(2)]}
		return randomlyAhead(r, algorithm.SlidingLog(limit).
			WithResolution([]time.Duration{0, 0, 0, 7 * time.Microsecond}[r.IntN(4)]))
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
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		var around int
		for seed := range uint64(3) {
			w := playTwin(t, tgt.Client(t), rand.New(rand.NewPCG(seed, 4)),
				recipe{calm: true, wide: true, steps: 4000, change: 1500, back: 700, swap: 300,
					log: dense, tick: tick})
			around += w.around
		}
		if around < 800 {
			t.Errorf("%d admissions kept the length of a ring, want 800 or more: this test proves "+
				"nothing", around)
		}
	})
}

// TestLuaRingFillsUp wraps a half-empty ring around, and then adds more records than it has slots.
func TestLuaRingFillsUp(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		w := newTwin(t, tgt.Client(t), "ring")
		limit := driver.Limit{Max: 2000, Window: time.Minute}
		d := driver.Demand{Key: "k", Algorithm: algorithm.SlidingLog(limit), N: 1}
		now := time.Now().UnixMicro()
		for _, phase := range []struct {
			n    int
			tick time.Duration
		}{
			{500, 100 * time.Millisecond}, {200, 300 * time.Millisecond}, // half a ring
			{900, time.Millisecond},
		} {
			for range phase.n {
				now += phase.tick.Microseconds()
				w.step(t, now, d)
			}
		}
		w.step(t, now, driver.Demand{Key: "k", Algorithm: d.Algorithm, Op: driver.OpPeek,
			N: limit.Max})
		w.swap(t)
		w.step(t, now, driver.Demand{Key: "k", Algorithm: d.Algorithm, Op: driver.OpPeek,
			N: limit.Max})
		w.compare(t)
	})
}

// forever is a limit whose window never ends in a test.
var forever = driver.Limit{Max: 5, Window: driver.MaxWindow}

// TestLuaRebase keeps a log alive for longer than an offset of 48 bits can express.
func TestLuaRebase(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		w := newTwin(t, tgt.Client(t), "rebase")
		d := driver.Demand{Key: "k", Algorithm: algorithm.SlidingLog(forever), N: 1}
		now := int64(1_700_000_000_000_000)
		for i := range 80 {
			now += int64(91 * 24 * time.Hour / time.Microsecond)
			w.step(t, now, d)
			if i%7 == 0 {
				w.swap(t)
			}
		}
		w.compare(t)
	})
}

// TestLuaRebaseTimeToLive: when a state moves to a nearer base, the time to live that it stores is
// not later than its key's. The stored one decides when the key's is renewed.
func TestLuaRebaseTimeToLive(t *testing.T) {
	const day = int64(24 * time.Hour / time.Microsecond)
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		for i := range int64(8) {
			w := newTwin(t, tgt.Client(t), fmt.Sprintf("reach:%d", i))
			d := driver.Demand{Key: "k", Algorithm: algorithm.SlidingLog(forever), N: 1}
			now, moved := int64(1_700_000_000_000_000), false
			var base int64
			for range 40 {
				now += 91*day + i*8_000
				before := time.Now()
				w.step(t, now, d)
				w.compare(t)
				if trailer := trailerOf(t, w); trailer.base != base {
					moved = moved || base > 0
					base = trailer.base
					ttl, err := w.client.PTTL(t.Context(), w.key).Result()
					if err != nil {
						t.Fatal(err)
					}
					ttl += time.Since(before) + 2*time.Millisecond
					if says := time.Duration(base+trailer.reach<<16-
						now) * time.Microsecond; says > ttl {
						t.Errorf("the state has a time to live of %v, %v longer than its key's",
							says, says-ttl)
					}
				}
			}
			if !moved {
				t.Error("the base did not move: this test proves nothing")
			}
		}
	})
}

type trailer struct{ base, reach int64 }

// trailerOf reads base and time to live from a small state on the server.
func trailerOf(t *testing.T, w *twin) trailer {
	t.Helper()
	state, err := w.client.Get(t.Context(), w.key).Bytes()
	if err != nil || len(state) < 44 || len(state) > 152 {
		t.Fatalf("got a state of %d bytes, %v; want a small one", len(state), err)
	}
	end := state[len(state)-11:]
	var base [8]byte
	copy(base[1:], end[:7])
	return trailer{int64(binary.BigEndian.Uint64(base[:])) - 1<<51,
		int64(binary.BigEndian.Uint32(end[7:]))}
}

// TestCorruptState: a state that the Lua step did not write is an error for its group alone, is not
// changed, and is removed by a Reset.
func TestCorruptState(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		log := algorithm.SlidingLog(driver.PerMinute("minute", 2))
		now := time.Now().UnixMicro()
		for name, spoil := range map[string]func(key string) error{
			"list": func(key string) error { return client.RPush(t.Context(), key, "x").Err() },
			"short": func(key string) error {
				return client.Set(t.Context(), key, "x", time.Hour).Err()
			},
			"zeros": func(key string) error {
				return client.Set(t.Context(), key, make([]byte, 36), time.Hour).Err()
			},
			"ones": func(key string) error {
				return client.Set(t.Context(), key, bytes.Repeat([]byte{255}, 60), time.Hour).Err()
			},
		} {
			tag := fmt.Sprintf("{corrupt:%s:%d}", name, time.Now().UnixNano())
			if err := spoil(tag + "bad"); err != nil {
				t.Fatal(err)
			}
			before := client.Dump(t.Context(), tag+"bad").Val()
			var call lua.Run
			call.Begin(now)
			d := driver.Demand{Key: "k", Algorithm: log, N: 1}
			for _, key := range []string{"bad", "good"} {
				if err := call.Add([]string{tag + key}, []driver.Demand{d}); err != nil {
					t.Fatal(err)
				}
			}
			if err := call.AddSame(tag+"bad", d, 7); err != nil {
				t.Fatal(err)
			}
			reply := runCall(t, client, &call)
			if err := call.Results(reply, 2,
				make([]driver.Result, 7)); err != driver.ErrCorruptState {
				t.Errorf("%s: equal takes: got %v, want ErrCorruptState", name, err)
			}
			out := make([]driver.Result, 1)
			if err := call.Results(reply, 0, out); err == nil || err != driver.ErrCorruptState {
				t.Errorf("%s: got %v, %+v; want ErrCorruptState", name, err, out[0])
			}
			if err := call.Results(reply, 1, out); err != nil || !out[0].Allowed {
				t.Errorf("%s: the other group got %v, %+v; want an admission", name, err, out[0])
			}
			if after := client.Dump(t.Context(), tag+"bad").Val(); after != before {
				t.Errorf("%s: the state was changed, want it kept", name)
			}
			d.Op = driver.OpReset
			call.Begin(now)
			if err := call.Add([]string{tag + "bad"}, []driver.Demand{d}); err != nil {
				t.Fatal(err)
			}
			if err := call.Results(runCall(t, client, &call), 0, out); err != nil {
				t.Errorf("%s: Reset: got %v, want no error", name, err)
			}
			if client.Exists(t.Context(), tag+"bad").Val() != 0 {
				t.Errorf("%s: the state is still stored after a Reset", name)
			}
		}
	})
}

// partsScript is a step that writes in a way that n selects.
const partsScript = `
local function step(key, tail, now, op, n, at, args, pos)
  if n == 1 then
    return 1, #tail, 0, 0, now, 60000000, '0123456789' .. string.rep('-', 4000)
  elseif n == 2 then
    return 1, #tail, 0, 0, now, nil, nil, 1, 'XY', 4010, 'en', 4012, 'd'
  elseif n == 3 then
    local front = redis.call('GETRANGE', key, 0, 3) .. redis.call('GETRANGE', key, '8', '11')
    return 1, #tail, 0, 0, now, nil,
      front .. string.sub(tail, -3) ..
      string.format('%.0f', (struct.unpack('>I7', args, pos))), 0, '[', 30, ']'
  elseif n == 4 then
    return 1, #tail, 0, 0, now, 90000000, nil, 0, 'late'
  end
  return 1, #tail, 0, 0, now, nil, ''
end`

type partsAlgorithm struct{ driver.Algorithm }

func (partsAlgorithm) Script() driver.Script {
	return driver.Script{Name: "parts", Source: partsScript,
		Args: func(dst []int64, _ driver.Demand) []int64 { return append(dst, 1<<52) }}
}

// TestStateParts writes and reads a state larger than the frame's first read, in calls of one
// demand and of several.
func TestStateParts(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		key := fmt.Sprintf("parts:%d", time.Now().UnixNano())
		run := func(now int64, ns ...int64) (sizes []int64) {
			t.Helper()
			var call lua.Run
			call.Begin(now)
			for _, n := range ns {
				d := driver.Demand{Key: "k",
					Algorithm: partsAlgorithm{algorithm.SlidingLog(driver.PerMinute("minute",
						1))}, N: n}
				if err := call.Add([]string{key}, []driver.Demand{d}); err != nil {
					t.Fatal(err)
				}
			}
			reply := runCall(t, client, &call)
			for i := range ns {
				var out [1]driver.Result
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
				t.Errorf("%s: got sizes %d, want %d", what, sizes, wantSizes)
			}
			got := strings.ReplaceAll(client.Get(t.Context(), key).Val(),
				strings.Repeat("-", 100), ".")
			if got = strings.ReplaceAll(got, "\x00", "0"); got != want {
				t.Errorf("%s: got state %q, want %q", what, got, want)
			}
			if ttl := client.PTTL(t.Context(), key).Val(); ttl < expires-5*time.Second ||
				ttl > expires+time.Second {
				t.Errorf("%s: expires in %v, want about %v", what, ttl, expires)
			}
		}
		const digits = "4503599627370496"
		dots := strings.Repeat(".", 40)
		for _, now := range []int64{0, time.Now().UnixMicro()} {
			check("whole", run(now, 1), []int64{0}, "0123456789"+dots, time.Minute)
			check("parts", run(now, 2), []int64{160}, "0XY3456789"+dots+"end", time.Minute)
			check("parts, then a read of the same call", run(now, 2, 3), []int64{160, 160},
				"[XY389--end"+digits+"000]", time.Minute)
			check("a part that is needed for longer",
				run(now, 4), []int64{31}, "late89--end"+digits+"000]", 90*time.Second)
			if sizes := run(now, 5); !slices.Equal(sizes, []int64{31}) ||
				client.Exists(t.Context(), key).Val() != 0 {
				t.Errorf("delete: got sizes %d, or the state is still stored", sizes)
			}
			check("all at once", run(now, 1, 2, 4, 3), []int64{0, 160, 160, 160},
				"[ate89--end"+digits+"000]", 90*time.Second)
			if sizes := run(now, 1, 5); !slices.Equal(sizes, []int64{31, 160}) ||
				client.Exists(t.Context(), key).Val() != 0 {
				t.Errorf("delete: got sizes %d, or the state is still stored", sizes)
			}
		}
	})
}
