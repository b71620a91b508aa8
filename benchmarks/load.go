package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	manyLoad    = "10k keys"
	hotLoad     = "hot key"
	refusedLoad = "refused key"
)

// loadCase names the column of a load.
func loadCase(load string, callers int) string { return fmt.Sprintf("%s, c=%d", load, callers) }

// everywhere returns the entries that take part in each load.
func everywhere() []string {
	return slices.Concat([]string{zset, zsetRueidis, zsetValkey}, oursOnServers)
}

// loadEntries returns the entries of a load. Those not in everywhere take part in the most telling
// cases only, to limit the time of a run.
func loadEntries(load string, callers int) []string {
	entries := everywhere()
	switch loadCase(load, callers) {
	case "10k keys, c=1":
		return append(entries, emptyScript, atOnce)
	case "10k keys, c=64":
		return append(entries, emptyScript, atOnce, redisRate, ululeName, throttledName,
			rueidisLimiter, valkeyLimiter, httprateRedis, goRedisstore)
	case "10k keys, c=512":
		return append(entries, emptyScript, atOnce, redisRate, ululeName, rueidisLimiter,
			valkeyLimiter)
	// httprate-redis and go-redisstore have no windows below a second
	case "hot key, c=512":
		return append(entries, atOnce, redisRate, ululeName, throttledName, rueidisLimiter,
			valkeyLimiter)
	case "refused key, c=64":
		return slices.Concat(entries, cachedRefusals,
			[]string{atOnce, redisRate, ululeName, throttledName, rueidisLimiter, httprateRedis,
				goRedisstore})
	}
	return entries
}

// load measures throughput and latency with concurrent callers.
func load(s **server, quick bool) subject {
	callers, duration := []int{1, 64, 512}, 300*time.Millisecond
	if quick {
		duration = 200 * time.Millisecond
	}
	sub := subject{
		name: "load", title: "Decisions under load", reference: zset, rounds: 3,
		metrics: []metric{
			{"rate", "decisions/s",
				fmt.Sprintf("c is the number of concurrent callers, on the same machine as the "+
					"server. go-redis has %d connections. %q is a store without a server: its "+
					"rate is the most that the callers can make.",
					connections, atOnce), false},
			{"p50", "µs",
				"Latencies are those of every nth decision, about 50,000 a round or all, so " +
					"that measuring them costs little.", false},
			{"p99", "µs", "", false},
			{"p999", "µs", "", false},
			{"server CPU", "µs per decision", "", false},
			{"client CPU", "µs per decision", "", false},
			{"commands", "per decision",
				"Calls of scripts; of throttled and httprate-redis, of all their commands. " +
					"Below 1, decisions were batched.", true},
			{"reads", "of the server, per decision",
				"Below 1, the server read several requests at once.", true},
			{"admitted", "share of the decisions",
				"The hot key admits 10,000 a second: a faster entry refuses more.",
				true},
			{"errors", "share of the calls",
				"Calls that failed. They do not count as decisions.", true},
		},
	}
	manyOrder := uniform(10_000)
	for _, c := range callers {
		for _, w := range []workload{
			{name: manyLoad, quota: quota{100, time.Second}, keys: keyNames(10_000),
				order: manyOrder},
			{name: hotLoad, quota: quota{1000, 100 * time.Millisecond}, keys: keyNames(1)},
			{name: refusedLoad, quota: quota{10, time.Hour}, keys: keyNames(1)},
		} {
			if quick && c != 64 && (c != 512 || w.name != hotLoad) {
				continue
			}
			entries, rounds := loadEntries(w.name, c), 0
			if quick {
				entries = slices.DeleteFunc(entries, func(name string) bool {
					return slices.Contains(notQuick, name)
				})
			}
			if len(entries) == len(everywhere()) { // no other library takes part
				rounds = 2
			}
			sub.cases = append(sub.cases,
				testCase{name: loadCase(w.name, c), entries: entries, rounds: rounds,
					measure: func(ctx context.Context, entry string) ([]float64, error) {
						return (*s).load(ctx, entry, &w, c, duration)
					}})
		}
	}
	return sub
}

const (
	loadWarm    = 100 * time.Millisecond // connections, scripts, first records
	loadSamples = 50_000                 // enough latencies
)

// load makes each caller decide as fast as it gets answers.
func (s *server) load(
	ctx context.Context, name string, w *workload, callers int, duration time.Duration,
) ([]float64, error) {
	entry, p, err := s.open(ctx, name, w.quota)
	if err != nil {
		return nil, err
	}
	defer p.close()
	warm, _ := hammer(ctx, p.decider, w, callers, loadWarm, loadSamples)
	every := max(1, int(float64(warm.decisions)*float64(duration)/float64(loadWarm)/loadSamples))
	before, err := s.snapshot(ctx, entry.calls)
	if err != nil {
		return nil, err
	}
	clientBefore := ownCPU()
	start := time.Now()
	calls, latencies := hammer(ctx, p.decider, w, callers, duration, every)
	took := time.Since(start)
	clientAfter := ownCPU()
	after, err := s.snapshot(ctx, entry.calls)
	if err != nil {
		return nil, err
	}
	if len(latencies) == 0 {
		return nil, fmt.Errorf("%d of %d calls failed", calls.failed, calls.decisions)
	}
	slices.Sort(latencies)
	n, d := float64(calls.decisions-calls.failed), after.since(before)
	at := func(q float64) float64 {
		return float64(latencies[int(q*float64(len(latencies)-1))].Nanoseconds()) / 1e3
	}
	return []float64{
		n / took.Seconds(), at(0.5), at(0.99), at(0.999),
		d.cpu * 1e6 / n, float64((clientAfter - clientBefore).Microseconds()) / n,
		d.calls / n, d.reads / n, float64(calls.admitted) / n,
		float64(calls.failed) / float64(calls.decisions),
	}, nil
}

// hammer makes each caller decide for the duration, at least once, and returns the latency of every
// nth call of each caller, except of calls that failed.
func hammer(
	ctx context.Context, d decider, w *workload, callers int, duration time.Duration, every int,
) (sum count, latencies []time.Duration) {
	var over atomic.Bool
	end := func() { over.Store(true) }
	defer time.AfterFunc(duration, end).Stop()
	defer context.AfterFunc(ctx, end)()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for g := range callers {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(ctx) // one for each caller, as requests have
			defer cancel()
			var n count
			own, key, at := make([]time.Duration, 0, 2*loadSamples/callers), w.keys[0],
				g*orderLen/callers
			for next := 1 + g%every; !over.Load() || n.decisions == 0; next-- {
				if w.order != nil {
					key = w.keys[w.order[at%orderLen]]
					at++
				}
				var start time.Time
				if next == 1 {
					start = time.Now()
				}
				ok, err := d.allow(ctx, key)
				n.decisions++
				switch {
				case err != nil:
					n.failed++
				case ok:
					n.admitted++
				}
				if next == 1 {
					next += every
					if err == nil {
						own = append(own, time.Since(start))
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			latencies = append(latencies, own...)
			sum = count{sum.decisions + n.decisions, sum.admitted + n.admitted,
				sum.failed + n.failed}
		})
	}
	wg.Wait()
	return sum, latencies
}

// ownCPU returns the processor time of this process so far.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
