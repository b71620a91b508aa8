package migrating

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/clientip"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit"
)

func throttledStoreBefore(client *redis.Client) (throttled.GCRAStoreCtx, error) {
	return goredisstore.NewCtx(client, "throttled:")
}

func throttledBefore(store throttled.GCRAStoreCtx, next http.Handler) (http.Handler, error) {
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerMin(60), MaxBurst: 19, // 1 a second, 1 + 19 at once
	})
	if err != nil {
		return nil, err
	}
	limit := throttled.HTTPRateLimiterCtx{
		RateLimiter: limiter, VaryBy: &throttled.VaryBy{RemoteAddr: true},
	}
	return limit.RateLimit(next), nil
}

func throttledStoreAfter(client *redis.Client) (*redisstore.Store, error) {
	return redisstore.New(client, nil)
}

func throttledAfter(store ratelimit.Store, next http.Handler) (http.Handler, error) {
	limiter, err := ratelimit.New(store, algorithm.GCRA(
		ratelimit.Limit{Name: "api", Max: 20, Window: 20 * time.Second})) // 20 at once, 1 a second
	if err != nil {
		return nil, err
	}
	return httplimit.Handler(limiter, clientip.RemoteAddr, next), nil
}

func TestThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memstore.NewCtx(0)
		if err != nil {
			t.Fatal(err)
		}
		before, err := throttledBefore(store, ok)
		if err != nil {
			t.Fatal(err)
		}
		after, err := throttledAfter(newStore(t, nil), ok)
		if err != nil {
			t.Fatal(err)
		}
		check(t, []burst{
			{0, 25, 20},
			{4500 * time.Millisecond, 10, 4},
			{10 * time.Second, 20, 10},
			{time.Minute, 25, 20},
		}, requests(before), requests(after))
	})
}

// TestThrottledMaxKeys tests a store that is full.
func TestThrottledMaxKeys(t *testing.T) {
	small, err := memstore.NewCtx(1)
	if err != nil {
		t.Fatal(err)
	}
	before, err := throttled.NewGCRARateLimiterCtx(small,
		throttled.RateQuota{MaxRate: throttled.PerHour(1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"one", "two", "one"} {
		if limited, _, err := before.RateLimitCtx(t.Context(), key, 1); err != nil || limited {
			t.Errorf("before, %s: limited %v, %v; want that the other key was evicted",
				key, limited, err)
		}
	}
	after, err := ratelimit.New(newStore(t, &memorystore.Options{MaxKeys: 1}),
		algorithm.GCRA(ratelimit.PerHour("api", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if res, err := after.Allow(t.Context(), "one"); err != nil || !res.Allowed {
		t.Errorf("after, one: %+v, %v", res, err)
	}
	if _, err := after.Allow(t.Context(), "two"); !errors.Is(err, driver.ErrCapacity) {
		t.Errorf("after, two: %v, want ErrCapacity", err)
	}
	if res, err := after.Allow(t.Context(), "one"); err != nil || res.Allowed {
		t.Errorf("after, one again: %+v, %v; want a refusal", res, err)
	}
}

// TestThrottledUnavailable tests the statuses while no server listens.
func TestThrottledUnavailable(t *testing.T) {
	client := unreachable(t)
	storeBefore, err := throttledStoreBefore(client)
	if err != nil {
		t.Fatal(err)
	}
	before, err := throttledBefore(storeBefore, ok)
	if err != nil {
		t.Fatal(err)
	}
	if w := serve(t.Context(), before, "192.0.2.1"); w.Code != http.StatusInternalServerError {
		t.Errorf("before: answered with %d, want 500", w.Code)
	}
	storeAfter, err := throttledStoreAfter(client)
	if err != nil {
		t.Fatal(err)
	}
	after, err := throttledAfter(storeAfter, ok)
	if err != nil {
		t.Fatal(err)
	}
	if w := serve(t.Context(), after, "192.0.2.1"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("after: answered with %d, want 503", w.Code)
	}
}
