package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/fleet"
	"github.com/truewindow/ratelimit/layer"
)

// oursLeased is this module with leases.
const oursLeased = "ratelimit-leased"

// A fleetEntry is a way in which processes share a limit.
type fleetEntry struct {
	name     string
	together bool // it decides several demands as one
	open     func(driver.Limit) opener
}

// An opener is what opens the store of a process; see [fleet.Fleet].
type opener = func(server driver.Store) (store driver.Store, stop func(), err error)

// fleetEntries are the ways. None of the other libraries decides in its process and syncs in the
// background, as some do, so a model of that is beside.
var fleetEntries = []fleetEntry{
	{ours, true, func(driver.Limit) opener { return nil }},
	{oursLeased, true, func(driver.Limit) opener { return openLeased }},
	{"model-syncing-each-second", false, openSyncing},
}

func openLeased(server driver.Store) (driver.Store, func(), error) {
	s, err := layer.NewLeased(server, nil)
	if err != nil {
		return nil, nil, err
	}
	return s, func() { s.Close() }, nil
}

func openSyncing(limit driver.Limit) opener {
	syncing := &fleet.Syncing{Every: time.Second}
	return func(server driver.Store) (driver.Store, func(), error) {
		m, stop := syncing.Member(server, limit)
		return m, stop, nil
	}
}

// BenchmarkFleet simulates processes that share a limit a minute, in synthetic time: the calls of
// the server a decision, what was admitted ÷ the limit, and the most in a window ÷ the limit. A
// block has no leases, so a claim of one beside the limit is a call.
func BenchmarkFleet(b *testing.B) {
	for _, block := range []bool{false, true} {
		for _, most := range []int64{6_000, 60_000, 1_000_000} {
			for _, processes := range []int{2, 8, 32} {
				for _, demand := range []float64{0.9, 1.5, 30} {
					if demand > 2 && most > 6_000 {
						continue // it takes long
					}
					name := fmt.Sprintf("limit=%d/processes=%d/demand=%v", most, processes, demand)
					if block {
						name += "/block"
					}
					for _, e := range fleetEntries {
						if e.name == ours && most > 60_000 || block && !e.together {
							continue // a call for each decision; a claim of its own
						}
						limit := driver.PerMinute("many", most)
						f := fleet.Fleet{Processes: processes, Limit: limit, Demand: demand,
							Open: e.open(limit), Warm: 70 * time.Second, Measure: time.Minute}
						if block {
							f.Beside = algorithm.Blocking("blocked", time.Hour)
						}
						b.Run(name+"/entry="+e.name, func(b *testing.B) { simulate(b, f) })
					}
				}
			}
		}
	}
}

