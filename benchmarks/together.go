package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"golang.org/x/time/rate"
)

// togetherKeys is the number of keys in the case with many keys.
const togetherKeys = manyKeys

// together measures decisions under two limits on one key: one call of this module, which records
// under both or neither, and two limiters of x/time/rate, where the first keeps its record if the
// second refuses.
func together(quick bool) subject {
	duration := 250 * time.Millisecond
	if quick {
		duration = 60 * time.Millisecond
	}
	sub := subject{
		name: "together", title: "Two limits in process", reference: xTime,
		metrics: []metric{
			{"time", "ns per decision", "Wall time ÷ decisions of all goroutines, one per " +
				"CPU. x/time/rate: two limiters for each key in one sync.Map; if the first " +
				"refuses, the second is not called.", false},
			{"allocations", "per decision",
				"With 100k keys this includes growing histories.", true},
			{"admitted", "share of the decisions", "", true},
		},
	}
	keys := make([]string, togetherKeys)
	for i := range keys {
		keys[i] = keyName(i)
	}
	for _, c := range []struct {
		workload
		second quota
		cpus   int
	}{
		{workload{name: "hot admitted", quota: quota{100_000, time.Millisecond},
			keys: keys[:1], warm: 100},
			quota{1_000_000, 10 * time.Millisecond}, 1},
		{workload{name: "hot refused", quota: quota{10, time.Hour}, keys: keys[:1], warm: 20},
			quota{100, 24 * time.Hour}, 1},
		{workload{name: "100k uniform", quota: quota{100, 10 * time.Second}, keys: keys,
			order: uniform(togetherKeys), warm: 5},
			quota{10_000, time.Hour}, 2},
	} {
		if c.cpus > runtime.NumCPU() {
			continue
		}
		plural := ""
		if c.cpus > 1 {
			plural = "s"
		}
		sub.cases = append(sub.cases, testCase{
			name:    fmt.Sprintf("%s, %d CPU%s", c.name, c.cpus, plural),
			entries: []string{xTime, ours},
			measure: func(ctx context.Context, entry string) ([]float64, error) {
				d, err := openTwo(entry, c.quota, c.second)
				if err != nil {
					return nil, err
				}
				defer d.close()
				r, err := c.measure(ctx, d, c.cpus, duration)
				return []float64{r.nanoseconds(), r.mallocs, r.admittedShare()}, err
			},
		})
	}
	return sub
}

// openTwo opens an entry with two limits on each key.
func openTwo(entry string, first, second quota) (decider, error) {
	switch entry {
	case ours:
		return openTwoLogs(first, second)
	case xTime:
		return openTwoXTime(first, second), nil
	}
	return decider{}, fmt.Errorf("entry %q cannot be opened with two limits", entry)
}

func openTwoLogs(first, second quota) (decider, error) {
	store, err := memorystore.New(&memorystore.Options{MaxKeys: maxKeys})
	if err != nil {
		return decider{}, err
	}
	a, b := first.limit(), second.limit()
	b.Name = "second"
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(a), algorithm.SlidingLog(b))
	if err != nil {
		return decider{}, errors.Join(err, store.Close())
	}
	return decider{
		allow: func(ctx context.Context, key string) (bool, error) {
			res, err := limiter.Allow(ctx, key)
			return res.Allowed, err
		},
		close: func() { store.Close() },
	}, nil
}

func openTwoXTime(first, second quota) decider {
	create := func(q quota) *rate.Limiter {
		return rate.NewLimiter(rate.Limit(float64(q.max)/q.window.Seconds()), int(q.max))
	}
	type pair struct{ first, second *rate.Limiter }
	var limiters sync.Map
	return decider{
		allow: func(_ context.Context, key string) (bool, error) {
			l, ok := limiters.Load(key)
			if !ok {
				l, _ = limiters.LoadOrStore(key, pair{create(first), create(second)})
			}
			p := l.(pair)
			return p.first.Allow() && p.second.Allow(), nil
		},
		close: func() {},
	}
}
