package algorithm

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/holdmodel"
)

// kinds are the limits with holds.
var kinds = map[string]holdmodel.Kind{
	"fixed": kindOf(func(l driver.Limit) driver.Algorithm {
		return FixedWindow(l).WithOffset(l.Window / 3)
	}),
	"bucket":    kindOf(func(l driver.Limit) driver.Algorithm { return TokenBucket(l) }),
	"counter":   kindOf(func(l driver.Limit) driver.Algorithm { return SlidingWindowCounter(l) }),
	"in flight": inFlightKind,
}

func kindOf(newAlgorithm func(driver.Limit) driver.Algorithm) holdmodel.Kind {
	return func(l driver.Limit, timeout time.Duration) (driver.Holder, holdmodel.Limit) {
		a := newAlgorithm(l)
		return Budget(a).WithTimeout(timeout),
			holdmodel.Limit{Inside: a, Limit: l, Timeout: timeout}
	}
}

func inFlightKind(l driver.Limit, timeout time.Duration) (driver.Holder, holdmodel.Limit) {
	a := InFlight(l.Name, l.Max).WithTimeout(timeout)
	return a, holdmodel.Limit{Limit: a.Limit(), Timeout: timeout}
}

// TestHeldIsModel compares random histories with the model.
func TestHeldIsModel(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			histories := 600
			if testing.Short() {
				histories = 60
			}
			for seed := range uint64(histories) {
				p := holdmodel.NewPlayer(rand.New(rand.NewPCG(seed, 1)), kind,
					1_800_000_000_123_457)
				var state []byte
				for i := range 100 {
					d, now, want := p.Next()
					given := bytes.Clone(state)
					next, keep, got := d.Step(given, now)
					if keep < 0 || !holdmodel.Same(got, want) {
						t.Fatalf("history %d, demand %d: got keep %v, %+v; the model says\n%s",
							seed, i, keep, got, strings.Join(p.Trace(), "\n"))
					}
					if keep == 0 && !bytes.Equal(given, state) {
						t.Fatalf("history %d, demand %d changed a state without writing", seed, i)
					}
					if keep > 0 {
						state = next
					}
				}
			}
		})
	}
}