// simulate runs f in a test, since only tests have bubbles.
func simulate(b *testing.B, f fleet.Fleet) {
	var got fleet.Figures
	for b.Loop() {
		matches := func(string, string) (bool, error) { return true, nil }
		run := func(t *testing.T) { got = fleet.Run(t, f) }
		if !testing.RunTests(matches, []testing.InternalTest{{Name: "Fleet", F: run}}) {
			b.Fatal("the simulation failed")
		}
	}
	b.ReportMetric(got.PerDecision(), "calls/decision")
	b.ReportMetric(got.Used, "used÷limit")
	b.ReportMetric(got.Worst, "most÷limit")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkFleetOnServer measures how many decisions processes can make on one key of a server. A
// process is a store with its own connections; all are in this one, with four callers each. They
// have used the key for some seconds before.
func BenchmarkFleetOnServer(b *testing.B) {
	for _, processes := range []int{2, 8, 32} {
		for _, e := range []struct {
			name   string
			leased bool
		}{{ours, false}, {oursLeased, true}} {
			b.Run(fmt.Sprintf("processes=%d/entry=%s", processes, e.name), func(b *testing.B) {
				s, entry := onServer(b), redisEntry{open: openShared(e.leased)}
				members := make([]decider, processes)
				for i := range members {
					members[i] = s.open(b, entry, quota{1 << 36, time.Minute})
				}
				decideFor(b, members, 3*time.Second)
				before := s.snapshot(b, nil)
				var n count
				for b.Loop() {
					n.plus(decideFor(b, members, time.Second))
				}
				s.report(b, nil, before, n.report(b))
				b.ReportMetric(float64(n.decisions)/b.Elapsed().Seconds(), "decisions/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func openShared(leased bool) func(string, quota) (decider, error) {
	return func(addr string, q quota) (decider, error) {
		client := newGoRedis(addr)
		shared, err := redisstore.New(client, &serverstore.Options{Timeout: clientTimeout})
		if err != nil {
			client.Close()
			return decider{}, err
		}
		if !leased {
			return limiting(shared, func() { client.Close() }, algorithm.SlidingLog(q.limit()))
		}
		store, err := layer.NewLeased(shared, nil)
		if err != nil {
			client.Close()
			return decider{}, err
		}
		stop := func() { store.Close(); client.Close() }
		return limiting(store, stop, algorithm.SlidingLog(q.limit()))
	}
}

// decideFor has four callers of each member make calls on one key.
func decideFor(b *testing.B, members []decider, length time.Duration) (sum count) {
	b.Helper()
	var mu sync.Mutex
	var callers sync.WaitGroup
	end := time.Now().Add(length)
	for i := range 4 * len(members) {
		callers.Go(func() {
			var n count
			for time.Now().Before(end) {
				n.add(members[i%len(members)].allow(b.Context(), "hot"))
			}
			mu.Lock()
			defer mu.Unlock()
			sum.plus(n)
		})
	}
	callers.Wait()
	return sum
}

// BenchmarkLeased measures decisions in process. A hot key is decided from leases. On many keys,
// which have none, the entry with leases shows what they cost the others. The store inside is in
// memory.
func BenchmarkLeased(b *testing.B) {
	hot := workload{"hot", quota{1_000_000_000, time.Minute}, keyNames(1), nil, 100}
	many := keyNames(100_000)
	cold := workload{"100k-keys/uniform", quota{10_000_000, time.Hour}, many, uniform(len(many)), 1}
	entries := []memoryEntry{
		{xTime, openXTime},
		{ours,
			func(q quota) (decider, error) { return openMemory(algorithm.SlidingLog(q.limit())) }},
		{oursLeased, openLeasedMemory},
		{oursLeased + "-store", openLeasedStore},
	}
	for _, w := range []workload{hot, cold} {
		for _, cpus := range []int{1, 2} {
			for _, e := range entries {
				if w.order == nil && e.name == ours {
					continue // its log would grow all the time
				}
				name := fmt.Sprintf("%s/cpus=%d/entry=%s", w.name, cpus, e.name)
				b.Run(name, func(b *testing.B) {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cpus))
					d, err := e.open(w.quota)
					if err != nil {
						b.Fatal(err)
					}
					defer d.close()
					w.warmUp(b, d)
					b.ReportAllocs()
					b.ResetTimer()
					w.decide(b, d, cpus).report(b)
				})
			}
		}
	}
}

func openLeasedMemory(q quota) (decider, error) {
	store, stop, err := newLeasedMemory()
	if err != nil {
		return decider{}, err
	}
	return limiting(store, stop, algorithm.SlidingLog(q.limit()))
}

// openLeasedStore is openLeasedMemory without a Limiter.
func openLeasedStore(q quota) (decider, error) {
	store, stop, err := newLeasedMemory()
	if err != nil {
		return decider{}, err
	}
	var a driver.Algorithm = algorithm.SlidingLog(q.limit())
	return decider{
		allow: func(ctx context.Context, key string) (bool, error) {
			res, err := store.Take(ctx, driver.Demand{Key: key, Algorithm: a, N: 1})
			return res.Allowed, err
		},
		close: stop,
	}, nil
}

func newLeasedMemory() (store *layer.Leased, stop func(), err error) {
	inside, err := memorystore.New(&memorystore.Options{MaxKeys: maxKeys})
	if err != nil {
		return nil, nil, err
	}
	store, err = layer.NewLeased(inside, nil)
	if err != nil {
		inside.Close()
		return nil, nil, err
	}
	return store, func() { store.Close(); inside.Close() }, nil
}
