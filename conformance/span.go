package conformance

import (
	"cmp"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// span is when a call was made and when it had returned, by the clock of this process.
type span struct{ called, returned time.Duration }

// clockError is how much longer or shorter a time may be by the store's clock, which is that of
// another machine, and whole microseconds.
func clockError(d time.Duration) time.Duration { return d/1000 + time.Microsecond }

// closest returns the shortest time in which n of the calls were certainly made and returned, or a
// long time if there are fewer.
func closest(calls []span, n int) time.Duration {
	shortest := time.Duration(1<<63 - 1)
	calls = slices.SortedFunc(slices.Values(calls),
		func(a, b span) int { return cmp.Compare(a.called, b.called) })
	for i := range calls {
		if i+n > len(calls) {
			break
		}
		later := slices.SortedFunc(slices.Values(calls[i:]),
			func(a, b span) int { return cmp.Compare(a.returned, b.returned) })
		shortest = min(shortest, later[n-1].returned-calls[i].called)
	}
	return shortest
}

// showClock returns a demand whose result shows the store's clock: units of a fixed window that
// ends centuries apart from no other.
func showClock(key string) driver.Demand {
	return force(key, algorithm.FixedWindow(driver.Limit{Name: "clock", Max: driver.MaxUnits,
		Window: driver.MaxWindow}), 1)
}

// shownClock returns the store's clock when it decided a demand of showClock, to which it is nearer
// than half a year.
func shownClock(res driver.Result, near int64) int64 {
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

// storeClock reads the clock of a store, which is that of this process but for some hours.
func (e *env) storeClock(store driver.Store) int64 {
	res, err := store.Take(e.ctx, showClock(e.key()))
	if err != nil {
		e.fatalf("a take that is always admitted: %w", err)
	}
	return shownClock(res, time.Now().UnixMicro())
}
