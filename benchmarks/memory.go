package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// serverMemory measures the memory of a saturated key on the server, over several windows.
func serverMemory(s **server, quick bool) subject {
	rounds := 2
	if quick {
		rounds = 1
	}
	sub := subject{
		name: "memory", title: "Memory on the server", reference: zset, rounds: rounds,
		metrics: []metric{
			{"worst", "bytes per key",
				"The largest MEMORY USAGE of a key whose limit is always used up. The case is " +
					"the limit.", false},
			{"least", "bytes per key", "The smallest MEMORY USAGE of that key.", false},
		},
	}
	for _, c := range []struct {
		quota
		entries []string
	}{
		{quota{5, 50 * time.Millisecond},
			[]string{zset, redisRate, ululeName, throttledName, rueidisLimiter, ours}},
		{quota{100, 50 * time.Millisecond},
			[]string{zset, redisRate, ululeName, throttledName, rueidisLimiter, ours}},
		{quota{1000, 200 * time.Millisecond}, []string{zset, redisRate, ours}},
		{quota{10_000, 1200 * time.Millisecond}, []string{zset, ours}},
	} {
		if quick {
			if c.max == 1000 {
				continue
			}
			c.entries = slices.DeleteFunc(c.entries, func(name string) bool {
				return slices.Contains(notQuick, name)
			})
		}
		sub.cases = append(sub.cases,
			testCase{name: strconv.FormatInt(c.max, 10), entries: c.entries,
				measure: func(ctx context.Context, entry string) ([]float64, error) {
					return (*s).keyBytes(ctx, entry, c.quota)
				}})
	}
	return sub
}

// keyBytes samples the size of a key under 1.1 times as much demand as its limit.
func (s *server) keyBytes(ctx context.Context, name string, q quota) ([]float64, error) {
	_, p, err := s.open(ctx, name, q)
	if err != nil {
		return nil, err
	}
	defer p.close()
	p.rate = 1.1 * float64(q.max) / q.window.Seconds()
	p.run(ctx, 4, q.window*12/10, nil)

	duration := max(q.window*3/2, 300*time.Millisecond)
	measured := make(chan count, 1)
	go func() { measured <- p.run(ctx, 4, duration, nil) }()
	var least, most int64
	for {
		bytes, err := s.allBytes(ctx)
		if err != nil {
			return nil, err
		}
		if bytes > 0 && (least == 0 || bytes < least) {
			least = bytes
		}
		most = max(most, bytes)
		select {
		case n := <-measured:
			if n.failed > n.decisions/10 {
				return nil, fmt.Errorf("%d of %d calls failed", n.failed, n.decisions)
			}
			windows := duration.Seconds() / q.window.Seconds()
			if fill := float64(n.admitted) / float64(q.max) / windows; fill < 0.9 {
				return nil, fmt.Errorf("the key is not saturated: %.2f of its limit admitted", fill)
			}
			return []float64{float64(most), float64(least)}, nil
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// allBytes returns the total size of all keys.
func (s *server) allBytes(ctx context.Context) (int64, error) {
	keys, err := s.control.Keys(ctx, "*").Result()
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, key := range keys {
		n, err := s.control.MemoryUsage(ctx, key).Result()
		if err != nil && !errors.Is(err, redis.Nil) { // redis.Nil: the key has expired
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
