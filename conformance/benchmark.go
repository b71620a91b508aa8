package conformance

import (
	"context"
	crand "crypto/rand"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// Benchmark measures a store on its own clock with the exact sliding-window log. Its sub-benchmarks
// are
//
//   - take/hot: one key, always admitted
//   - refused/hot: one key, always refused
//   - take/10k-keys: 10,000 keys in turn, always admitted
//   - takeall/2: one key under two limits, always admitted; skipped if the store lacks TakeAll
//   - parallel: take/10k-keys from all processors
//   - contended/goroutines=8, =64 and =512: one key from that many goroutines, always admitted
//
// Compare two runs of it with benchstat.
func Benchmark(b *testing.B, newStore NewStore) {
	unlimited := func(name string, window time.Duration) driver.Algorithm {
		limit := driver.Limit{Name: name, Max: driver.MaxUnits, Window: window}
		return algorithm.SlidingLog(limit)
	}
	hot, many := unlimited("hot", time.Millisecond), unlimited("many", 200*time.Millisecond)
	prefix := crand.Text()[:12]
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = prefix + "-" + strconv.Itoa(i)
	}

	b.Run("take/hot", func(b *testing.B) {
		benchmarkTake(b, newStore, take(prefix, hot, 1), true)
	})
	b.Run("refused/hot", func(b *testing.B) {
		d := take(prefix, algorithm.SlidingLog(driver.PerDay("day", 1)), 1)
		benchmarkTake(b, func(t testing.TB, now func() int64) Harness {
			h := newStore(t, now)
			if _, err := h.Store.Take(context.Background(), d); err != nil {
				t.Fatal(err)
			}
			return h
		}, d, false)
	})
	b.Run("take/10k-keys", func(b *testing.B) {
		store, ctx, i := newStore(b, nil).Store, context.Background(), 0
		b.ReportAllocs()
		for b.Loop() {
			if _, err := store.Take(ctx, take(keys[i%len(keys)], many, 1)); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
	b.Run("takeall/2", func(b *testing.B) {
		benchmarkTakeAll(b, newStore, take(prefix, hot, 1), take(prefix, many, 1))
	})
	b.Run("parallel", func(b *testing.B) {
		store, ctx := newStore(b, nil).Store, context.Background()
		var begin atomic.Int64
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			i := begin.Add(7919)
			for pb.Next() {
				key := keys[i%int64(len(keys))]
				if _, err := store.Take(ctx, take(key, many, 1)); err != nil {
					b.Error(err)
					return
				}
				i++
			}
		})
	})
	for _, goroutines := range []int{8, 64, 512} {
		b.Run("contended/goroutines="+strconv.Itoa(goroutines), func(b *testing.B) {
			benchmarkContended(b, newStore, take(prefix, hot, 1), goroutines)
		})
	}
}

// benchmarkTakeAll repeats a TakeAll. It skips stores that cannot decide these demands together.
func benchmarkTakeAll(b *testing.B, newStore NewStore, ds ...driver.Demand) {
	store, ctx := newStore(b, nil).Store, context.Background()
	out := make([]driver.Result, len(ds))
	if err := store.TakeAll(ctx, ds, out); errors.Is(err, errors.ErrUnsupported) {
		b.Skip(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := store.TakeAll(ctx, ds, out); err != nil {
			b.Fatal(err)
		}
	}
}

// benchmarkContended shares b.N takes among goroutines.
func benchmarkContended(b *testing.B, newStore NewStore, d driver.Demand, goroutines int) {
	store, ctx := newStore(b, nil).Store, context.Background()
	var begun atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range goroutines {
		wg.Go(func() {
			for begun.Add(1) <= int64(b.N) {
				if res, err := store.Take(ctx, d); err != nil || !res.Allowed {
					b.Errorf("Take returned %+v, %v", res, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// benchmarkTake repeats d, which is always decided in the same way.
func benchmarkTake(b *testing.B, newStore NewStore, d driver.Demand, want bool) {
	store, ctx := newStore(b, nil).Store, context.Background()
	b.ReportAllocs()
	for b.Loop() {
		res, err := store.Take(ctx, d)
		if err != nil || res.Allowed != want {
			b.Fatalf("Take returned %+v, %v", res, err)
		}
	}
}
