// Package storeclock reads the clock of a store, exactly.
package storeclock

import (
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// Show returns a demand that is always admitted, and whose result shows the store's clock: how much
// is left of a fixed window of a year. In a TakeAll it shows when the other demands were decided,
// if it is not the first such demand of the key or if all are admitted.
func Show(key string) driver.Demand {
	return driver.Demand{Key: key, Op: driver.OpForce, N: 1, Algorithm: algorithm.FixedWindow(
		driver.Limit{Name: "clock", Max: driver.MaxUnits, Window: driver.MaxWindow})}
}

// Of returns the clock that the result of a Show shows, in µs. near is less than half a year away.
func Of(res driver.Result, near int64) int64 {
	w := driver.MaxWindow.Microseconds()
	now := near/w*w + w - res.ResetAfter.Microseconds()
	for now < near-w/2 {
		now += w
	}
	for now > near+w/2 {
		now -= w
	}
	return now
}
