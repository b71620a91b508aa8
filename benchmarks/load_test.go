package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestHammerCounts: the callers' counts equal the limiter's, and every nth call of each caller is
// timed unless it failed.
func TestHammerCounts(t *testing.T) {
	const callers, every = 6, 7
	for _, tt := range []struct {
		name  string
		order []uint32
	}{{"one key", nil}, {"several keys", uniform(3)}} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var calls, admitted, failed atomic.Int64
			var mu sync.Mutex
			seen := make(map[string]bool)
			d := decider{allow: func(_ context.Context, key string) (bool, error) {
				mu.Lock()
				seen[key] = true
				mu.Unlock()
				n := calls.Add(1)
				if n >= 5000 {
					cancel()
					time.Sleep(time.Millisecond)
				}
				switch {
				case n%5 == 0:
					failed.Add(1)
					return false, errors.New("failed")
				case n%3 == 0:
					admitted.Add(1)
					return true, nil
				}
				return false, nil
			}}
			w := workload{keys: keyNames(3), order: tt.order}
			sum, latencies := hammer(ctx, d, &w, callers, 10*time.Second, every)
			if want := (count{calls.Load(), admitted.Load(), failed.Load()}); sum != want {
				t.Errorf("counted %+v, want %+v", sum, want)
			}
			most := int(sum.decisions)/every + callers
			if len(latencies) > most || len(latencies) < int(sum.decisions-sum.failed)/every/2 {
				t.Errorf("got %d latencies of %d calls, want every %dth unless it failed",
					len(latencies), sum.decisions, every)
			}
			if want := min(len(tt.order), 2) + 1; len(seen) != want {
				t.Errorf("decided on %d keys, want %d", len(seen), want)
			}
		})
	}
}

// TestHammerTimesCalls: latencies are those of single calls, without failed ones.
func TestHammerTimesCalls(t *testing.T) {
	const held = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	d := decider{allow: func(context.Context, string) (bool, error) {
		switch calls++; calls {
		case 1, 2:
			return true, nil
		case 3:
			return false, errors.New("failed")
		}
		cancel()
		time.Sleep(held)
		return true, nil
	}}
	_, latencies := hammer(ctx, d, &workload{keys: keyNames(1)}, 1, 10*time.Second, 1)
	if len(latencies) != 3 || latencies[2] < held {
		t.Errorf("got %v, want three latencies, the last at least %v", latencies, held)
	}
}

func TestHammerEndsInTime(t *testing.T) {
	d := decider{allow: func(context.Context, string) (bool, error) { return true, nil }}
	start := time.Now()
	sum, _ := hammer(t.Context(), d, &workload{keys: keyNames(1)}, 100, 20*time.Millisecond, 1000)
	if took := time.Since(start); took < 20*time.Millisecond || took > 10*time.Second ||
		sum.decisions < 100 {
		t.Errorf("got %d decisions in %v, want 100 or more in 20ms to 10s", sum.decisions, took)
	}
}

// TestLoadEntries: no entry takes part in a load twice, and the sorted set and this module take
// part in every load.
func TestLoadEntries(t *testing.T) {
	var srv *server
	for _, c := range load(&srv, false).cases {
		for i, name := range c.entries {
			if _, err := findRedisEntry(name); err != nil || slices.Contains(c.entries[:i], name) {
				t.Errorf("%s: %s takes part twice, or is unknown: %v", c.name, name, err)
			}
		}
		for _, name := range append([]string{zset, zsetRueidis, zsetValkey}, oursOnServers...) {
			if !slices.Contains(c.entries, name) {
				t.Errorf("%s: %s does not take part, want it in every load", c.name, name)
			}
		}
	}
}
