package budgetmodel

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// Limits are the limits of a [Client].
type Limits struct {
	Requests driver.Limit // charged at once
	Tokens   driver.Limit // the budget of a log
	Hourly   driver.Limit // the budget of a fixed window, together with Tokens
	Money    driver.Limit // the budget of a fixed window
	Calls    int64        // most calls in flight
	Timeout  time.Duration
}

// A Client is one user of a store. All clients of a store have the same limits.
type Client struct {
	Requests, Tokens, Money, Calls *ratelimit.Limiter
}

// NewClient returns a client of a store.
func NewClient(t testing.TB, store driver.Store, l Limits) Client {
	t.Helper()
	budget := func(a driver.Algorithm) driver.Algorithm {
		return algorithm.Budget(a).WithTimeout(l.Timeout)
	}
	limiter := func(algorithms ...driver.Algorithm) *ratelimit.Limiter {
		l, err := ratelimit.New(store, algorithms...)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	return Client{
		Requests: limiter(algorithm.SlidingLog(l.Requests)),
		Tokens: limiter(budget(algorithm.SlidingLog(l.Tokens)),
			budget(algorithm.FixedWindow(l.Hourly))),
		Money: limiter(budget(algorithm.FixedWindow(l.Money))),
		Calls: limiter(algorithm.InFlight("calls", l.Calls).WithTimeout(l.Timeout)),
	}
}

// All returns the limiters.
func (c Client) All() []*ratelimit.Limiter {
	return []*ratelimit.Limiter{c.Requests, c.Tokens, c.Money, c.Calls}
}
