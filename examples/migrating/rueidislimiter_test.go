package migrating

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislimiter"
	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	rueidisstore "github.com/truewindow/ratelimit/backend/rueidis"
)

func rueidisBefore(option rueidis.ClientOption) (allowFunc, error) {
	limiter, err := rueidislimiter.NewRateLimiter(rueidislimiter.RateLimiterOption{
		ClientOption: option, Limit: 60, Window: time.Minute,
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.Allow(ctx, key)
		return res.Allowed, err
	}, nil
}

func rueidisStore(option rueidis.ClientOption) (*rueidisstore.Store, error) {
	return rueidisstore.Open(option, nil)
}

func rueidisAfter(store ratelimit.Store) (allowFunc, error) {
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("api", 60)))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.Allow(ctx, key)
		return res.Allowed, err
	}, nil
}

// TestRueidisAfter tests, in memory, that two bursts a window apart are admitted as by
// rueidislimiter.
func TestRueidisAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after, err := rueidisAfter(newStore(t, nil))
		if err != nil {
			t.Fatal(err)
		}
		check(t, []burst{
			{0, 70, 60},
			{59 * time.Second, 10, 0},
			{2 * time.Second, 70, 60},
		}, after)
	})
}

// TestRueidisUnavailable tests that both fail without a server.
func TestRueidisUnavailable(t *testing.T) {
	option := rueidis.ClientOption{InitAddress: []string{closedAddr(t)}}
	if _, err := rueidisBefore(option); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("before: %v, want ECONNREFUSED", err)
	}
	if _, err := rueidisStore(option); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after: %v, want ECONNREFUSED", err)
	}
}
