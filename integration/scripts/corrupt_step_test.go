package scripts

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

const corruptNow = int64(1_790_000_000_000_000)

// A realState was written by the step. at is the stamp of a record in its middle.
type realState struct {
	log   algorithm.Log
	bytes []byte
	at    int64
}

// realStates returns a state of each form, used until now: small, line, ring, and a ring that has
// wrapped around.
func realStates(until int64) map[string]realState {
	states := make(map[string]realState)
	for name, n := range map[string]int64{"one record": 1, "small": 9, "line": 60, "ring": 900,
		"ring come around": 2500} {
		log := algorithm.SlidingLog(driver.PerMinute("minute", 1000))
		s := realState{log: log}
		gap := min(int64(time.Second/time.Microsecond), 2*int64(time.Minute/time.Microsecond)/n)
		now := until - n*gap
		for i := range n {
			now += gap
			next, keep, _ := log.Step(s.bytes, now, driver.Demand{N: 1})
			if keep > 0 {
				s.bytes = next
			}
			if i == n-n/4-1 {
				s.at = now
			}
		}
		states[name] = s
	}
	return states
}

// spoil returns a corrupted copy of state: with changed bits or bytes, cut, extended or replaced.
func spoil(r *rand.Rand, state []byte) []byte {
	b := bytes.Clone(state)
	flip := func(from int) {
		at := from + r.IntN(len(b)-from)
		b[at] ^= 1 << r.IntN(8)
	}
	switch r.IntN(8) {
	case 0, 1, 2: // in the trailer
		flip(max(0, len(b)-160))
	case 3:
		for range 1 + r.IntN(8) {
			flip(0)
		}
	case 4:
		b = b[:r.IntN(len(b))]
	case 5:
		b = b[r.IntN(len(b)):]
	case 6:
		from := r.IntN(len(b))
		run := b[from:min(len(b), from+1+r.IntN(40))]
		for i, fill := range []byte{0, 0xff, byte(r.Uint32())} {
			if i == r.IntN(3) {
				copy(run, bytes.Repeat([]byte{fill}, len(run)))
			}
		}
		flip(from)
	default:
		b = make([]byte, 1+r.IntN(400))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
	}
	return b
}

// TestCorruptStateInLua gives corrupted states to the Lua step. It reports each as corrupt or
// decides within the limit. The script never aborts, which would leave the other demands of its
// call undecided, and never makes a large string of a small one.
func TestCorruptStateInLua(t *testing.T) {
	t.Parallel()
	const batch = 250
	batches := depth.Of(3, 40)
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		states := realStates(corruptNow)
		for _, name := range slices.Sorted(maps.Keys(states)) {
			real := states[name]
			t.Run(name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(1, uint64(len(real.bytes))))
				corrupt := 0
				calls := make([]lua.Run, batch)
				for range batches {
					corrupt += runSpoiled(t, client, r, real, calls)
				}
				if n := batches * batch; corrupt == 0 || corrupt == n {
					t.Errorf("%d of %d states are corrupt, want some and not all", corrupt, n)
				}
			})
		}
	})
}

// runSpoiled decides one corrupted state per call and returns how many were reported as corrupt.
func runSpoiled(
	t *testing.T, client redis.UniversalClient, r *rand.Rand, real realState, calls []lua.Run,
) (corrupt int) {
	t.Helper()
	limit := real.log.Limit().Max
	prefix := fmt.Sprintf("{spoiled:%d}", time.Now().UnixNano())
	type attempt struct {
		what  string
		state []byte
		call  *lua.Run
		times int
		set   *redis.StatusCmd
		reply *redis.Cmd
		size  *redis.IntCmd
	}
	attempts := make([]attempt, len(calls))
	pipe := newPipeline(client)
	for i := range attempts {
		a := &attempts[i]
		a.state, a.call, a.times = spoil(r, real.bytes), &calls[i], 1
		key := fmt.Sprintf("%s%d", prefix, i)
		d := driver.Demand{Key: "k", Algorithm: real.log, N: 1}
		now := corruptNow + r.Int64N(3)*r.Int64N(int64(time.Minute/time.Microsecond)) -
			r.Int64N(2)*int64(time.Hour/time.Microsecond)
		a.call.Begin(now)
		var err error
		switch r.IntN(6) {
		case 0:
			d.N = 1 + r.Int64N(limit)
		case 1:
			d.Op = driver.OpPeek
			d.N = 1 + r.Int64N(limit)
		case 2:
			d.Op, d.N = driver.OpForce, driver.MaxUnits
		case 3:
			d.Op, d.N, d.At = driver.OpForce, 1+r.Int64N(3), real.at
		default:
			a.times = int(limit) + 5
		}
		if a.times > 1 {
			err = a.call.AddSame(key, d, a.times)
		} else {
			err = a.call.Add([]string{key}, []driver.Demand{d})
		}
		if err != nil {
			t.Fatal(err)
		}
		a.what = fmt.Sprintf("%v of %d × %d at %d on %x", d.Op, d.N, a.times, now, a.state)
		a.set = pipe.Set(t.Context(), key, a.state, time.Minute)
		a.reply = pipe.run(t, a.call)
		a.size = pipe.StrLen(t.Context(), key)
	}
	_, _ = pipe.Exec(t.Context()) // each command has its own error
	for i := range attempts {
		a := &attempts[i]
		reply, err := a.reply.Text()
		if err := errors.Join(a.set.Err(), err, a.size.Err()); err != nil {
			t.Fatalf("%s: %v", a.what, err)
		}
		out := make([]driver.Result, a.times)
		err = a.call.Results(reply, 0, out)
		if errors.Is(err, driver.ErrCorruptState) {
			corrupt++
		} else if err != nil {
			t.Fatalf("%s: %v", a.what, err)
		}
		admitted := int64(0)
		for _, res := range out {
			if res.Remaining < 0 || res.Remaining > limit || res.RetryAfter < 0 ||
				res.ResetAfter < 0 {
				t.Fatalf("%s: got %+v, which no log of this limit can return", a.what, res)
			}
			if res.Allowed {
				admitted++
			}
		}
		if admitted > limit {
			t.Fatalf("%s: %d admitted, want at most %d", a.what, admitted, limit)
		}
		if size := a.size.Val(); size > int64(2*len(real.bytes)+1<<20) {
			t.Fatalf("%s: the state grew to %d bytes from %d", a.what, size, len(real.bytes))
		}
	}
	return corrupt
}

