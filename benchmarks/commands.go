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
	steadyRate    = 0.95 * steadyRecords
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
		},
	}
	limits := []int{10, 100, 1000, 10_000}
	duration, refusals := 800*time.Millisecond, 3000
	if quick {
		limits = []int{100, 10_000}
		duration, refusals = 400*time.Millisecond, 1500
	}
	for _, limit := range limits {
		entries := []string{zset, zsetRetry, redisRate, ours}
		if limit == 100 {
			entries = redisNames(zsetRueidis)
		}
		admitting := entries
		if limit != 100 {
			admitting = []string{zset, redisRate, ours}
		}
		sub.cases = append(sub.cases,
			testCase{strconv.Itoa(limit) + " admitted", admitting, func(ctx context.Context, entry string) ([]float64, error) {
				return (*s).decisionCost(ctx, entry, quota{int64(limit), steadyWindow}, duration, 0)
			}},
			testCase{strconv.Itoa(limit) + " refused", entries, func(ctx context.Context, entry string) ([]float64, error) {
				return (*s).decisionCost(ctx, entry, quota{int64(limit), time.Hour}, 0, refusals)
			}})
	}
	return sub
}

// decisionCost measures admissions at the steady rate for the duration, or the number of refusals on one key.
func (s *server) decisionCost(ctx context.Context, name string, q quota, duration time.Duration, refusals int) ([]float64, error) {
	entry, p, err := s.open(ctx, name, q)
	if err != nil {
		return nil, err
	}
	defer p.close()
	var n count
	if refusals > 0 {
		p.fill(ctx)
	} else {
		p.steady(ctx, q)
	}
	before, err := s.snapshot(ctx, entry.calls)
	if err != nil {
		return nil, err
	}
	if refusals > 0 {
		for range refusals / 100 {
			one := p.run(ctx, 1, time.Minute, stopAfter(100))
			n = count{n.decisions + one.decisions, n.admitted + one.admitted, n.failed + one.failed}
		}
	} else {
		n = p.run(ctx, paceWorkers, duration, nil)
	}
	after, err := s.snapshot(ctx, entry.calls)
	if err != nil {
		return nil, err
	}
	d, decisions := after.since(before), float64(n.decisions)
	if n.failed > n.decisions/10 {
		return nil, fmt.Errorf("%d of %d calls failed", n.failed, n.decisions)
	}
	return []float64{
		d.usec / decisions, round2(d.calls / decisions), round2(d.reads / decisions), d.in / decisions, d.out / decisions,
		float64(n.admitted) / decisions,
	}, nil
}

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

// fill decides until it is refused.
func (p *pacer) fill(ctx context.Context) {
	p.run(ctx, 4, 5*time.Second, func(admitted bool) bool { return !admitted })
}

// steady brings the logs of as many keys as the limit allows to their steady size.
func (p *pacer) steady(ctx context.Context, q quota) {
	p.keys, p.rate = keyNames(int(steadyRecords/q.max)), steadyRate
	p.run(ctx, paceWorkers, steadyWindow*11/10, nil)
}

// replication measures what a decision sends to a replica.
func replication(s **server) subject {
	measure := func(limit int64) func(context.Context, string) ([]float64, error) {
		return func(ctx context.Context, name string) ([]float64, error) {
			q := quota{limit, steadyWindow}
			_, p, err := (*s).open(ctx, name, q)
			if err != nil {
				return nil, err
			}
			defer p.close()
			detach, err := (*s).attachReplica(ctx)
			if err != nil {
				return nil, err
			}
			defer detach()
			p.steady(ctx, q)
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
		name: "replication", title: "Replication", reference: zset, rounds: 2,
		metrics: []metric{{"bytes", "of replication a decision", "The case is the limit, with full logs.", false}},
		cases:   []testCase{{"100 admitted", entries, measure(100)}, {"10000 admitted", entries, measure(10_000)}},
	}
}
