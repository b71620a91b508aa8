package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/internal/testkit/heap"
)

// BenchmarkMemory measures decisions in process, by one goroutine on each CPU. Nothing leaves its
// window on many keys, so an exact log grows with each decision there, and a counter does not.
func BenchmarkMemory(b *testing.B) {
	hot, many := keyNames(1), keyNames(100_000)
	admitted := workload{"hot/admitted", quota{100_000, time.Millisecond}, hot, nil, 100}
	refused := workload{"hot/refused", quota{10, time.Hour}, hot, nil, 20}
	even := workload{"100k-keys/uniform", quota{10_000_000, time.Hour}, many, uniform(len(many)), 1}
	uneven := workload{"100k-keys/zipf", quota{10_000_000, time.Hour}, many, zipf(len(many)), 1}
	for _, c := range []struct {
		workload
		cpus int
	}{{admitted, 1}, {admitted, 2}, {refused, 1}, {refused, 2}, {even, 2}, {uneven, 2}} {
		w := c.workload
		for _, e := range append(slices.Clone(memoryEntries), budgetEntry) {
			b.Run(fmt.Sprintf("%s/cpus=%d/entry=%s", w.name, c.cpus, e.name), func(b *testing.B) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(c.cpus))
				d, err := e.open(w.quota)
				if err != nil {
					b.Fatal(err)
				}
				defer d.close()
				w.warmUp(b, d)
				b.ReportAllocs()
				b.ResetTimer()
				w.decide(b, d, c.cpus).report(b)
			})
		}
	}
}

// BenchmarkKeys measures the heap that a key takes after some requests, and then a decision on all
// keys equally often.
func BenchmarkKeys(b *testing.B) {
	for _, c := range []struct {
		name           string
		quota          quota
		keys, requests int
	}{
		{"1M-keys/5-requests", quota{100, time.Minute}, 1_000_000, 5},
		{"10k-keys/1000-requests", quota{1000, time.Minute}, 10_000, 1000},
	} {
		keys := keyNames(c.keys)
		for _, e := range memoryEntries {
			b.Run(c.name+"/entry="+e.name, func(b *testing.B) {
				before := heap.Live()
				d, err := e.open(c.quota)
				if err != nil {
					b.Fatal(err)
				}
				defer d.close()
				for range c.requests {
					for i := range keys {
						// each limiter keeps keys of its own, as from requests
						if _, err := d.allow(b.Context(), keyName(i)); err != nil {
							b.Fatal(err)
						}
					}
				}
				used := heap.Live() - before
				order, i := uniform(c.keys), 0
				for b.Loop() {
					if _, err := d.allow(b.Context(), keys[order[i%orderLen]]); err != nil {
						b.Fatal(err)
					}
					i++
				}
				b.ReportMetric(float64(used)/float64(c.keys), "heap-B/key")
				runtime.KeepAlive(d)
			})
		}
	}
}

// A workload is a sequence of decisions.
type workload struct {
	name  string
	quota quota
	keys  []string
	order []uint32 // indices of keys, used cyclically; nil means the first key only
	warm  int      // decisions of every key before the measurement
}

const orderLen = 1 << 20

func uniform(keys int) []uint32 {
	random := rand.New(rand.NewPCG(1, 2))
	order := make([]uint32, orderLen)
	for i := range order {
		order[i] = random.Uint32N(uint32(keys))
	}
	return order
}

// zipf draws key k about as often as 1/k^1.1, like the visitors of a site.
func zipf(keys int) []uint32 {
	z := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, uint64(keys-1))
	order := make([]uint32, orderLen)
	for i := range order {
		order[i] = uint32(z.Uint64())
	}
	return order
}

func keyName(i int) string { return "user:" + strconv.Itoa(1_000_000+i) }

func keyNames(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = keyName(i)
	}
	return keys
}

func (w *workload) warmUp(b *testing.B, d decider) {
	b.Helper()
	for range w.warm {
		for _, key := range w.keys {
			if _, err := d.allow(b.Context(), key); err != nil {
				b.Fatal(err)
			}
		}
	}
	runtime.GC()
}

// decide shares b.N decisions among callers. Each has a context of its own, as requests have, and
// begins at another place of the order.
func (w *workload) decide(b *testing.B, d decider, callers int) count {
	b.Helper()
	var mu sync.Mutex
	var sum count
	begun := 0
	caller := func(next func() bool) {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		mu.Lock()
		begun++
		at := begun * 7919
		mu.Unlock()
		var n count
		key := w.keys[0]
		for next() {
			if w.order != nil {
				key = w.keys[w.order[at%orderLen]]
				at++
			}
			n.add(d.allow(ctx, key))
		}
		mu.Lock()
		defer mu.Unlock()
		sum.plus(n)
	}
	if callers == 1 {
		left := b.N
		caller(func() bool { left--; return left >= 0 })
		return sum
	}
	b.SetParallelism(callers / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) { caller(pb.Next) })
	return sum
}
