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

// everywhere are those who take part in each load.
func everywhere() []string {
	return slices.Concat([]string{zset, zsetRueidis, zsetValkey}, oursOnServers)
}

// loadEntries are all who take part in a load. Those who are not everywhere are where they tell
// most: a run has to end.
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
	// httprate-redis and go-redisstore do not know windows of less than a second
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

// load measures throughput and latency under simultaneous callers.
func load(s **server, quick bool) subject {
	callers, duration := []int{1, 64, 512}, 300*time.Millisecond
	if quick {
		duration = 200 * time.Millisecond
	}
	sub := subject{
		name: "load", title: "Decisions under load", reference: zset, rounds: 3,
		metrics: []metric{
			{"rate", "decisions/s",
				fmt.Sprintf("c is the number of callers, who share the machine with the server. "+
					"go-redis has %d connections. %q is what the callers themselves can do at "+
					"most: a figure near it would be theirs and not the entry's.",
					connections, atOnce), false},
			{"p50", "µs",
				"The latencies are those of every nth decision, so that measuring them costs " +
					"nothing: some 50,000 a round, or all.", false},
			{"p99", "µs", "", false},
			{"p999", "µs", "", false},
			{"server CPU", "µs a decision", "", false},
			{"client CPU", "µs a decision", "", false},
			{"commands", "a decision",
				"Calls of scripts; throttled and httprate-redis send other commands too. " +
					"Below 1, decisions travelled together.", true},
			{"reads", "of the server a decision",
				"Below 1, what was sent was read together.", true},
			{"admitted", "share of the decisions",
				"The hot key has room for 10,000 a second: whoever decides faster refuses more.",
				true},
			{"errors", "share of the calls", "Calls that failed; they are no decisions.", true},
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
			if len(entries) == len(everywhere()) { // what no other is compared with
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
	loadSamples = 50_000                 // latencies that are enough
)

// load lets the callers decide as fast as they get answers.
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

// hammer lets the callers decide for the duration, at least once, and returns the latency of every
// nth call of each caller, unless it failed.
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
			ctx, cancel := context.WithCancel(ctx) // each of its own, as requests have
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

// ownCPU returns the processor time of this process.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
