package main

import (
	"context"
	"fmt"
	"time"
)

// weightQuota admits any rate of demands of many units, and its window is short enough to move
// during a measurement. Nothing leaves the window of weightHeld.
var (
	weightQuota = quota{100_000_000, 100 * time.Millisecond}
	weightHeld  = quota{100_000_000, time.Hour}
)

// weights compares demands of many units with demands of one.
func weights(s **server, quick bool) subject {
	rounds := 2
	if quick {
		rounds = 1
	}
	sub := subject{
		name: "weights", title: "Demands of many units", reference: zset, rounds: rounds,
		metrics: []metric{
			{"time", "µs of command time per decision",
				"The case is the number of units of each demand.", false},
			{"bytes in", "per decision", "", false},
			{"bytes", "of memory, per decision",
				fmt.Sprintf("MEMORY USAGE of a key after %[1]d decisions within the window, "+
					"divided by %[1]d.", heldDecisions), false},
		},
	}
	for _, units := range []int64{1, 10_000} {
		sub.cases = append(sub.cases, testCase{
			name:    fmt.Sprintf("%d", units),
			entries: []string{zset, redisRate, ululeName, throttledName, rueidisLimiter, ours},
			measure: func(ctx context.Context, entry string) ([]float64, error) {
				return (*s).weightCost(ctx, entry, units)
			},
		})
	}
	return sub
}

const heldDecisions = 20

func (s *server) weightCost(ctx context.Context, name string, units int64) ([]float64, error) {
	open := func(q quota) (redisEntry, *pacer, error) {
		entry, p, err := s.open(ctx, name, q)
		if err == nil {
			p.allow = func(ctx context.Context, key string) (bool, error) {
				return p.allowN(ctx, key, units)
			}
		}
		return entry, p, err
	}
	entry, p, err := open(weightQuota)
	if err != nil {
		return nil, err
	}
	defer p.close()
	p.run(ctx, 1, weightQuota.window*3/2, nil)
	costs, n, err := s.cost(ctx, entry, func() count {
		return p.run(ctx, 1, 2*weightQuota.window, nil)
	})
	if err != nil {
		return nil, err
	}
	if n.admitted < n.decisions {
		return nil, fmt.Errorf("only %d of %d demands were admitted", n.admitted, n.decisions)
	}
	_, held, err := open(weightHeld)
	if err != nil {
		return nil, err
	}
	defer held.close()
	for range heldDecisions {
		if ok, err := held.allow(ctx, held.keys[0]); err != nil || !ok {
			return nil, fmt.Errorf("a demand was not admitted: %w", err)
		}
	}
	bytes, err := s.allBytes(ctx)
	return []float64{costs[costTime], costs[costBytesIn], float64(bytes) / heldDecisions}, err
}
