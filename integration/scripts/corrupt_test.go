package scripts

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/layer"
)

var threeADay = algorithm.SlidingLog(driver.PerDay("day", 3))

// foreignValues store values that are not states under the key of a state.
var foreignValues = map[string]func(pipe redis.Pipeliner, t *testing.T, key string){
	"list": func(pipe redis.Pipeliner, t *testing.T, key string) {
		pipe.RPush(t.Context(), key, "x")
	},
	"hash": func(pipe redis.Pipeliner, t *testing.T, key string) {
		pipe.HSet(t.Context(), key, "x", "y")
	},
	"set": func(pipe redis.Pipeliner, t *testing.T, key string) {
		pipe.SAdd(t.Context(), key, "x")
	},
	"zset": func(pipe redis.Pipeliner, t *testing.T, key string) {
		pipe.ZAdd(t.Context(), key, redis.Z{Member: "x"})
	},
	"stream": func(pipe redis.Pipeliner, t *testing.T, key string) {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []string{"x", "y"}})
	},
	"number": func(pipe redis.Pipeliner, t *testing.T, key string) { pipe.Incr(t.Context(), key) },
	"cut": func(pipe redis.Pipeliner, t *testing.T, key string) {
		pipe.Set(t.Context(), key, realStates(time.Now().UnixMicro())["small"].bytes[:100], 0)
	},
	"random": func(pipe redis.Pipeliner, t *testing.T, key string) {
		pipe.Set(t.Context(), key, randomBytes(300), 0)
	},
	"huge": func(pipe redis.Pipeliner, t *testing.T, key string) {
		pipe.Set(t.Context(), key, randomBytes(8<<20), 0)
	},
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

func put(
	t *testing.T, client redis.UniversalClient, value func(redis.Pipeliner, *testing.T, string),
	key string,
) {
	t.Helper()
	pipe := client.Pipeline()
	value(pipe, t, key)
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestForeignValue: demands on a key whose value is not a state report ErrCorruptState and change
// nothing, and are undecided under FailClosed, under FailOpen and with layer.Degraded; demands on
// other keys are decided. A Reset removes the value.
func TestForeignValue(t *testing.T) {
	t.Parallel()
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		admin := tgt.Client(t)
		clients.EachOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			prefix := servers.UniquePrefix()
			s := lib.Client(t, clients.To(tgt)).
				NewStore(t, &serverstore.Options{Prefix: prefix, Timeout: clients.Patient,
					Tag: func(string) string { return "t" }})
			for _, what := range slices.Sorted(maps.Keys(foreignValues)) {
				key := servers.FreshKey(t)
				stored := prefix + "{=t}=" + key + ":day:log3"
				put(t, admin, foreignValues[what], stored)
				before := admin.Dump(t.Context(), stored).Val()
				wantCorrupt(t, what, s, key)
				if after := admin.Dump(t.Context(), stored).Val(); after != before {
					t.Errorf("%s: the value was changed, want it kept", what)
				}
				wantAfterReset(t, what, s, key)
			}
		})
	})
}

