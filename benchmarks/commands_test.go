package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
)

// fullness is how full a steady log is: all decisions are admitted, and for each one an older one
// leaves its window.
const fullness = 0.95

// steady fills logs of the limit on the keys, and then measures decisions that keep them full.
func (s *server) steady(b *testing.B, e redisEntry, d decider, q quota, keys int) {
	b.Helper()
	rate := fullness * float64(q.max) * float64(keys) / q.window.Seconds()
	names := keyNames(keys)
	pace(b.Context(), d, names, rate, during(q.window*11/10))
	before := s.snapshot(b, e.calls)
	n := pace(b.Context(), d, names, rate, b.Loop)
	s.report(b, e.calls, before, n.report(b))
	b.ReportMetric(0, "ns/op") // is that of the pace
}

// BenchmarkCommand measures what a decision costs the server, by 16 callers on full logs of 10,000
// records in all, and by one caller that is refused.
func BenchmarkCommand(b *testing.B) {
	for _, c := range []struct {
		limit   int64
		entries []redisEntry
	}{
		{100, redisEntriesExcept(zsetRueidis, oursRueidis, oursValkey, cachingRueidis,
			cachingValkey, valkeyLimiter, httprateRedis)},
		{10_000, redisEntriesOf(zset, ours, oursAlone)},
	} {
		for _, e := range c.entries {
			b.Run(fmt.Sprintf("admitted/limit=%d/entry=%s", c.limit, e.name), func(b *testing.B) {
				s, q := onServer(b), quota{c.limit, time.Second}
				s.steady(b, e, s.open(b, e, q), q, int(10_000/c.limit))
			})
		}
	}
	for _, e := range redisEntriesExcept(zsetRueidis, emptyScript, oursAlone, oursRueidis,
		oursValkey, cachingRueidis, cachingValkey, valkeyLimiter) {
		b.Run("refused/limit=100/entry="+e.name, func(b *testing.B) {
			s := onServer(b)
			d, key := s.open(b, e, quota{100, time.Hour}), keyName(0)
			for admitted := true; admitted; {
				var err error
				if admitted, err = d.allow(b.Context(), key); err != nil {
					b.Fatal(err)
				}
			}
			before := s.snapshot(b, e.calls)
			var n count
			for b.Loop() {
				n.add(d.allow(b.Context(), key))
			}
			s.report(b, e.calls, before, n.report(b))
		})
	}
}

// A reservation has an estimate of reservedTokens and uses usedTokens.
const (
	reservedTokens = 150
	usedTokens     = 100
)

// reservations are the entries of BenchmarkReservation.
var reservations = []string{"take", "reserve-commit-less", "reserve-commit-more", "in-flight",
	"three-claims", "four-claims-reserve-commit"}

// BenchmarkReservation compares decisions of several calls or claims with one take of the same
// tokens, on logs of about 100 records: on a server, where decisions are not batched, and on
// memory.
func BenchmarkReservation(b *testing.B) {
	const records, keys = 100, 25
	q := quota{records, 2 * time.Second}
	for _, name := range reservations {
		b.Run("server/entry="+name, func(b *testing.B) {
			s := onServer(b)
			d := s.open(b, redisEntry{open: func(addr string, q quota) (decider, error) {
				client := newGoRedis(addr)
				store, err := redisstore.New(client,
					&serverstore.Options{Timeout: clientTimeout, NoBatching: true})
				if err != nil {
					client.Close()
					return decider{}, err
				}
				decide, err := newReservations(store, q, name)
				return decider{
					allow: func(_ context.Context, key string) (bool, error) { return decide(key) },
					close: func() { client.Close() },
				}, err
			}}, q)
			s.steady(b, redisEntry{}, d, q, keys)
		})
		b.Run("memory/entry="+name, func(b *testing.B) {
			now := time.Now()
			clock := func() int64 { return now.UnixMicro() }
			store, err := memorystore.New(&memorystore.Options{Now: clock})
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			decide, err := newReservations(store, q, name)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(q.window / records)
				if ok, err := decide("user"); err != nil || !ok {
					b.Fatal(ok, err)
				}
			}
		})
	}
}

