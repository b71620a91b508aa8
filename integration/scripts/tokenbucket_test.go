package scripts

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// TestTokenBucketChangedInLua: units that were missing are missing still when the rate or the burst
// changes, and come back at the new rate. The figures are those of TestTokenBucketChanged.
func TestTokenBucketChangedInLua(t *testing.T) {
	type change struct {
		bucket algorithm.Bucket
		want   driver.Result
	}
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		for name, tt := range map[string]struct {
			before  algorithm.Bucket
			forced  int64
			changes []change
		}{
			"slowed and quickened": {algorithm.TokenBucket("b", 100, 100), 100, []change{
				{algorithm.TokenBucket("b", 0.1, 100),
					driver.Result{RetryAfter: 10 * time.Second, ResetAfter: 1000 * time.Second}},
				{algorithm.TokenBucket("b", 100, 100),
					driver.Result{RetryAfter: 10 * time.Millisecond, ResetAfter: time.Second}},
			}},
			"a day to a minute": {algorithm.GCRA(driver.PerDay("b", 1000)), 1000, []change{
				{algorithm.GCRA(driver.PerMinute("b", 1000)),
					driver.Result{RetryAfter: 60 * time.Millisecond, ResetAfter: time.Minute}},
			}},
			"raised": {algorithm.GCRA(driver.PerMinute("b", 10)), 11, []change{
				{algorithm.GCRA(driver.PerMinute("b", 1000)), driver.Result{Allowed: true,
					Remaining: 989, ResetAfter: 660 * time.Millisecond}},
			}},
		} {
			w, now := newTwin(t, tgt.Client(t), "changed"), time.Now().UnixMicro()
			w.step(t, now, driver.Demand{Key: "k", Algorithm: tt.before, Op: driver.OpForce,
				N: tt.forced})
			for _, c := range tt.changes {
				c.want.Limit = c.bucket.Limit()
				for range 99 { // a refusal changes nothing for the next one
					if got := w.step(t, now, driver.Demand{Key: "k", Algorithm: c.bucket,
						Op: driver.OpPeek, N: 1}); got != c.want {
						t.Fatalf("%s: %+v, want %+v", name, got, c.want)
					}
				}
			}
			w.compare(t)
		}
	})
}

// TestTokenBucketStates gives states with numbers at and beyond their bounds to both steps. They
// find the same states corrupt, decide alike and write the same bytes.
func TestTokenBucketStates(t *testing.T) {
	t.Parallel()
	rounds := depth.Of(20, 400)
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		client, r := tgt.Client(t), rand.New(rand.NewPCG(3, 4))
		corrupt, decided, compared, reduced := 0, 0, 0, 0
		prefix := "{" + servers.UniquePrefix() + "}" // a transaction has one slot
		for range rounds {
			calls, pipe := make([]lua.Run, stepsAtOnce), newTransaction(client)
			var replies []*redis.Cmd
			var after []*redis.StringCmd
			var steps []twinStep
			var states [][]byte
			for i := range calls {
				state := randomBucketState(r)
				now := bucketNow(r, state)
				limit := bucketLimit(r, state)
				d := driver.Demand{Key: "k", Op: driver.Op(r.IntN(3)),
					Algorithm: algorithm.GCRA(limit).WithDebt(randomDebt(r, limit))}
				d.N = 1 + r.Int64N(d.Algorithm.Limit().Max)
				if d.Op == driver.OpForce && r.IntN(2) == 0 {
					d.N = driver.MaxUnits - r.Int64N(3)
				}
				key := fmt.Sprint(prefix, servers.FreshNumber())
				calls[i].Begin(now)
				if err := calls[i].Add([]string{key}, []driver.Demand{d}); err != nil {
					t.Fatal(err)
				}
				pipe.Set(t.Context(), key, state, time.Hour)
				replies = append(replies, pipe.run(t, &calls[i]))
				after = append(after, pipe.Get(t.Context(), key))
				steps, states = append(steps, twinStep{now: now, d: d}), append(states, state)
			}
			_, _ = pipe.Exec(t.Context()) // each command has its own error
			for i, s := range steps {
				state := states[i]
				next, keep, want := s.d.Step(bytes.Clone(state), s.now)
				var got [1]driver.Result
				reply, err := replies[i].Text()
				if err == nil {
					err = calls[i].Results(reply, 0, got[:])
				}
				if keep < 0 && errors.Is(err, driver.ErrCorruptState) {
					corrupt++
					continue
				}
				if err != nil || got[0] != want || keep < 0 {
					t.Fatalf("%v of %d at %d under %v on %x: got %+v, %v in Lua, want %+v, keep "+
						"%v as in Go", s.d.Op, s.d.N, s.now, s.d.Algorithm, state, got[0],
						err, want, keep)
				}
				decided++
				unbound := s.d
				unbound.Algorithm = algorithm.GCRA(s.d.Algorithm.Limit())
				if _, _, res := unbound.Step(bytes.Clone(state), s.now); res != want {
					reduced++
				}
				if keep == 0 {
					next = state
				} else if keep < 10*time.Minute {
					continue // the server may have dropped it
				}
				compared++
				if wrote, err := after[i].Bytes(); err != nil || !bytes.Equal(wrote, next) {
					t.Fatalf("%v of %d at %d under %v on %x: Lua wrote %x, %v; Go wrote %x",
						s.d.Op, s.d.N, s.now, s.d.Algorithm, state, wrote, err, next)
				}
			}
		}
		if least := rounds * stepsAtOnce / 10; min(corrupt, decided, compared, reduced) < least {
			t.Errorf("%d states are corrupt, %d were decided, %d of them compared, %d with a debt "+
				"that matters; want %d of each", corrupt, decided, compared, reduced, least)
		}
	})
}