// TestCorruptStateInGroup decides a corrupted state together with an intact one. Both are admitted,
// or neither is changed.
func TestCorruptStateInGroup(t *testing.T) {
	t.Parallel()
	const batch = 250
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		states := realStates(corruptNow)
		for _, name := range slices.Sorted(maps.Keys(states)) {
			real := states[name]
			t.Run(name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(2, uint64(len(real.bytes))))
				pipe, call := newPipeline(client), new(lua.Run)
				for i, spoiled := range spoilMany(r, real.bytes, batch) {
					group := fmt.Sprintf("{group:%d}%d", time.Now().UnixNano(), i)
					wantTogether(t, pipe, call, group, real.log, spoiled)
				}
			})
		}
	})
}

// spoilMany returns n corrupted states, and two that are extended at the front.
func spoilMany(r *rand.Rand, state []byte, n int) [][]byte {
	many := [][]byte{append([]byte{0}, state...),
		append(bytes.Repeat([]byte{'x'}, 2*len(state)), state...)}
	for range n {
		many = append(many, spoil(r, state))
	}
	return many
}

func wantTogether(
	t *testing.T, pipe *pipeline, call *lua.Run, key string, log algorithm.Log, spoiled []byte,
) {
	t.Helper()
	keys := []string{key + "well", key + "spoiled"}
	demands := []driver.Demand{{Key: "well", Algorithm: log, N: 1},
		{Key: "spoiled", Algorithm: log, N: 1}}
	call.Begin(corruptNow + 1)
	if err := call.Add(keys, demands); err != nil {
		t.Fatal(err)
	}
	set := pipe.Set(t.Context(), keys[1], spoiled, time.Minute)
	run := pipe.run(t, call)
	well, after := pipe.StrLen(t.Context(), keys[0]), pipe.Get(t.Context(), keys[1])
	_, _ = pipe.Exec(t.Context()) // each command has its own error
	reply, err := run.Text()
	if err := errors.Join(set.Err(), err, well.Err(), after.Err()); err != nil {
		t.Fatal(err)
	}
	out := make([]driver.Result, len(demands))
	err = call.Results(reply, 0, out)
	switch {
	case err != nil && !errors.Is(err, driver.ErrCorruptState):
		t.Fatal(err)
	case err == nil && out[0].Allowed && out[1].Allowed:
		if well.Val() == 0 {
			t.Fatalf("admitted with a corrupted state, but not recorded: %+v; the state was %s",
				out, brief(spoiled))
		}
	case well.Val() != 0 || err != nil && after.Val() != string(spoiled):
		t.Fatalf("%v; want no change, but the intact state has %d bytes, and the corrupted one "+
			"was %s and is %s", err, well.Val(), brief(spoiled), brief([]byte(after.Val())))
	}
}

// brief shows the end of a state, which describes the rest.
func brief(state []byte) string {
	return fmt.Sprintf("%d bytes that end with %x", len(state), state[max(0, len(state)-160):])
}

// TestDescendingStamps: a log whose newest record has left the window and whose oldest has not is
// corrupt in Go and in Lua, and is not changed.
func TestDescendingStamps(t *testing.T) {
	long := algorithm.SlidingLog(driver.Limit{Name: "l", Max: 9, Window: time.Hour})
	short := algorithm.SlidingLog(driver.Limit{Name: "l", Max: 9, Window: time.Minute})
	const second = int64(time.Second / time.Microsecond)
	state, _, _ := long.Step(nil, corruptNow, driver.Demand{N: 2})
	state, _, _ = long.Step(state, corruptNow+second, driver.Demand{N: 2})
	copy(state[6:12], []byte{0, 0, 0x10, 0, 0, 0}) // the oldest record's stamp: 268s instead of 0
	now := corruptNow + 62*second
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		for _, d := range []driver.Demand{
			{Op: driver.OpTake}, {Op: driver.OpPeek}, {Op: driver.OpForce},
			{Op: driver.OpForce, At: corruptNow + second},
		} {
			op := d.Op
			d.Key, d.Algorithm, d.N = "k", short, 1
			if _, keep, res := d.Step(bytes.Clone(state), now); keep >= 0 {
				t.Errorf("Go, %v: got %+v, want a corrupt state", op, res)
			}
			key := servers.FreshKey(t)
			if err := client.Set(t.Context(), key, state, time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			var call lua.Run
			call.Begin(now)
			if err := call.Add([]string{key}, []driver.Demand{d}); err != nil {
				t.Fatal(err)
			}
			var out [1]driver.Result
			if err := call.Results(runCall(t, client, &call), 0, out[:]); !errors.Is(err,
				driver.ErrCorruptState) {
				t.Errorf("Lua, %v: got %+v, %v; want ErrCorruptState", op, out, err)
			}
			if after, err := client.Get(t.Context(), key).Bytes(); err != nil ||
				!bytes.Equal(after, state) {
				t.Errorf("Lua, %v: the state is %x, %v; want it unchanged: %x", op, after, err,
					state)
			}
		}
	})
}
