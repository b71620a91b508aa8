package conformance

import (
	"time"

	"github.com/truewindow/ratelimit/driver"
)

var skewRules = []rule{
	{name: "clock/skewed", says: saysClock, needs: ownClock | skewClock, check: checkSkewed},
	{name: "expiry/skewed",
		says: saysExpiry, needs: ownClock | skewClock, check: checkExpirySkewed},
}

// skews are how far the server's clock is set ahead of the right time.
var skews = []time.Duration{-3 * time.Hour, 2 * time.Hour}

// skewed sets the server's clock, and returns a function that sets it right.
func (e *env) skewed(ahead time.Duration) (right func()) {
	set := func(ahead time.Duration) {
		if err := e.harness.SkewClock(ahead); err != nil {
			e.fatalf("SkewClock(%v): %w", ahead, err)
		}
	}
	set(ahead)
	return func() { set(0) }
}

// checkSkewed sets the server's clock and reads the store's.
func checkSkewed(e *env) {
	const slack = time.Minute
	want := func(ahead time.Duration) {
		at := time.UnixMicro(e.storeClock(e.store))
		if off := time.Until(at) - ahead; off < -slack || off > slack {
			e.fatalf("the server's clock is %v ahead, and the store's is %v ahead",
				ahead, ahead+off)
		}
	}
	want(0)
	for _, ahead := range skews {
		func() {
			defer e.skewed(ahead)()
			want(ahead)
		}()
	}
	want(0)
}

// checkExpirySkewed checks that the store forgets states by the clock by which it decides.
func checkExpirySkewed(e *env) {
	a := e.algorithms[0](driver.Limit{Max: 2, Window: time.Minute})
	for _, ahead := range skews {
		func() {
			defer e.skewed(ahead)()
			key := e.key()
			for range 2 {
				e.admit(take(key, a, 1))
				e.sweepIfCan()
			}
			for range 3 {
				e.refuse(take(key, a, 1))
				e.sweepIfCan()
			}
		}()
	}
}
