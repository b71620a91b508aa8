package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// Steady logs have steadyRecords records in steadyWindow over all keys, which keeps each log just
// below its limit: every decision is admitted, and for each one an older one leaves.
const (
	steadyRecords = 10_000
	steadyWindow  = time.Second
	fillTimeout   = 10 * time.Second
)

// Indices of results of cost.
const (
	costTime     = 0
	costCommands = 1
	costBytesIn  = 3
)

// commandTime measures what a decision costs on the server and on the wire.
func commandTime(s **server, quick bool) subject {
	sub := subject{
		name: "commands", title: "Cost of a decision on the server", reference: zset, rounds: 3,
		metrics: []metric{
			{"time", "µs of command time per decision",
				"From INFO commandstats. The case is the limit; all logs are full. 16 callers " +
					"make the admissions, so some are batched, except for the entry \"alone\". " +
					"The GET in throttled's script is counted twice.", false},
			{"commands", "per decision", "", true},
			{"round trips", "reads of the server, per decision", "", true},
			{"bytes in", "per decision", "", false},
			{"bytes out", "per decision", "", false},
			{"admitted", "share of the decisions", "", true},
			{"longest", "µs",
				"The longest call, from SLOWLOG, which records calls of 50 µs or more. It " +
					"includes pauses of the machine: the lowest value of the rounds says most.",
				true},
			{"errors", "share of the calls",
				"Calls that failed. They do not count as decisions.", true},
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
		admitting, refusing := []string{zset, redisRate, oursAlone, ours},
			[]string{zset, zsetRetry, redisRate, ours}
		if limit == 100 {
			admitting = []string{zset, emptyScript, redisRate, ululeName, throttledName,
				rueidisLimiter, goRedisstore, ours}
			refusing = append(slices.Clone(admitting), zsetRetry, httprateRedis)
			admitting = append(admitting, oursAlone)
		}
		if quick {
			left := func(name string) bool {
				return slices.Contains(notQuick, name) || limit > 100 && name == redisRate
			}
			admitting, refusing = slices.DeleteFunc(admitting, left),
				slices.DeleteFunc(refusing, left)
		}
		rounds, refusedRounds := 0, 2
		switch limit {
		case 100:
			refusedRounds = 0
		case 1000:
			rounds = 2
		}
		sub.cases = append(sub.cases, testCase{
			name: strconv.Itoa(limit) + " admitted", entries: admitting, rounds: rounds,
			measure: func(ctx context.Context, entry string) ([]float64, error) {
				return (*s).admissionCost(ctx, entry, int64(limit), duration)
			}})
		if quick && limit > 100 {
			continue
		}
		sub.cases = append(sub.cases, testCase{
			name: strconv.Itoa(limit) + " refused", entries: refusing, rounds: refusedRounds,
			measure: func(ctx context.Context, entry string) ([]float64, error) {
				return (*s).refusalCost(ctx, entry, int64(limit), refusals)
			}})
	}
	if !quick {
		sub.cases = append(sub.cases, testCase{
			name:    strconv.FormatInt(hugeQuota.max, 10) + " admitted",
			entries: []string{zset, ours}, rounds: 1,
			measure: func(ctx context.Context, entry string) ([]float64, error) {
				return (*s).hugeCost(ctx, entry)
			},
		})
	}
	return sub
}

// admissionCost measures admitted decisions on steady logs.
func (s *server) admissionCost(
	ctx context.Context, name string, limit int64, duration time.Duration,
) ([]float64, error) {
	entry, p, window, err := s.openSteady(ctx, name, limit)
	if err != nil {
		return nil, err
	}
	defer p.close()
	start := time.Now()
	costs, n, err := s.cost(ctx, entry, func() count {
		return p.run(ctx, paceWorkers, duration, nil)
	})
	if err != nil {
		return nil, err
	}
	perWindow := float64(n.admitted) * window.Seconds() / time.Since(start).Seconds()
	return append(costs, perWindow/steadyRecords), nil
}

// hugeQuota is a limit whose log takes too long to fill by decisions.
var hugeQuota = quota{100_000, 8 * time.Second}

// hugeCost measures admissions on one log of 100,000 records, for more than half a window, to
// include the occasional dropping of old records.
func (s *server) hugeCost(ctx context.Context, name string) ([]float64, error) {
	entry, p, err := s.open(ctx, name, hugeQuota)
	if err != nil {
		return nil, err
	}
	defer p.close()
	p.rate = 0.95 * float64(hugeQuota.max) / hugeQuota.window.Seconds()
	if err := s.prefill(ctx, p, hugeQuota, int(0.95*float64(hugeQuota.max))); err != nil {
		return nil, err
	}
	// the first decisions drop what left the window while the log was filled
	p.run(ctx, paceWorkers, 300*time.Millisecond, nil)
	duration := hugeQuota.window * 5 / 8
	costs, n, err := s.cost(ctx, entry, func() count {
		return p.run(ctx, paceWorkers, duration, nil)
	})
	if err != nil {
		return nil, err
	}
	windows := duration.Seconds() / hugeQuota.window.Seconds()
	return append(costs, float64(n.admitted)/float64(hugeQuota.max)/windows), nil
}

// prefill gives the first key n records, spread evenly over the window that ends now. It handles
// only the sorted set and this module.
func (s *server) prefill(ctx context.Context, p *pacer, q quota, n int) error {
	if _, err := p.allow(ctx, p.keys[0]); err != nil {
		return err
	}
	key, err := s.control.RandomKey(ctx).Result()
	if err != nil {
		return err
	}
	kind, err := s.control.Type(ctx, key).Result()
	if err != nil {
		return err
	}
	now, err := s.control.Time(ctx).Result()
	if err != nil {
		return err
	}
	stamp := func(i int) int64 {
		return now.Add(-q.window + q.window*time.Duration(i+1)/time.Duration(n)).UnixMicro()
	}
	if kind == "zset" {
		pipe := s.control.Pipeline()
		for i := range n {
			pipe.ZAdd(ctx, key,
				redis.Z{Score: float64(stamp(i)), Member: "filled" + strconv.Itoa(i)})
			if i%1000 == 999 || i == n-1 {
				if _, err := pipe.Exec(ctx); err != nil {
					return err
				}
			}
		}
		return s.control.PExpire(ctx, key, q.window).Err()
	}
	var state []byte
	d := driver.Demand{Key: p.keys[0], Algorithm: algorithm.SlidingLog(q.limit()), N: 1}
	for i := range n {
		next, keep, res := d.Step(state, stamp(i))
		if keep <= 0 || !res.Allowed {
			return fmt.Errorf("prefilling the log: record %d of %d was not admitted", i+1, n)
		}
		state = next
	}
	return s.control.Set(ctx, key, state, 2*q.window).Err()
}

// refusalCost measures refusals on one key, by one caller.
func (s *server) refusalCost(
	ctx context.Context, name string, limit int64, refusals int,
) ([]float64, error) {
	entry, p, err := s.open(ctx, name, quota{limit, time.Hour})
	if err != nil {
		return nil, err
	}
	defer p.close()
	filled := p.run(ctx, 4, fillTimeout, func(admitted bool) bool {
		return !admitted || name == emptyScript
	})
	costs, _, err := s.cost(ctx, entry, func() count {
		return p.run(ctx, 1, time.Minute, stopAfter(refusals))
	})
	if err != nil {
		return nil, err
	}
	return append(costs, min(float64(filled.admitted)/float64(limit), 1)), nil
}

// cost returns what a decision costs the server.
func (s *server) cost(
	ctx context.Context, entry redisEntry, decide func() count,
) ([]float64, count, error) {
	longest, err := s.slowLog(ctx)
	if err != nil {
		return nil, count{}, err
	}
	before, err := s.snapshot(ctx, entry.calls)
	if err != nil {
		return nil, count{}, err
	}
	n := decide()
	after, err := s.snapshot(ctx, entry.calls)
	if err != nil {
		return nil, count{}, err
	}
	most, err := longest(entry.calls)
	if err != nil {
		return nil, count{}, err
	}
	if n.failed > n.decisions/10 {
		return nil, count{}, fmt.Errorf("%d of %d calls failed", n.failed, n.decisions)
	}
	d, decisions := after.since(before), float64(n.decisions-n.failed)
	return []float64{
		d.usec / decisions, round2(d.calls / decisions), round2(d.reads / decisions),
		d.in / decisions, d.out / decisions,
		float64(n.admitted) / decisions, most, float64(n.failed) / float64(n.decisions),
	}, n, nil
}

// slowLog makes the server record calls that take noticeable or more. longest returns the µs of the
// longest since then, of the named commands or, if commands is nil, of scripts.
func (s *server) slowLog(
	ctx context.Context,
) (longest func(commands []string) (float64, error), err error) {
	const size = 10_000
	if err := errors.Join(
		s.configure(ctx, "slowlog-log-slower-than",
			strconv.FormatInt(noticeable.Microseconds(), 10)),
		s.configure(ctx, "slowlog-max-len", strconv.Itoa(size)),
		s.control.Do(ctx, "SLOWLOG", "RESET").Err(),
	); err != nil {
		return nil, err
	}
	return func(commands []string) (float64, error) {
		if commands == nil {
			commands = scriptCommands
		}
		calls, err := s.control.SlowLogGet(ctx, size).Result()
		most := noticeable
		for _, c := range calls {
			if len(c.Args) > 0 && slices.Contains(commands, strings.ToLower(c.Args[0])) {
				most = max(most, c.Duration)
			}
		}
		return float64(most.Microseconds()), err
	}, nil
}

const noticeable = 50 * time.Microsecond

// stopAfter stops a run of one worker after n answers.
func stopAfter(n int) func(bool) bool {
	return func(bool) bool {
		n--
		return n <= 0
	}
}

// open deletes all keys on the server and opens an entry on one key.
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

// openSteady opens an entry and fills the logs of its keys to their steady size. An entry that
// cannot keep the pace is opened again with a longer window.
func (s *server) openSteady(
	ctx context.Context, name string, limit int64,
) (redisEntry, *pacer, time.Duration, error) {
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
			stop, err := (*s).startAppending(ctx)
			if err != nil {
				return nil, err
			}
			defer stop()
			before, err := (*s).snapshot(ctx, nil)
			if err != nil {
				return nil, err
			}
			n := p.run(ctx, paceWorkers, 300*time.Millisecond, nil)
			after, err := (*s).snapshot(ctx, nil)
			d, decisions := after.since(before), float64(n.decisions)
			return []float64{d.offset / decisions, d.appended / decisions}, err
		}
	}
	entries := []string{zset, redisRate, ours}
	sub := subject{
		name: "replication", title: "Replication and persistence", reference: zset, rounds: rounds,
		metrics: []metric{
			{"bytes", "to a replica, per decision", "The case is the limit; all logs are full.",
				false},
			{"appended", "bytes to the append-only file, per decision", "", false},
		},
		cases: []testCase{{name: "10000 admitted", entries: entries, measure: measure(10_000)}},
	}
	if !quick {
		sub.cases = append([]testCase{{name: "100 admitted",
			entries: entries, measure: measure(100)}}, sub.cases...)
	}
	return sub
}
