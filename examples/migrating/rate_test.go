package migrating

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"golang.org/x/time/rate"
)

func rateBefore() allowFunc {
	var mu sync.Mutex
	limiters := make(map[string]*rate.Limiter) // one for each key, never deleted
	return func(_ context.Context, key string) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		if limiters[key] == nil {
			limiters[key] = rate.NewLimiter(10, 20) // 10 a second, 20 at once
		}
		return limiters[key].Allow(), nil
	}
}

func rateAfter(store ratelimit.Store) (allowFunc, error) {
	limiter, err := ratelimit.New(store, algorithm.TokenBucket(
		ratelimit.Limit{Name: "api", Max: 20, Window: 2 * time.Second})) // 20 at once, 10 a second
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.Allow(ctx, key)
		return res.Allowed, err
	}, nil
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after, err := rateAfter(newStore(t, nil))
		if err != nil {
			t.Fatal(err)
		}
		check(t, []burst{
			{0, 25, 20},
			{450 * time.Millisecond, 10, 4},
			{time.Second, 20, 10},
			{time.Minute, 25, 20},
		}, rateBefore(), after)
	})
}

// TestRateTooMany tests calls for more units than the limit.
func TestRateTooMany(t *testing.T) {
	before := rate.NewLimiter(10, 20)
	if before.AllowN(time.Now(), 21) || before.WaitN(t.Context(), 21) == nil {
		t.Error("x/time/rate admits more than the burst")
	}
	after, err := ratelimit.New(newStore(t, nil), algorithm.TokenBucket(
		ratelimit.Limit{Name: "api", Max: 20, Window: 2 * time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := after.AllowN(t.Context(), "key", 21); !errors.Is(err, ratelimit.ErrExceedsLimit) {
		t.Errorf("AllowN: %v, want ErrExceedsLimit", err)
	}
}

// TestRateDeadline tests waits that cannot end before the deadline.
func TestRateDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := rate.NewLimiter(10, 20)
		after, err := ratelimit.New(newStore(t, nil), algorithm.TokenBucket(
			ratelimit.Limit{Name: "api", Max: 20, Window: 2 * time.Second}))
		if err != nil {
			t.Fatal(err)
		}
		before.AllowN(time.Now(), 20)
		if _, err := after.AllowN(t.Context(), "key", 20); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := before.Wait(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("x/time/rate: %v, want an error of its own", err)
		}
		res, err := after.Wait(ctx, "key")
		if !errors.Is(err, context.DeadlineExceeded) || res.RetryAfter != 100*time.Millisecond {
			t.Errorf("Wait: %+v, %v; want DeadlineExceeded, and 100ms to wait", res, err)
		}
		if time.Since(start) != 0 {
			t.Errorf("waited for %v", time.Since(start))
		}
	})
}
