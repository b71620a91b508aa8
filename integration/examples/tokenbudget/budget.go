package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend"

	_ "github.com/truewindow/ratelimit/backend/redis"
	_ "github.com/truewindow/ratelimit/backend/rueidis"
	_ "github.com/truewindow/ratelimit/backend/valkey"
)

// budget holds the limits that all calls share.
type budget struct {
	store         *backend.Store
	key           string
	tokens, calls *ratelimit.Limiter
}

func openBudget(ctx context.Context, c config) (*budget, error) {
	store, err := backend.Open(ctx, c.Store)
	if err != nil {
		return nil, err
	}
	tokens, err1 := ratelimit.New(store, algorithm.Budget(algorithm.SlidingLog(
		ratelimit.Limit{Name: "tokens", Max: c.Tokens, Window: c.Window})).WithTimeout(c.Timeout))
	calls, err2 := ratelimit.New(store,
		algorithm.InFlight("calls", int64(2*c.Workers)).WithTimeout(c.Timeout))
	if err := errors.Join(err1, err2); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &budget{store, c.Key, tokens, calls}, nil
}

// claims returns the claims of a call.
func (b *budget) claims(estimate int64) []ratelimit.Claim {
	return []ratelimit.Claim{
		{Limiter: b.tokens, Key: b.key, N: estimate}, {Limiter: b.calls, Key: b.key, N: 1},
	}
}

// state describes what is left of the budget.
func (b *budget) state(ctx context.Context) string {
	results, err := ratelimit.PeekAll(ctx, b.claims(1)...)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%7d tokens are free, %3d calls are in flight",
		results[0].Remaining, results[1].Limit.Max-results[1].Remaining)
}
