package breaker_test

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/layer"
	"github.com/truewindow/ratelimit/layer/breaker"
)

// a wrap puts a layer around a store.
type wrap func(inner ratelimit.Store) (ratelimit.Store, error)

var (
	guarded  wrap = func(inner ratelimit.Store) (ratelimit.Store, error) { return breaker.New(inner, nil) }
	deadline wrap = func(inner ratelimit.Store) (ratelimit.Store, error) { return layer.NewDeadline(inner, time.Minute) }
	prefix   wrap = func(inner ratelimit.Store) (ratelimit.Store, error) { return layer.NewPrefix(inner, "api:") }
	observed wrap = func(inner ratelimit.Store) (ratelimit.Store, error) {
		return layer.NewObserved(inner, func(context.Context, layer.Observation) {})
	}
	degraded wrap = func(inner ratelimit.Store) (ratelimit.Store, error) {
		return layer.NewDegraded(inner, &layer.DegradedOptions{Instances: 3})
	}
)

// TestConformance: a breaker alone, and with other layers in several orders, keeps what the store inside keeps.
func TestConformance(t *testing.T) {
	for name, around := range map[string][]wrap{ // the first is outside
		"breaker":                                   {guarded},
		"prefix,deadline,breaker":                   {prefix, deadline, guarded},
		"breaker,prefix,observed,deadline":          {guarded, prefix, observed, deadline},
		"observed,degraded,breaker,deadline,prefix": {observed, degraded, guarded, deadline, prefix},
	} {
		t.Run(name, func(t *testing.T) {
			conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness { return newHarness(t, now, around) }, nil)
		})
	}
}

func newHarness(t testing.TB, now func() int64, around []wrap) conformance.Harness {
	memory, err := memorystore.New(&memorystore.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { memory.Close() })
	store := ratelimit.Store(memory)
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
