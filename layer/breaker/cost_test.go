package breaker_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer/breaker"
)

// opened returns a store that is open and stays so.
func opened(t testing.TB) *breaker.Store {
	t.Helper()
	s, err := breaker.New(&inside{err: driver.ErrUnavailable},
		&breaker.Options{Failures: 1, Pause: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take(t.Context(), demand(driver.OpTake)); err == nil ||
		s.State() != breaker.Open {
		t.Fatalf("%v, and the breaker is %v", err, s.State())
	}
	return s
}

// TestAllocations: a breaker allocates nothing, open or closed, also after a failure.
func TestAllocations(t *testing.T) {
	after := newBench(t)
	after.fails(t, 2, driver.ErrUnavailable)
	after.answers(t, 1)
	for s, want := range map[*breaker.Store]error{newBench(t).Store: nil, after.Store: nil,
		opened(t): breaker.ErrOpen} {
		d := demand(driver.OpTake)
		ds, out := []driver.Demand{d}, make([]driver.Result, 1)
		got := testing.AllocsPerRun(1000, func() {
			if _, err := s.Take(t.Context(), d); !errors.Is(err, want) {
				t.Fatal(err)
			}
			if err := s.TakeAll(t.Context(), ds, out); !errors.Is(err, want) {
				t.Fatal(err)
			}
		})
		if got != 0 {
			t.Errorf("%v: %v allocations", s.State(), got)
		}
	}
}

// BenchmarkTake measures what a breaker adds to the memory store, and what it costs while open.
func BenchmarkTake(b *testing.B) {
	memory, err := memorystore.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer memory.Close()
	closed, err := breaker.New(memory, nil)
	if err != nil {
		b.Fatal(err)
	}
	d := demand(driver.OpPeek)
	for _, bb := range []struct {
		name  string
		store driver.Store
	}{{"bare", memory}, {"closed", closed}, {"open", opened(b)}} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = bb.store.Take(b.Context(), d)
			}
		})
		b.Run(fmt.Sprint(bb.name, "/parallel"), func(b *testing.B) {
			ctx := b.Context()
			b.SetParallelism(64)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_, _ = bb.store.Take(ctx, d)
				}
			})
		})
	}
}
