package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
)

// BenchmarkLinger measures decisions of several processes on one key, with requests that wait for
// more calls and with requests that do not. The calls of all processes together arrive at a rate,
// at random times. A process is a store with its own connections; all are in this one. About a
// quarter of the calls are admitted: exactly the limit, or the benchmark fails.
func BenchmarkLinger(b *testing.B) {
	const length = 500 * time.Millisecond
	for _, processes := range []int{1, 8, 100} {
		for _, rate := range []float64{1000, 5000, 20_000} {
			q := quota{int64(rate * length.Seconds() / 4), time.Hour}
			for _, linger := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond} {
				name := fmt.Sprintf("processes=%d/rate=%v/entry=%v", processes, rate, linger)
				b.Run(name, func(b *testing.B) {
					s, entry := onServer(b), redisEntry{open: openLingering(linger)}
					fleet := make([]decider, processes)
					for i := range fleet {
						fleet[i] = s.open(b, entry, q)
						if _, err := fleet[i].allow(b.Context(), "first"); err != nil {
							b.Fatal(err)
						}
					}
					before := s.snapshot(b, nil)
					var n count
					var took []time.Duration
					for b.Loop() {
						more, times := arrivals(b.Context(), fleet, rate, length)
						n.plus(more)
						took = append(took, times...)
					}
					s.report(b, nil, before, n.report(b))
					if want := min(q.max, n.decisions); n.admitted != want || n.failed > 0 {
						b.Errorf("%+v, want %d admitted and none failed", n, want)
					}
					slices.Sort(took)
					for _, percent := range []int{50, 99} {
						at := took[len(took)*percent/100]
						b.ReportMetric(float64(at.Microseconds()), fmt.Sprintf("p%d-µs", percent))
					}
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}

func openLingering(linger time.Duration) func(string, quota) (decider, error) {
	return func(addr string, q quota) (decider, error) {
		client := newGoRedis(addr)
		store, err := redisstore.New(client,
			&serverstore.Options{Timeout: clientTimeout, Linger: linger})
		if err != nil {
			client.Close()
			return decider{}, err
		}
		return limiting(store, func() { client.Close() }, algorithm.SlidingLog(q.limit()))
	}
}

// arrivals makes calls of all processes on one key, rate of them a second at random times, whether
// those before have returned or not. It returns how long each took.
func arrivals(
	ctx context.Context, fleet []decider, rate float64, length time.Duration,
) (sum count, took []time.Duration) {
	var mu sync.Mutex
	var processes sync.WaitGroup
	for _, d := range fleet {
		processes.Go(func() {
			var calls sync.WaitGroup
			start := time.Now()
			for due := 0.0; ; {
				due += rand.ExpFloat64() * float64(len(fleet)) / rate
				if due > length.Seconds() {
					break
				}
				time.Sleep(time.Duration(due*1e9) - time.Since(start))
				calls.Go(func() {
					began := time.Now()
					admitted, err := d.allow(ctx, "hot")
					t := time.Since(began)
					mu.Lock()
					defer mu.Unlock()
					sum.add(admitted, err)
					took = append(took, t)
				})
			}
			calls.Wait()
		})
	}
	processes.Wait()
	return sum, took
}
