package scripts

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestInexactLuaStepIsGoStep: the Lua and the Go step of each algorithm write the same bytes for
// limits whose products exceed the precision of a double.
func TestInexactLuaStepIsGoStep(t *testing.T) {
	for name, newAlgorithm := range map[string]func(
		*rand.Rand, driver.Limit) driver.Algorithm{
		"bucket": func(_ *rand.Rand, l driver.Limit) driver.Algorithm {
			return algorithm.TokenBucket(l)
		},
		"fixed": func(r *rand.Rand, l driver.Limit) driver.Algorithm {
			return algorithm.FixedWindow(l).WithOffset(time.Duration(r.Int64N(int64(l.Window))))
		},
		"counter": func(_ *rand.Rand, l driver.Limit) driver.Algorithm {
			return algorithm.SlidingWindowCounter(l)
		},
		"quota": func(_ *rand.Rand, l driver.Limit) driver.Algorithm { return NewQuota(l) },
	} {
		t.Run(name, func(t *testing.T) {
			servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
				r := rand.New(rand.NewPCG(8, 11))
				w := newTwin(t, tgt.Client(t), name)
				now := time.Now().UnixMicro()
				var a driver.Algorithm
				for i := range 3000 {
					if i%5 == 0 {
						a = newAlgorithm(r, randomLimit(r))
					}
					d := randomInexact(r, a)
					now = min(now+randomTick(r, a.Limit().Window.Microseconds()), 4e15)
					w.stepAndForget(t, now, d)
					if i%7 == 0 {
						w.swap(t)
					}
				}
				w.compare(t)
			})
		})
	}
}

func randomLimit(r *rand.Rand) driver.Limit {
	more := time.Duration(r.Int64N(int64(365*24*time.Hour) >> r.IntN(20)))
	return driver.Limit{Name: "twin", Max: 1 + r.Int64N(1<<r.IntN(41)), Window: time.Hour + more}
}

// randomInexact returns a random demand: mostly a take, rarely a reset or a large force.
func randomInexact(r *rand.Rand, a driver.Algorithm) driver.Demand {
	d := driver.Demand{Key: "k", Algorithm: a, Op: driver.Op(r.IntN(4)),
		N: 1 + r.Int64N(a.Limit().Max)}
	if r.IntN(3) == 0 {
		d.N = 1 + r.Int64N(min(a.Limit().Max, 20))
	}
	switch r.IntN(20) {
	case 0:
		d.Op, d.N = driver.OpForce, 1+r.Int64N(driver.MaxUnits)
	case 1, 2, 3, 4, 5, 6, 7, 8:
		d.Op = driver.OpTake
	}
	return d
}

// stepAndForget is step, followed by a reset of a state that the server, whose keys expire in real
// time, may drop before the Go side.
func (w *twin) stepAndForget(t *testing.T, now int64, d driver.Demand) {
	t.Helper()
	w.step(t, now, d)
	d.Op, d.N = driver.OpPeek, 1
	_, _, left := d.Step(bytes.Clone(w.state), now)
	if left.ResetAfter < 10*time.Minute && len(w.state) > 0 {
		d.Op = driver.OpReset
		w.step(t, now, d)
	}
}

// TestInexactOnServers runs the conformance suite with these algorithms on single servers. It omits
// the cases of many keys and calls, which use the first algorithm only: TestConformance of
// integration/conformance and TestQuotaOnMemory run them.
func TestInexactOnServers(t *testing.T) {
	t.Parallel()
	opts := *quotaOptions
	opts.Algorithms = append(slices.Clone(opts.Algorithms),
		func(l driver.Limit) driver.Algorithm { return algorithm.TokenBucket(l) },
		func(l driver.Limit) driver.Algorithm { return algorithm.FixedWindow(l) },
		func(l driver.Limit) driver.Algorithm { return algorithm.SlidingWindowCounter(l) })
	opts.Except = maps.Clone(opts.Except)
	opts.Except["clock/back-up-to-window"] = "it looks into a rolling Window"
	for _, rule := range []string{"identity/many-keys", "identity/hashed-keys", "op/many-records",
		"concurrency/many-calls"} {
		opts.Except[rule] = "TestConformance tries it"
	}
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		if tgt.Cluster {
			return
		}
		conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
			store, err := redisstore.New(tgt.Client(t),
				&serverstore.Options{Timeout: clients.Patient, Now: now})
			if err != nil {
				t.Fatal(err)
			}
			return conformance.Harness{Store: store}
		}, &opts)
	})
}
