// Package fleet simulates processes that share a limit, in synthetic time: what they get is about
// the same on any machine.
package fleet

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/uses"
)

// A Fleet is processes whose demands of one unit arrive at random, each independent of the others.
type Fleet struct {
	Processes int
	Limit     driver.Limit
	Demand    float64 // of all processes, ÷ Limit
	// Beside, if not nil, is asked in each call too.
	Beside driver.Algorithm
	// Open returns what decides in a process that is half of RoundTrip away from the server. Nil is
	// the server itself.
	Open func(server driver.Store) (store driver.Store, stop func(), err error)
	// The figures are of the time Measure after Warm.
	Warm, Measure time.Duration
}

// RoundTrip is the time of a call of the server.
const RoundTrip = 500 * time.Microsecond

// Figures are what a fleet did.
type Figures struct {
	Decisions, Admitted, Calls int64   // Calls are of the server
	Used                       float64 // what was admitted ÷ what the limit admits in that time
	Worst                      float64 // most units in a window ÷ Max, from the start
}

// PerDecision returns the calls of the server a decision.
func (f Figures) PerDecision() float64 { return float64(f.Calls) / float64(f.Decisions) }

// callers are the goroutines of a process. One that waits for the server makes what arrives
// meanwhile later.
const callers = 4

// Run runs f in a bubble of its own.
func Run(t *testing.T, f Fleet) (got Figures) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		far := &farStore{server: server}
		start := time.Now()
		end := start.Add(f.Warm + f.Measure)
		var running sync.WaitGroup
		var mu sync.Mutex
		var used []uses.Use
		for i := range f.Processes {
			store, stop := driver.Store(far), func() {}
			if f.Open != nil {
				if store, stop, err = f.Open(far); err != nil {
					t.Fatal(err)
				}
			}
			defer stop()
			for k := range callers {
				c := &caller{store: store, r: rand.New(rand.NewPCG(uint64(i), uint64(k)))}
				running.Go(func() {
					c.call(t, &f, start.Add(f.Warm), end)
					mu.Lock()
					defer mu.Unlock()
					used = append(used, c.used...)
					got.Decisions += c.decisions
					got.Admitted += c.admitted
				})
			}
		}
		time.Sleep(f.Warm)
		before := far.calls.Load()
		running.Wait()
		got.Calls = far.calls.Load() - before
		got.Used = float64(got.Admitted) / (float64(f.Limit.Max) * float64(f.Measure) /
			float64(f.Limit.Window))
		uses.Sort(used)
		got.Worst = float64(uses.OverWindow(used, 0, f.Limit.Window.Microseconds())) /
			float64(f.Limit.Max)
	})
	return got
}

type caller struct {
	store               driver.Store
	r                   *rand.Rand
	used                []uses.Use
	decisions, admitted int64
}

func (c *caller) call(t *testing.T, f *Fleet, measured, end time.Time) {
	var served int64
	ctx := context.WithValue(t.Context(), servedKey{}, &served)
	log := algorithm.SlidingLog(f.Limit)
	ds := []driver.Demand{{Key: "key", Algorithm: log, N: 1}}
	if f.Beside != nil {
		ds = append(ds, driver.Demand{Key: "key", Algorithm: f.Beside, N: 1})
	}
	out := make([]driver.Result, len(ds))
	gap := float64(f.Limit.Window) / (float64(f.Limit.Max) * f.Demand) *
		float64(f.Processes*callers)
	due := time.Now()
	for {
		due = due.Add(time.Duration(c.r.ExpFloat64() * gap))
		if !due.Before(end) {
			return
		}
		if pause := time.Until(due); pause > 0 {
			time.Sleep(pause)
		}
		served = time.Now().UnixMicro()
		var err error
		if f.Beside == nil {
			out[0], err = c.store.Take(ctx, ds[0])
		} else {
			err = c.store.TakeAll(ctx, ds, out)
		}
		if err != nil {
			t.Error(err)
			return
		}
		counts := !due.Before(measured)
		if counts {
			c.decisions++
		}
		if slices.ContainsFunc(out, func(res driver.Result) bool { return !res.Allowed }) {
			continue
		}
		if counts {
			c.admitted++
		}
		c.used = append(c.used, uses.Use{At: served, Units: 1})
	}
}

// farStore is the server. It tells callers when it has decided; without, they decided at once.
type farStore struct {
	server driver.Store
	calls  atomic.Int64
}

type servedKey struct{}

func (s *farStore) Take(ctx context.Context, d driver.Demand) (res driver.Result, err error) {
	s.reach(ctx, func() { res, err = s.server.Take(ctx, d) })
	return res, err
}

func (s *farStore) TakeAll(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) (err error) {
	s.reach(ctx, func() { err = s.server.TakeAll(ctx, ds, out) })
	return err
}

func (s *farStore) reach(ctx context.Context, decide func()) {
	s.calls.Add(1)
	time.Sleep(RoundTrip / 2)
	decide()
	if at, ok := ctx.Value(servedKey{}).(*int64); ok {
		*at = time.Now().UnixMicro()
	}
	time.Sleep(RoundTrip / 2)
}
