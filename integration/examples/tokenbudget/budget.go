package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/driver"

	_ "github.com/truewindow/ratelimit/backend/redis"
	_ "github.com/truewindow/ratelimit/backend/rueidis"
	_ "github.com/truewindow/ratelimit/backend/valkey"
)

// budget holds the limits that all calls share, and the calls in flight of one process.
type budget struct {
	store                *backend.Store
	key, process         string // keys of the budgets and of the calls in flight
	tokens, money, calls *ratelimit.Limiter
}

func openBudget(ctx context.Context, c config) (*budget, error) {
	store, err := backend.Open(ctx, c.Store)
	if err != nil {
		return nil, err
	}
	tokens, err1 := ratelimit.New(store, algorithm.Budget(algorithm.SlidingLog(
		ratelimit.Limit{Name: "tokens", Max: c.Tokens, Window: c.Window})).WithTimeout(c.Timeout))
	money, err2 := ratelimit.New(store, c.moneyOf(c.Cents))
	calls, err3 := ratelimit.New(store,
		algorithm.InFlight("calls", int64(c.Workers)).WithTimeout(c.Timeout))
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &budget{store, c.Key, fmt.Sprint(c.Key, ":", c.Process), tokens, money, calls}, nil
}

func (c config) moneyOf(most int64) ratelimit.Algorithm {
	return algorithm.Budget(algorithm.FixedWindow(ratelimit.PerDay("money", most)).
		WithOffset(c.DayBegins)).WithTimeout(c.Timeout)
}

// claims returns the claims of a call.
func (b *budget) claims(estimate int64) []ratelimit.Claim {
	return []ratelimit.Claim{
		{Limiter: b.tokens, Key: b.key, N: estimate},
		{Limiter: b.money, Key: b.key, N: price(estimate)},
		{Limiter: b.calls, Key: b.process, N: 1},
	}
}

// price returns what tokens cost, in cents.
func price(tokens int64) int64 { return (tokens + 99) / 100 }

// state has what is free of the budgets, and the calls in flight.
type state struct{ tokens, cents, calls int64 }

func (b *budget) state(ctx context.Context) (state, error) {
	results, err := ratelimit.PeekAll(ctx, b.claims(0)...)
	if err != nil {
		return state{}, err
	}
	calls := results[2]
	return state{results[0].Remaining, results[1].Remaining, calls.Limit.Max - calls.Remaining}, nil
}

// spent returns how many cents are recorded or held, even if they exceed the budget.
func (b *budget) spent(ctx context.Context, c config) (int64, error) {
	all, err := ratelimit.New(b.store, c.moneyOf(driver.MaxUnits))
	if err != nil {
		return 0, err
	}
	res, err := all.Peek(ctx, b.key)
	return driver.MaxUnits - res.Remaining, err
}
