package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	rueidisstore "github.com/truewindow/ratelimit/backend/rueidis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	valkeystore "github.com/truewindow/ratelimit/backend/valkey"
)

const (
	allAdmitted   = "10k keys, all admitted, c=64"
	refusedByTwo  = "two limits, refused, c=64"
	cachedCallers = 64
)

// cachedRefusalsOf measures what the cache of refusals costs and saves.
func cachedRefusalsOf(s **server, quick bool) subject {
	duration := 500 * time.Millisecond
	if quick {
		duration = 200 * time.Millisecond
	}
	admitted := workload{quota: quota{1000, time.Second}, keys: keyNames(10_000),
		order: uniform(10_000)}
	refused := workload{quota: quota{10, time.Hour}, keys: keyNames(1)}
	return subject{
		name: "cached", title: "The cache of refusals", reference: zset, rounds: 7,
		metrics: []metric{
			{"rate", "decisions/s", "", false},
			{"time", "µs of scripts per decision", "The server does nothing else.", false},
			{"commands", "per decision", "Calls of scripts.", true},
		},
		cases: []testCase{
			{name: allAdmitted,
				entries: []string{zset, oursRueidis, cachingRueidis, oursValkey, cachingValkey},
				measure: func(ctx context.Context, entry string) ([]float64, error) {
					e, p, err := (*s).open(ctx, entry, admitted.quota)
					if err != nil {
						return nil, err
					}
					defer p.close()
					return (*s).cached(ctx, e, p.decider, &admitted, duration)
				}},
			{name: refusedByTwo, entries: []string{zset, cachingRueidis, cachingValkey},
				measure: func(ctx context.Context, entry string) ([]float64, error) {
					e, p, err := (*s).openRefusedByTwo(ctx, entry, refused.quota)
					if err != nil {
						return nil, err
					}
					defer p.close()
					return (*s).cached(ctx, e, p, &refused, duration)
				}},
		},
	}
}

// cached measures decisions after refusals have been cached.
func (s *server) cached(
	ctx context.Context, e redisEntry, d decider, w *workload, duration time.Duration,
) ([]float64, error) {
	hammer(ctx, d, w, cachedCallers, loadWarm, math.MaxInt32)
	before, err := s.snapshot(ctx, e.calls)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	calls, _ := hammer(ctx, d, w, cachedCallers, duration, math.MaxInt32)
	took := time.Since(start)
	after, err := s.snapshot(ctx, e.calls)
	if err != nil {
		return nil, err
	}
	if calls.failed > 0 {
		return nil, fmt.Errorf("%d of %d calls failed", calls.failed, calls.decisions)
	}
	n, done := float64(calls.decisions), after.since(before)
	return []float64{n / took.Seconds(), done.usec / n, done.calls / n}, nil
}

// openRefusedByTwo opens an entry under two limits, or the sorted set under one.
func (s *server) openRefusedByTwo(
	ctx context.Context, name string, q quota,
) (redisEntry, decider, error) {
	entry, p, err := s.open(ctx, name, q)
	if err != nil {
		return entry, decider{}, err
	}
	if name == zset {
		return entry, p.decider, nil
	}
	p.close()
	opts := &serverstore.OpenOptions{Options: serverstore.Options{Timeout: clientTimeout}}
	var store interface {
		ratelimit.Store
		Close() error
	}
	if name == cachingValkey {
		store, err = valkeystore.Open(valkey.ClientOption{InitAddress: []string{s.addr},
			ForceSingleClient: true, ConnWriteTimeout: clientTimeout}, opts)
	} else {
		store, err = rueidisstore.Open(rueidis.ClientOption{InitAddress: []string{s.addr},
			ForceSingleClient: true, ConnWriteTimeout: clientTimeout}, opts)
	}
	if err != nil {
		return entry, decider{}, err
	}
	daily := q.limit()
	daily.Name = "daily"
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(q.limit()),
		algorithm.SlidingLog(daily))
	if err != nil {
		return entry, decider{}, err
	}
	return entry, decider{
		allow: func(ctx context.Context, key string) (bool, error) {
			res, err := limiter.Allow(ctx, key)
			return res.Allowed, err
		},
		close: func() { store.Close() },
	}, nil
}
