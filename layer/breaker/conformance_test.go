package breaker_test

import (
	"io"
	"slices"
	"testing"
	"time"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
	"github.com/truewindow/ratelimit/layer/breaker"
)

// a wrap puts a layer around a store.
type wrap func(inner driver.Store) (driver.Store, error)

var (
	guarded wrap = func(inner driver.Store) (driver.Store, error) {
		return breaker.New(inner, nil)
	}
	timeout wrap = func(inner driver.Store) (driver.Store, error) {
		return layer.NewTimeout(inner, time.Minute)
	}
	prefix wrap = func(inner driver.Store) (driver.Store, error) {
		return layer.NewPrefix(inner, "api:")
	}
	degraded wrap = func(inner driver.Store) (driver.Store, error) {
		return layer.NewDegraded(inner, &layer.DegradedOptions{Instances: 3})
	}
)

// TestConformance: a breaker, alone and among other layers, keeps the rules that the store inside
// keeps.
func TestConformance(t *testing.T) {
	for name, around := range map[string][]wrap{ // the first is outside
		"breaker":                         {guarded},
		"breaker,prefix,timeout":          {guarded, prefix, timeout},
		"degraded,breaker,timeout,prefix": {degraded, guarded, timeout, prefix},
	} {
		except := map[string]string{}
		if len(around) < 4 {
			for _, name := range []string{"identity/many-keys", "identity/hashed-keys",
				"op/many-records", "concurrency/many-calls"} {
				except[name] = "tried with more layers"
			}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel() // some cases wait
			conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
				return newHarness(t, now, around)
			}, &conformance.Options{Except: except})
		})
	}
}

func newHarness(t testing.TB, now func() int64, around []wrap) conformance.Harness {
	memory, err := memorystore.New(&memorystore.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { memory.Close() })
	store := driver.Store(memory)
	for _, w := range slices.Backward(around) {
		if store, err = w(store); err != nil {
			t.Fatal(err)
		}
		if c, ok := store.(io.Closer); ok {
			t.Cleanup(func() { c.Close() })
		}
	}
	return conformance.Harness{Store: store, Close: memory.Close}
}