// randomBucketState returns a state of a bucket: units, part, Max, Window and time. About half have
// a number that no step writes.
func randomBucketState(r *rand.Rand) []byte {
	near := func(n uint64) uint64 { return n + r.Uint64N(3) - 1 }
	size := func(most int) uint64 { return 1 + r.Uint64N(1<<r.IntN(most)) }
	window := min(1000+size(45), uint64(driver.MaxWindow.Microseconds()))
	s := [5]uint64{size(45), r.Uint64N(window), size(41), window, 1e15 + size(50)}
	switch r.IntN(4) {
	case 0: // as many as come back in 2^50 µs, or nearly
		s[0] = 1 << 52
		if s[2]/window < 4 {
			s[0] = near((1<<50/window)*s[2] + (1<<50%window)*s[2]/window)
		}
	case 1:
		s[0] = near(1 << 52)
	}
	if r.IntN(2) == 0 {
		i := r.IntN(5)
		s[i] = near([5][]uint64{{1, 1 << 52, 1 << 53, 1 << 63}, {1, window, 1 << 53, 1 << 63},
			{1, 1 << 40, 1 << 53, 1 << 63}, {1, 1000, 31_622_400_000_000, 1 << 53, 1 << 63},
			{1, 1 << 52, 1 << 53, 1 << 63}}[i][r.IntN(4)])
	}
	var state []byte
	for _, n := range s {
		state = binary.BigEndian.AppendUint64(state, n)
	}
	if r.IntN(20) == 0 {
		return spoil(r, state)
	}
	return state
}

// randomDebt returns the default, the least, or any debt of a bucket.
func randomDebt(r *rand.Rand, l driver.Limit) time.Duration {
	switch r.IntN(3) {
	case 0:
		return 0
	case 1:
		return l.Window
	default:
		more := r.Int64N(int64(1<<50*time.Microsecond-l.Window) >> r.IntN(35))
		return l.Window + time.Duration(more).Truncate(time.Microsecond)
	}
}

// bucketLimit returns the limit of a state, or another one.
func bucketLimit(r *rand.Rand, state []byte) driver.Limit {
	l := driver.Limit{Name: "b", Max: 1 + r.Int64N(1<<r.IntN(41)),
		Window: time.Millisecond + time.Duration(r.Int64N(1<<r.IntN(45)))*time.Microsecond}
	if len(state) == 40 && r.IntN(2) == 0 {
		same := driver.Limit{Name: "b", Max: int64(binary.BigEndian.Uint64(state[16:])),
			Window: time.Duration(binary.BigEndian.Uint64(state[24:])) * time.Microsecond}
		if same.Validate() == nil {
			return same
		}
	}
	return l
}

// bucketNow returns a time near that of a state. It is never 0: for a script that means the
// server's clock.
func bucketNow(r *rand.Rand, state []byte) int64 {
	now := int64(1e15)
	if len(state) == 40 {
		now = int64(binary.BigEndian.Uint64(state[32:]) % (1 << 52))
	}
	if r.IntN(3) == 0 {
		return max(1, now-r.Int64N(1<<r.IntN(50)))
	}
	return max(1, min(now+r.Int64N(1<<r.IntN(52)), 1<<52-1))
}
