package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
)

// The cases of budgets.
const (
	oneTake     = "one take"
	settledLess = "reserve, commit less"
	settledMore = "reserve, commit more"
	threeClaims = "three claims"
)

// A decision reserves budgetReserved tokens of a key and uses budgetTokens. Each of budgetKeys keys
// has room for budgetRecords such decisions.
const (
	budgetTokens   = 100
	budgetReserved = 150
	budgetRecords  = 100
	budgetKeys     = 25
)

// budgets compares a reservation with its settlement, and several claims in one call, with one take
// of the same tokens.
func budgets(s **server, quick bool) subject {
	rounds, duration := 3, 600*time.Millisecond
	if quick {
		rounds, duration = 1, 400*time.Millisecond
	}
	sub := subject{
		name: "budgets", title: "Reservations and claims on the server", rounds: rounds,
		metrics: []metric{
			{"time", "µs of command time per decision",
				fmt.Sprintf("A decision is everything that the case names. Logs hold about "+
					"%d records. Decisions are not batched.",
					budgetRecords), true},
			{"commands", "per decision", "", true},
			{"bytes in", "per decision", "", true},
		},
	}
	for _, name := range []string{oneTake, settledLess, settledMore, threeClaims} {
		sub.cases = append(sub.cases, testCase{name: name, entries: []string{ours},
			measure: func(ctx context.Context, _ string) ([]float64, error) {
				return (*s).budgetCost(ctx, name, duration)
			}})
	}
	return sub
}

// budgetCost measures decisions that are all admitted, on steady logs.
func (s *server) budgetCost(
	ctx context.Context, name string, duration time.Duration,
) ([]float64, error) {
	if err := s.control.FlushAll(ctx).Err(); err != nil {
		return nil, err
	}
	d, err := openBudget(s.addr, name)
	if err != nil {
		return nil, err
	}
	p := &pacer{decider: d, keys: keyNames(budgetKeys),
		rate: 0.95 * budgetKeys * budgetRecords / steadyWindow.Seconds()}
	defer p.close()
	p.run(ctx, paceWorkers, steadyWindow*11/10, nil)
	costs, n, err := s.cost(ctx, redisEntry{}, func() count {
		return p.run(ctx, paceWorkers, duration, nil)
	})
	if err != nil {
		return nil, err
	}
	if n.admitted < n.decisions {
		return nil, fmt.Errorf("only %d of %d decisions were admitted", n.admitted, n.decisions)
	}
	return []float64{costs[costTime], costs[costCommands], costs[costBytesIn]}, nil
}

// openBudget opens this module on the server. Its limits have room for unsettled reservations
// besides budgetRecords decisions of each key.
func openBudget(addr, name string) (decider, error) {
	client := newGoRedis(addr)
	store, err := redisstore.New(client,
		&serverstore.Options{Timeout: clientTimeout, NoBatching: true})
	if err != nil {
		client.Close()
		return decider{}, err
	}
	limit := func(name string, units int64) ratelimit.Algorithm {
		return algorithm.SlidingLog(ratelimit.Limit{
			Name: name, Max: 2 * budgetRecords * units, Window: steadyWindow})
	}
	requests, err1 := ratelimit.New(store, limit("requests", 1))
	tokens, err2 := ratelimit.New(store, limit("tokens", budgetTokens))
	calls, err3 := ratelimit.NewInFlight(store, limit("calls", 1))
	if err := errors.Join(err1, err2, err3); err != nil {
		client.Close()
		return decider{}, err
	}
	settled := func(actual int64) func(context.Context, string) (bool, error) {
		return func(ctx context.Context, key string) (bool, error) {
			r, err := tokens.Reserve(ctx, key, budgetReserved)
			if err != nil || !r.Allowed() {
				return false, err
			}
			return true, r.Commit(ctx, actual)
		}
	}
	d := decider{close: func() { client.Close() }}
	switch name {
	case oneTake:
		d.allow = func(ctx context.Context, key string) (bool, error) {
			res, err := tokens.AllowN(ctx, key, budgetTokens)
			return res.Allowed, err
		}
	case settledLess:
		d.allow = settled(budgetTokens)
	case settledMore:
		d.allow = settled(budgetReserved + 1)
	case threeClaims:
		d.allow = func(ctx context.Context, key string) (bool, error) {
			results, err := ratelimit.AllowAll(ctx,
				ratelimit.Claim{Limiter: requests, Key: key, N: 1},
				ratelimit.Claim{Limiter: tokens, Key: key, N: budgetTokens},
				ratelimit.Claim{Limiter: calls, Key: key, N: 1})
			return err == nil && results[ratelimit.Binding(results)].Allowed, err
		}
	}
	return d, nil
}

// budgetTargets bound the cost of a decision of several calls or claims relative to one take.
func budgetTargets() (ts []target) {
	for _, b := range []struct {
		column   string
		time     float64
		commands float64
	}{{settledLess, 2.4, 2}, {settledMore, 2.4, 2}, {threeClaims, 2.6, 1}} {
		ts = append(ts,
			target{
				what:  fmt.Sprintf("command time, %s ÷ %s", b.column, oneTake),
				value: cell{"budgets", "time", b.column, ours},
				over:  &cell{"budgets", "time", oneTake, ours}, atMost: b.time,
			},
			absolute(fmt.Sprintf("commands, %s", b.column), "budgets", "commands", b.column,
				b.commands))
	}
	return ts
}
