// Package limittest makes clocks, stores and limiters for the tests of other packages.
package limittest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

// Clock is a clock that only a test advances, in microseconds since the Unix epoch.
type Clock struct{ now atomic.Int64 }

// NewClock returns a clock set to the year 2027.
func NewClock() *Clock {
	c := new(Clock)
	c.now.Store(1_800_000_000_000_000)
	return c
}

// Advance moves the clock forward.
func (c *Clock) Advance(d time.Duration) { c.now.Add(d.Microseconds()) }

// NewStore returns a memory store on c, or on the store's own clock if c is nil. It is closed at
// the end of the test.
func NewStore(tb testing.TB, c *Clock) driver.Store {
	tb.Helper()
	opts := new(memorystore.Options)
	if c != nil {
		opts.Now = c.now.Load
	}
	store, err := memorystore.New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = store.Close() })
	return store
}

// NewLimiter returns a limiter of exact logs.
func NewLimiter(
	tb testing.TB, store driver.Store, limits ...driver.Limit,
) *ratelimit.Limiter {
	tb.Helper()
	var algorithms []driver.Algorithm
	for _, l := range limits {
		algorithms = append(algorithms, algorithm.SlidingLog(l))
	}
	return newLimiter(tb, store, algorithms...)
}

// NewBudget returns a limiter of Budgets on exact logs.
func NewBudget(tb testing.TB, store driver.Store, limits ...driver.Limit) *ratelimit.Limiter {
	tb.Helper()
	var algorithms []driver.Algorithm
	for _, l := range limits {
		algorithms = append(algorithms, algorithm.Budget(algorithm.SlidingLog(l)))
	}
	return newLimiter(tb, store, algorithms...)
}

// NewInFlight returns a limiter of most calls in flight, with the name "calls".
func NewInFlight(tb testing.TB, store driver.Store, most int64) *ratelimit.Limiter {
	tb.Helper()
	return newLimiter(tb, store, algorithm.InFlight("calls", most))
}

func newLimiter(
	tb testing.TB, store driver.Store, algorithms ...driver.Algorithm,
) *ratelimit.Limiter {
	tb.Helper()
	limiter, err := ratelimit.New(store, algorithms...)
	if err != nil {
		tb.Fatal(err)
	}
	return limiter
}
