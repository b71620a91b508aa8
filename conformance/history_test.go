package conformance_test

import (
	"errors"
	"testing"

	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/conformance/linear"
)

func TestHistories(t *testing.T) {
	opts := &conformance.Options{CheckHistory: linear.Check}
	for _, name := range []string{"concurrency/history", "concurrency/history-two-clients"} {
		if err := conformance.Try(t, conformance.NewReference, opts, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := conformance.Try(t, conformance.NewLostUpdate, opts, name); !errors.Is(err, linear.ErrNotLinearizable) {
			t.Errorf("%s of a store that loses updates: %v, want %v", name, err, linear.ErrNotLinearizable)
		}
	}
}