// newReservations returns one of the decisions of BenchmarkReservation. Its limits have room for
// unsettled reservations besides the decisions of the quota.
func newReservations(
	store ratelimit.Store, q quota, name string,
) (decide func(key string) (bool, error), err error) {
	var errs []error
	limiter := func(a ratelimit.Algorithm) *ratelimit.Limiter {
		l, err := ratelimit.New(store, a)
		errs = append(errs, err)
		return l
	}
	log := func(name string, units int64) ratelimit.Algorithm {
		return algorithm.SlidingLog(ratelimit.Limit{
			Name: name, Max: 2 * q.max * units, Window: q.window})
	}
	requests, plain := limiter(log("requests", 1)), limiter(log("tokens", reservedTokens))
	tokens := limiter(algorithm.Budget(log("tokens", reservedTokens)))
	daily := limiter(algorithm.Budget(log("daily", reservedTokens)))
	calls := limiter(algorithm.InFlight("calls", 2*q.max))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	ctx := context.Background()
	settled := func(used []ratelimit.Claim, claims ...ratelimit.Claim) func(string) (bool, error) {
		return func(key string) (bool, error) {
			own := slices.Clone(claims)
			for i := range own {
				own[i].Key = key
			}
			r, err := ratelimit.ReserveAll(ctx, own...)
			if err != nil || !r.Allowed() {
				return false, err
			}
			return true, r.CommitAll(ctx, used...)
		}
	}
	used := ratelimit.Claim{Limiter: tokens, N: usedTokens}
	reserve := ratelimit.Claim{Limiter: tokens, N: reservedTokens}
	one := ratelimit.Claim{Limiter: calls, N: 1}
	return map[string]func(key string) (bool, error){
		"take": func(key string) (bool, error) {
			res, err := plain.AllowN(ctx, key, usedTokens)
			return res.Allowed, err
		},
		"reserve-commit-less": settled([]ratelimit.Claim{used}, reserve),
		"reserve-commit-more": settled(
			[]ratelimit.Claim{{Limiter: tokens, N: reservedTokens + 1}}, reserve),
		"in-flight": settled(nil, one),
		"three-claims": func(key string) (bool, error) {
			results, err := ratelimit.AllowAll(ctx,
				ratelimit.Claim{Limiter: requests, Key: key, N: 1},
				ratelimit.Claim{Limiter: plain, Key: key, N: usedTokens},
				ratelimit.Claim{Limiter: tokens, Key: key, N: usedTokens})
			return err == nil && results[ratelimit.Binding(results)].Allowed, err
		},
		"four-claims-reserve-commit": settled(
			[]ratelimit.Claim{used, {Limiter: daily, N: usedTokens}},
			ratelimit.Claim{Limiter: requests, N: 1}, reserve,
			ratelimit.Claim{Limiter: daily, N: reservedTokens}, one),
	}[name], nil
}

// BenchmarkBytes measures the largest size of a key whose limit is always used up. Each call of
// this module runs a script by itself, since calls that are decided together share a record.
func BenchmarkBytes(b *testing.B) {
	logs := append(redisEntriesOf(zset), redisEntry{ours, openOurs(true), nil})
	all := slices.Concat(logs, redisEntriesOf(redisRate, ululeName, throttledName, rueidisLimiter))
	for _, c := range []struct {
		quota
		entries []redisEntry
	}{
		{quota{5, 50 * time.Millisecond}, all},
		{quota{100, 50 * time.Millisecond}, all},
		{quota{1000, 200 * time.Millisecond}, logs},
		{quota{10_000, 1200 * time.Millisecond}, logs},
	} {
		for _, e := range c.entries {
			b.Run(fmt.Sprintf("limit=%d/entry=%s", c.max, e.name), func(b *testing.B) {
				s, q := onServer(b), c.quota
				var most int64
				for b.Loop() {
					bytes, n := s.bytesAtLimit(b, e, &q)
					n.report(b)
					most = max(most, bytes)
				}
				b.ReportMetric(float64(most), "B/key")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// bytesAtLimit returns the largest size of a key, and the calls meanwhile. It doubles the window
// until at least one call of a hundred is refused: a busy machine does not use up the limit of a
// short window, whose key is smaller.
func (s *server) bytesAtLimit(b *testing.B, e redisEntry, q *quota) (int64, count) {
	b.Helper()
	for ; q.window < time.Minute; q.window *= 2 {
		d, rate := s.open(b, e, *q), 1.5*float64(q.max)/q.window.Seconds()
		pace(b.Context(), d, keyNames(1), rate, during(q.window*12/10))
		done := make(chan count)
		go func() {
			done <- pace(b.Context(), d, keyNames(1), rate,
				during(max(q.window*3/2, 300*time.Millisecond)))
		}()
		bytes, n := s.largest(b, done)
		if n.admitted*100 <= n.decisions*99 {
			return bytes, n
		}
	}
	b.Fatalf("%s never used up the limit", e.name)
	return 0, count{}
}

// largest returns the largest size of all keys until done, and what it sends.
func (s *server) largest(b *testing.B, done <-chan count) (most int64, n count) {
	b.Helper()
	for {
		keys, err := s.control.Keys(b.Context(), "*").Result()
		if err != nil {
			b.Fatal(err)
		}
		var sum int64
		for _, key := range keys {
			bytes, err := s.control.MemoryUsage(b.Context(), key).Result()
			if err != nil && !errors.Is(err, redis.Nil) { // redis.Nil: the key has expired
				b.Fatal(err)
			}
			sum += bytes
		}
		most = max(most, sum)
		select {
		case n := <-done:
			return most, n
		case <-time.After(2 * time.Millisecond):
		}
	}
}
