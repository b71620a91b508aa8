package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"
)

// load measures throughput and latency under simultaneous callers.
func load(s **server, quick bool) subject {
	callers, duration := []int{1, 64, 512}, 400*time.Millisecond
	if quick {
		callers, duration = []int{64}, 200*time.Millisecond
	}
	sub := subject{
		name: "load", title: "Decisions under load", reference: zset, rounds: 3,
		metrics: []metric{
			{"rate", "decisions/s", fmt.Sprintf("c is the number of callers; go-redis has %d connections.", connections), false},
			{"p50", "µs", "", false},
			{"p99", "µs", "", false},
			{"p999", "µs", "", false},
			{"server CPU", "µs a decision", "", false},
			{"client CPU", "µs a decision", "", false},
			{"errors", "share of the calls", "", true},
		},
	}
	uniformOrder := uniform(10_000)
	for _, c := range callers {
		for _, w := range []workload{
			{name: "10k keys", quota: quota{100, time.Second}, keys: keyNames(10_000), order: uniformOrder},
			{name: "hot key", quota: quota{1000, 100 * time.Millisecond}, keys: keyNames(1)},
			{name: "refused key", quota: quota{10, time.Hour}, keys: keyNames(1)},
		} {
			sub.cases = append(sub.cases, testCase{name: fmt.Sprintf("%s, c=%d", w.name, c), entries: redisNames(zsetRetry),
				measure: func(ctx context.Context, entry string) ([]float64, error) {
					return (*s).load(ctx, entry, &w, c, duration)
				}})
		}
	}
	return sub
}

// load lets the callers decide as fast as they get answers.
func (s *server) load(ctx context.Context, name string, w *workload, callers int, duration time.Duration) ([]float64, error) {
	_, p, err := s.open(ctx, name, w.quota)
	if err != nil {
		return nil, err
	}
	defer p.close()
	hammer(ctx, p.decider, w, callers, 100*time.Millisecond) // connections, scripts, first records
	before, err := s.snapshot(ctx, nil)
	if err != nil {
		return nil, err
	}
	clientBefore := ownCPU()
	start := time.Now()
	latencies, failed := hammer(ctx, p.decider, w, callers, duration)
	took := time.Since(start)
	clientAfter := ownCPU()
	after, err := s.snapshot(ctx, nil)
	if err != nil {
		return nil, err
	}
	if len(latencies) == 0 {
		return nil, fmt.Errorf("all of %d calls failed", failed)
	}
	slices.Sort(latencies)
	n := float64(len(latencies))
	at := func(q float64) float64 { return float64(latencies[int(q*(n-1))].Nanoseconds()) / 1e3 }
	return []float64{
		n / took.Seconds(), at(0.5), at(0.99), at(0.999),
		after.since(before).cpu * 1e6 / n, float64((clientAfter - clientBefore).Microseconds()) / n,
		float64(failed) / (n + float64(failed)),
	}, nil
}

// hammer returns the latencies of the decisions, and how many calls failed.
func hammer(ctx context.Context, d decider, w *workload, callers int, duration time.Duration) (latencies []time.Duration, failed int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	deadline := time.Now().Add(duration)
	for g := range callers {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(ctx) // each of its own, as requests have
			defer cancel()
			own, bad, key, at := []time.Duration(nil), 0, w.keys[0], g*orderLen/callers
			for start := time.Now(); start.Before(deadline) && ctx.Err() == nil; {
				if w.order != nil {
					key = w.keys[w.order[at%orderLen]]
					at++
				}
				_, err := d.allow(ctx, key)
				end := time.Now()
				if err != nil {
					bad++
				} else {
					own = append(own, end.Sub(start))
				}
				start = end
			}
			mu.Lock()
			defer mu.Unlock()
			latencies = append(latencies, own...)
			failed += bad
		})
	}
	wg.Wait()
	return latencies, failed
}

// ownCPU returns the processor time of this process.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
