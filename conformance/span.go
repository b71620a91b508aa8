package conformance

import (
	"cmp"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/storeclock"
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

// storeClock reads the clock of a store, which is that of this process but for some hours.
func (e *env) storeClock(store driver.Store) int64 {
	res, err := store.Take(e.ctx, storeclock.Show(e.key()))
	if err != nil {
		e.fatalf("a take that is always admitted: %w", err)
	}
	return storeclock.Of(res, time.Now().UnixMicro())
}
