package conformance

import (
	"testing"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/layer"
)

// inLayers wraps store in the layers that change no decision of an available store.
func inLayers(t testing.TB, store driver.Store) driver.Store {
	t.Helper()
	prefix, err := layer.NewPrefix(store, "inside:")
	if err != nil {
		t.Fatal(err)
	}
	deadline, err := layer.NewTimeout(prefix, clients.Patient)
	if err != nil {
		t.Fatal(err)
	}
	// the suite abandons many calls; if a peek after them fails, each may count as a failure
	guarded, err := layer.NewBreaker(deadline, &layer.BreakerOptions{Failures: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	return guarded
}
