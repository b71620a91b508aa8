package main

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

// BenchmarkBudget measures how much of a budget is used by callers that always want more. Each call
// takes 20 seconds of synthetic time, and uses what it has reserved.
func BenchmarkBudget(b *testing.B) { b.Run("entry="+ours, useBudget) }

func useBudget(b *testing.B) {
	const (
		callers = 100
		calls   = 20 * time.Second
		again   = time.Second // after a refusal
	)
	limit := ratelimit.PerMinute("tokens", 100*usedTokens)
	begin := time.Now()
	now := begin
	clock := func() int64 { return now.UnixMicro() }
	store, err := memorystore.New(&memorystore.Options{Now: clock})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.Budget(algorithm.SlidingLog(limit)))
	if err != nil {
		b.Fatal(err)
	}
	type caller struct {
		next    time.Time
		running *ratelimit.Reservation
	}
	all := make([]caller, callers)
	for i := range all {
		all[i].next = now.Add(calls * time.Duration(i) / callers)
	}
	used := 0
	for b.Loop() {
		c := &all[0]
		for i := range all {
			if all[i].next.Before(c.next) {
				c = &all[i]
			}
		}
		now = c.next
		if c.running != nil {
			if err := c.running.Commit(b.Context(), usedTokens); err != nil {
				b.Fatal(err)
			}
			used, c.running = used+usedTokens, nil
		}
		r, err := limiter.Reserve(b.Context(), "user", usedTokens)
		if err != nil {
			b.Fatal(err)
		}
		c.next = now.Add(again)
		if r.Allowed() {
			c.next, c.running = now.Add(calls), r
		}
	}
	b.ReportMetric(0, "ns/op") // is that of the simulation
	windows := now.Sub(begin).Seconds() / limit.Window.Seconds()
	b.ReportMetric(float64(used)/float64(limit.Max)/windows, "used÷limit")
}
