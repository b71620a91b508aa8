package budgetmodel

import (
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// Limits are the limits of a Client made by [NewClient].
type Limits struct{ Requests, Tokens, AllTokens, Calls driver.Limit }

// NewClient returns a client of three budgets on store: one with a limit, one with two limits, and
// calls in flight.
func NewClient(t testing.TB, store driver.Store, limits Limits) Client {
	t.Helper()
	requests, err := ratelimit.New(store, algorithm.SlidingLog(limits.Requests))
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := ratelimit.New(store,
		algorithm.SlidingLog(limits.Tokens), algorithm.SlidingLog(limits.AllTokens))
	if err != nil {
		t.Fatal(err)
	}
	calls, err := ratelimit.NewInFlight(store, algorithm.SlidingLog(limits.Calls))
	if err != nil {
		t.Fatal(err)
	}
	return Client{requests, tokens, calls}
}
