package migrating

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

func redisRateBefore(client *redis.Client) allowFunc {
	limiter := redis_rate.NewLimiter(client)
	return func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.Allow(ctx, key, redis_rate.PerMinute(60))
		if err != nil {
			return false, err
		}
		return res.Allowed > 0, nil
	}
}

func redisRateStore(client *redis.Client) (*redisstore.Store, error) {
	return redisstore.New(client, nil)
}

func redisRateAfter(store ratelimit.Store) (allowFunc, error) {
	limiter, err := ratelimit.New(store, algorithm.GCRA(ratelimit.PerMinute("api", 60)))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.Allow(ctx, key)
		return res.Allowed, err
	}, nil
}

// TestRedisRateAfter tests, in memory, the rule that redis_rate has on a server.
func TestRedisRateAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after, err := redisRateAfter(newStore(t, nil))
		if err != nil {
			t.Fatal(err)
		}
		check(t, []burst{
			{0, 70, 60},
			{2500 * time.Millisecond, 10, 2},
			{30 * time.Second, 70, 30},
			{time.Minute, 70, 60},
		}, after)
	})
}

// TestRedisRateUnavailable tests calls for a server that does not listen.
func TestRedisRateUnavailable(t *testing.T) {
	client := unreachable(t)
	if ok, err := redisRateBefore(client)(t.Context(), "key"); ok ||
		!errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("before: %v, %v; want ECONNREFUSED", ok, err)
	}
	store, err := redisRateStore(client)
	if err != nil {
		t.Fatal(err)
	}
	after, err := redisRateAfter(store)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := after(t.Context(), "key"); ok || !errors.Is(err, ratelimit.ErrUnavailable) {
		t.Errorf("after: %v, %v; want ErrUnavailable", ok, err)
	}
}
