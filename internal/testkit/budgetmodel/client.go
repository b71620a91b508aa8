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

	limits Limits
	line   *line
}

// NewClient returns a client of a store.
func NewClient(t testing.TB, store driver.Store, l Limits) Client {
	t.Helper()
	way := &line{store: store}
	budget := func(a driver.Algorithm) driver.Algorithm {
		return algorithm.Budget(a).WithTimeout(l.Timeout)
	}
	limiter := func(algorithms ...driver.Algorithm) *ratelimit.Limiter {
		l, err := ratelimit.New(way, algorithms...)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	return Client{
		Requests: limiter(algorithm.SlidingLog(l.Requests)),
		Tokens: limiter(budget(algorithm.SlidingLog(l.Tokens)),
			budget(algorithm.FixedWindow(l.Hourly))),
		Money:  limiter(budget(algorithm.FixedWindow(l.Money))),
		Calls:  limiter(algorithm.InFlight("calls", l.Calls).WithTimeout(l.Timeout)),
		limits: l, line: way,
	}
}

// The limiters of a client, as indexes of [Client.all].
const (
	requests = iota
	tokens
	money
	calls
)

func (c Client) all() []*ratelimit.Limiter {
	return []*ratelimit.Limiter{c.Requests, c.Tokens, c.Money, c.Calls}
}

// accounts returns empty accounts of the limits, by limiter.
func (l Limits) accounts() [][]*account {
	plain := func(limit driver.Limit, r rule) *account {
		return &account{limit: limit, rule: r, timeout: l.Timeout, holds: map[uint64]*hold{}}
	}
	budget := func(limit driver.Limit, r rule) *account {
		a := plain(limit, r)
		a.budget = true
		return a
	}
	inFlight := driver.Limit{Name: "calls", Max: l.Calls, Window: l.Timeout}
	return [][]*account{
		{plain(l.Requests, log)}, {budget(l.Tokens, log), budget(l.Hourly, window)},
		{budget(l.Money, window)}, {plain(inFlight, flight)},
	}
}

// WithPolicy returns c with a policy.
func (c Client) WithPolicy(p ratelimit.Policy) Client {
	c.Requests, c.Tokens = c.Requests.WithPolicy(p), c.Tokens.WithPolicy(p)
	c.Money, c.Calls = c.Money.WithPolicy(p), c.Calls.WithPolicy(p)
	return c
}
