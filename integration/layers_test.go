package integration

import (
	"context"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/layer"
	"github.com/truewindow/ratelimit/layer/breaker"
)

// inLayers puts those layers around store that change no decision of one that is there.
func inLayers(t testing.TB, store ratelimit.Store) ratelimit.Store {
	t.Helper()
	prefix, err := layer.NewPrefix(store, "inside:")
	if err != nil {
		t.Fatal(err)
	}
	deadline, err := layer.NewDeadline(prefix, patient)
	if err != nil {
		t.Fatal(err)
	}
	guarded, err := breaker.New(deadline, &breaker.Options{Failures: 1_000_000}) // the suite leaves many calls before they are answered
	if err != nil {
		t.Fatal(err)
	}
	observed, err := layer.NewObserved(guarded, func(context.Context, layer.Observation) {})
	if err != nil {
		t.Fatal(err)
	}
	return observed
}