// wantCorrupt checks that every demand on key returns ErrCorruptState and is neither admitted by a
// policy nor decided locally.
func wantCorrupt(t *testing.T, what string, s driver.Store, key string) {
	t.Helper()
	check := func(op string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrCorruptState) ||
			errors.Is(err, driver.ErrOutcomeUnknown) {
			t.Errorf("%s: %s: got %v, want ErrCorruptState", what, op, err)
		}
	}
	d := driver.Demand{Key: key, Algorithm: threeADay, N: 1}
	for _, op := range []driver.Op{driver.OpTake, driver.OpPeek, driver.OpForce} {
		d.Op = op
		_, err := s.Take(t.Context(), d)
		check(op.String(), err)
	}
	d.Op = driver.OpTake
	other := driver.Demand{Key: key + "-other", Algorithm: threeADay, N: 3}
	check("TakeAll", s.TakeAll(t.Context(), []driver.Demand{other, d},
		make([]driver.Result, 2)))
	if res, err := s.Take(t.Context(), other); err != nil || !res.Allowed {
		t.Errorf("%s: the other key of the TakeAll got %+v, %v; want an admission", what, res, err)
	}
	l, err := ratelimit.New(s, threeADay)
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range []ratelimit.Policy{ratelimit.FailClosed, ratelimit.FailOpen} {
		res, err := l.WithPolicy(policy).Allow(t.Context(), key)
		check(policy.String(), err)
		if res != (driver.Result{}) {
			t.Errorf("%s: %v: got %+v beside the error, want a zero Result", what, policy, res)
		}
	}
	local, err := layer.NewDegraded(s, &layer.DegradedOptions{Instances: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	_, err = local.Take(t.Context(), d)
	check("Degraded", err)
}

// wantAfterReset checks that a Reset removes what was stored for key.
func wantAfterReset(t *testing.T, what string, s driver.Store, key string) {
	t.Helper()
	d := driver.Demand{Key: key, Algorithm: threeADay, Op: driver.OpReset}
	if _, err := s.Take(t.Context(), d); err != nil {
		t.Errorf("%s: Reset: got %v, want no error", what, err)
	}
	d.Op, d.N = driver.OpTake, 3
	for _, want := range []bool{true, false} {
		if res, err := s.Take(t.Context(), d); err != nil || res.Allowed != want {
			t.Errorf("%s: after the Reset: got %+v, %v; want Allowed %t", what, res, err, want)
		}
	}
}

// TestResetCorruptOnServer: a layer.ResetCorrupt resets values that are not states, and decides.
func TestResetCorruptOnServer(t *testing.T) {
	t.Parallel()
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		admin := tgt.Client(t)
		clients.EachOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			prefix := servers.UniquePrefix()
			opts := &serverstore.Options{Prefix: prefix, Timeout: clients.Patient,
				Tag: func(string) string { return "t" }}
			s := layer.NewResetCorrupt(lib.Client(t, clients.To(tgt)).NewStore(t, opts))
			other := driver.Demand{Key: "other",
				Algorithm: threeADay, Op: driver.OpForce, N: 1}
			want := int64(0)
			for _, what := range slices.Sorted(maps.Keys(foreignValues)) {
				for _, together := range []bool{false, true} {
					want++
					d := driver.Demand{Key: servers.FreshKey(t), Algorithm: threeADay, N: 1}
					put(t, admin, foreignValues[what], prefix+"{=t}="+d.Key+":day:log3")
					out := make([]driver.Result, 2)
					var err error
					if together {
						err = s.TakeAll(t.Context(), []driver.Demand{d, other}, out)
					} else {
						out[0], err = s.Take(t.Context(), d)
					}
					if err != nil || !out[0].Allowed || out[0].Remaining != 2 ||
						s.Resets() != want {
						t.Errorf("%s, together %t: got %+v, %v after %d resets; want %d resets",
							what, together, out[0], err, s.Resets(), want)
					}
				}
			}
			if n := clients.Recorded(t, s, "other"); n != want/2 {
				t.Errorf("%d units recorded for the key that was never corrupt, want %d", n, want/2)
			}
		})
	})
}

// TestSpoiledState changes bits of states or cuts them. What is no longer a state is corrupt; what
// still is one admits no more than the limit, for any demand.
func TestSpoiledState(t *testing.T) {
	t.Parallel()
	const limit = 12
	log := algorithm.SlidingLog(driver.PerHour("hour", limit))
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		admin := tgt.Client(t)
		clients.EachOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			r := mathrand.New(mathrand.NewPCG(2, 3))
			prefix := servers.UniquePrefix()
			s := lib.Client(t, clients.To(tgt)).
				NewStore(t, &serverstore.Options{Prefix: prefix, Timeout: clients.Patient})
			corrupt := 0
			const states = 60
			for i := range states {
				key := fmt.Sprint("spoiled", i)
				d := driver.Demand{Key: key, Algorithm: log, N: 1}
				for range 1 + i%limit { // up to more than ten records
					clients.Ask(t, s, d)
				}
				stored := prefix + "{=" + key + "}:hour:log3"
				real, err := admin.Get(t.Context(), stored).Bytes()
				if err != nil {
					t.Fatal(err)
				}
				spoiled := spoil(r, real)
				if err := admin.Set(t.Context(), stored, spoiled, time.Hour).Err(); err != nil {
					t.Fatal(err)
				}
				if admitted, ok := admittedOn(t, s, d, limit+3); !ok {
					corrupt++
				} else if admitted > limit {
					t.Errorf("%d admitted on %x, want at most %d", admitted, spoiled, limit)
				}
				d.Op = driver.OpReset
				if res := clients.Ask(t, s, d); !res.Allowed || res.Remaining != limit {
					t.Errorf("Reset of %x: got %+v, want %d remaining", spoiled, res, limit)
				}
			}
			if corrupt < states/10 || corrupt == states {
				t.Errorf("%d of %d states are corrupt, want a tenth or more and not all", corrupt,
					states)
			}
		})
	})
}

// admittedOn takes that many times, peeks in between, and returns how many takes were admitted, or
// false if the state is corrupt.
func admittedOn(
	t *testing.T, s driver.Store, d driver.Demand, times int,
) (admitted int, ok bool) {
	t.Helper()
	for range times {
		for _, op := range []driver.Op{driver.OpPeek, driver.OpTake} {
			d.Op = op
			res, err := s.Take(t.Context(), d)
			if errors.Is(err, driver.ErrCorruptState) {
				return admitted, false
			}
			if err != nil || res.Remaining < 0 || res.Remaining > res.Limit.Max {
				t.Fatalf("%v: got %+v, %v; want a decision of the log", op, res, err)
			}
			if res.Allowed && op == driver.OpTake {
				admitted++
			}
		}
	}
	return admitted, true
}
