package memorystore_test

import (
	"testing"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
)

func newHarness(t testing.TB, now func() int64) conformance.Harness {
	store, err := memorystore.New(&memorystore.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return conformance.Harness{
		Store:  store,
		Second: func(testing.TB) driver.Store { return store },
		Close:  store.Close,
		Sweep:  func() error { store.Sweep(); return nil },
	}
}

func TestConformance(t *testing.T) {
	conformance.Run(t, newHarness, nil) // package linear runs its cases of histories
}

func BenchmarkStore(b *testing.B) {
	conformance.Benchmark(b, newHarness)
}
