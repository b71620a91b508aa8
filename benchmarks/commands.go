package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Steady logs: steadyRecords records in steadyWindow over all keys, which leaves each log just below its limit: every decision is
// admitted, and for each one an older one leaves.
const (
	steadyRecords = 10_000
	steadyWindow  = time.Second
	fillTimeout   = 10 * time.Second
)

// commandTime measures what a decision costs on the server and on the wire.
func commandTime(s **server, quick bool) subject {
	sub := subject{
		name: "commands", title: "Cost of a decision on the server", reference: zset,
		metrics: []metric{
			{"time", "µs of command time a decision", "From commandstats. The case is the limit, with full logs. throttled counts the GET in its script twice.", false},
			{"commands", "a decision", "", true},
			{"round trips", "reads of the server a decision", "", true},
			{"bytes in", "a decision", "", false},
			{"bytes out", "a decision", "", false},
			{"admitted", "share of the decisions", "", true},
			{"fill", "records ÷ limit", "How full the logs were.", true},
		},
	}
	limits := []int{10, 100, 1000, 10_000}
	duration, refusals := 600*time.Millisecond, 3000
	if quick {
		limits = []int{100, 10_000}
		duration, refusals = 400*time.Millisecond, 1500
	}
	for _, limit := range limits {
		admitting, refusing := []string{zset, redisRate, ours}, []string{zset, zsetRetry, redisRate, ours}
		if limit == 100 {
			admitting, refusing = redisNames(zsetRueidis, zsetRetry), redisNames(zsetRueidis)
		} else if quick {
			admitting = []string{zset, ours}
		}
		sub.cases = append(sub.cases,
			testCase{strconv.Itoa(limit) + " admitted", admitting, func(ctx context.Context, entry string) ([]float64, error) {
				return (*s).admissionCost(ctx, entry, int64(limit), duration)
			}})
		if quick && limit > 100 {
			continue
		}
		sub.cases = append(sub.cases,
			testCase{strconv.Itoa(limit) + " refused", refusing, func(ctx context.Context, entry string) ([]float64, error) {
				return (*s).refusalCost(ctx, entry, int64(limit), refusals)
			}})
	}
	return sub
}

// admissionCost measures decisions that are all admitted, on steady logs.
func (s *server) admissionCost(ctx context.Context, name string, limit int64, duration time.Duration) ([]float64, error) {
	entry, p, window, err := s.openSteady(ctx, name, limit)
	if err != nil {
		return nil, err
	}
	defer p.close()
	start := time.Now()
	costs, n, err := s.cost(ctx, entry, func() count { return p.run(ctx, paceWorkers, duration, nil) })
	if err != nil {
		return nil, err
	}
	perWindow := float64(n.admitted) * window.Seconds() / time.Since(start).Seconds()
	return append(costs, perWindow/steadyRecords), nil
}

// refusalCost measures refusals on one key, by one caller.
func (s *server) refusalCost(ctx context.Context, name string, limit int64, refusals int) ([]float64, error) {
	entry, p, err := s.open(ctx, name, quota{limit, time.Hour})
	if err != nil {
		return nil, err
	}
	defer p.close()
	filled := p.run(ctx, 4, fillTimeout, func(admitted bool) bool { return !admitted || name == emptyScript })
	costs, _, err := s.cost(ctx, entry, func() count { return p.run(ctx, 1, time.Minute, stopAfter(refusals)) })
	if err != nil {
		return nil, err
	}
	return append(costs, min(float64(filled.admitted)/float64(limit), 1)), nil
}

// cost returns what each of the decisions cost the server.
func (s *server) cost(ctx context.Context, entry redisEntry, decide func() count) ([]float64, count, error) {
	before, err := s.snapshot(ctx, entry.calls)
	if err != nil {
		return nil, count{}, err
	}
	n := decide()
	after, err := s.snapshot(ctx, entry.calls)
	if err != nil {
		return nil, count{}, err
	}
	if n.failed > n.decisions/10 {
		return nil, count{}, fmt.Errorf("%d of %d calls failed", n.failed, n.decisions)
	}
	d, decisions := after.since(before), float64(n.decisions)
	return []float64{
		d.usec / decisions, round2(d.calls / decisions), round2(d.reads / decisions), d.in / decisions, d.out / decisions,
		float64(n.admitted) / decisions,
	}, n, nil
}

// round2 drops the little that belongs to the measurement.
func round2(v float64) float64 { return float64(int64(v*100+0.5)) / 100 }

// stopAfter stops one worker's run after n answers.
func stopAfter(n int) func(bool) bool {
	return func(bool) bool {
		n--
		return n <= 0
	}
}

// open empties the server and opens an entry on one key.
func (s *server) open(ctx context.Context, name string, q quota) (redisEntry, *pacer, error) {
	entry, err := findRedisEntry(name)
	if err != nil {
		return entry, nil, err
	}
	if err := s.control.FlushAll(ctx).Err(); err != nil {
		return entry, nil, err
	}
	d, err := entry.open(s.addr, q)
	if err != nil {
		return entry, nil, err
	}
	return entry, &pacer{decider: d, keys: keyNames(1)}, nil
}

// openSteady opens an entry and brings the logs of as many keys as the limit allows to their steady size. An entry that cannot keep the
// pace gets another chance with a longer window.
func (s *server) openSteady(ctx context.Context, name string, limit int64) (redisEntry, *pacer, time.Duration, error) {
	for window := steadyWindow; ; window *= 4 {
		entry, p, err := s.open(ctx, name, quota{limit, window})
		if err != nil {
			return entry, nil, 0, err
		}
		p.keys, p.rate = keyNames(int(steadyRecords/limit)), 0.95*steadyRecords/window.Seconds()
		warm := window * 11 / 10
		n := p.run(ctx, paceWorkers, warm, nil)
		if window > steadyWindow || float64(n.decisions) > 0.9*p.rate*warm.Seconds() {
			return entry, p, window, nil
		}
		p.close()
	}
}

// replication measures what a decision sends to a replica.
func replication(s **server, quick bool) subject {
	rounds := 2
	if quick {
		rounds = 1
	}
	measure := func(limit int64) func(context.Context, string) ([]float64, error) {
		return func(ctx context.Context, name string) ([]float64, error) {
			_, p, _, err := (*s).openSteady(ctx, name, limit)
			if err != nil {
				return nil, err
			}
			defer p.close()
			detach, err := (*s).attachReplica(ctx)
			if err != nil {
				return nil, err
			}
			defer detach()
			before, err := (*s).snapshot(ctx, nil)
			if err != nil {
				return nil, err
			}
			n := p.run(ctx, paceWorkers, 300*time.Millisecond, nil)
			after, err := (*s).snapshot(ctx, nil)
			return []float64{after.since(before).offset / float64(n.decisions)}, err
		}
	}
	entries := []string{zset, redisRate, ours}
	return subject{
		name: "replication", title: "Replication", reference: zset, rounds: rounds,
		metrics: []metric{{"bytes", "of replication a decision", "The case is the limit, with full logs.", false}},
		cases:   []testCase{{"100 admitted", entries, measure(100)}, {"10000 admitted", entries, measure(10_000)}},
	}
}
