package clients

import (
	"slices"
	"testing"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// InLayers wraps store in the layers that change no decision of an available store, except that
// leases decide hot keys.
func InLayers(t testing.TB, store driver.Store) driver.Store {
	t.Helper()
	prefix, err := layer.NewPrefix(store, "inside:")
	if err != nil {
		t.Fatal(err)
	}
	deadline, err := layer.NewTimeout(prefix, Patient)
	if err != nil {
		t.Fatal(err)
	}
	// the suite abandons many calls; if a peek after them fails, each may count as a failure
	guarded, err := layer.NewBreaker(deadline, &layer.BreakerOptions{Failures: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	leases, err := layer.NewLeased(guarded, &layer.LeasedOptions{Loss: lossOfSuite})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { leases.Close() })
	hashed, err := layer.NewHashedKeys(leases, []byte("a secret that all of the tests have"))
	if err != nil {
		t.Fatal(err)
	}
	return hashed
}

// lossOfSuite gives leases to the limits of the suite, but for those of random runs, which compare
// each result with that of the step.
func lossOfSuite(l driver.Limit) float64 {
	if slices.Contains([]string{"", "burst", "daily", "more", "most", "held"}, l.Name) {
		return 0
	}
	return 0.02
}

// ExceptInLayers are the rules of the suite that a store in layers does not keep.
var ExceptInLayers = map[string]string{
	"op/many-records":        "records are ahead, so fewer fit into a log",
	"concurrency/many-calls": "units in leases are taken",
}
