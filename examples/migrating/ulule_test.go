package migrating

import (
	"errors"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/clientip"
	"github.com/truewindow/ratelimit/httplimit"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

func ululeStoreBefore(client *redis.Client) (limiter.Store, error) {
	return ululeredis.NewStore(client)
}

func ululeBefore(store limiter.Store, next http.Handler) (http.Handler, error) {
	limit, err := limiter.NewRateFromFormatted("60-M")
	if err != nil {
		return nil, err
	}
	return stdlib.NewMiddleware(limiter.New(store, limit)).Handler(next), nil
}

func ululeStoreAfter(client *redis.Client) (*redisstore.Store, error) {
	return redisstore.New(client, nil)
}

func ululeAfter(store ratelimit.Store, next http.Handler) (http.Handler, error) {
	limit, err := ratelimit.ParseLimit("api=60/m")
	if err != nil {
		return nil, err
	}
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(limit))
	if err != nil {
		return nil, err
	}
	return httplimit.Handler(limiter, clientip.RemoteAddr, next), nil
}

func TestUlule(t *testing.T) {
	store := ululememory.NewStore() // its goroutine stays out of the bubble
	synctest.Test(t, func(t *testing.T) {
		before, err := ululeBefore(store, ok)
		if err != nil {
			t.Fatal(err)
		}
		after, err := ululeAfter(newStore(t, nil), ok)
		if err != nil {
			t.Fatal(err)
		}
		check(t, []burst{
			{0, 70, 60},
			{59 * time.Second, 10, 0},
			{2 * time.Second, 70, 60},
		}, requests(before), requests(after))
	})
}

// TestUluleRefusedUnits tests that ulule charges refused units and ratelimit does not.
func TestUluleRefusedUnits(t *testing.T) {
	ctx := t.Context()
	before := limiter.New(ululememory.NewStore(), limiter.Rate{Period: time.Hour, Limit: 10})
	after, err := ratelimit.New(newStore(t, nil),
		algorithm.SlidingLog(ratelimit.PerHour("api", 10)))
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		n             int64
		before, after bool
	}{
		{8, true, true},
		{5, false, false},
		{2, false, true},
	} {
		lctx, err := before.Increment(ctx, "key", c.n)
		if err != nil || lctx.Reached == c.before {
			t.Errorf("call %d, before: %+v, %v", i, lctx, err)
		}
		res, err := after.AllowN(ctx, "key", c.n)
		if err != nil || res.Allowed != c.after {
			t.Errorf("call %d, after: %+v, %v", i, res, err)
		}
	}
}

// TestUlulePeek peeks at a limit that is exactly used up.
func TestUlulePeek(t *testing.T) {
	ctx := t.Context()
	before := limiter.New(ululememory.NewStore(), limiter.Rate{Period: time.Hour, Limit: 1})
	after, err := ratelimit.New(newStore(t, nil), algorithm.SlidingLog(ratelimit.PerHour("api", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := before.Get(ctx, "key"); err != nil {
		t.Fatal(err)
	}
	if _, err := after.Allow(ctx, "key"); err != nil {
		t.Fatal(err)
	}
	if lctx, err := before.Peek(ctx, "key"); err != nil || lctx.Reached || lctx.Remaining != 0 {
		t.Errorf("before: %+v, %v; want nothing left, and not reached", lctx, err)
	}
	if res, err := after.Peek(ctx, "key"); err != nil || res.Allowed || res.Remaining != 0 {
		t.Errorf("after: %+v, %v; want nothing left, and not allowed", res, err)
	}
}

// TestUluleStoreUnavailable tests that only ulule needs the server when its store is made.
func TestUluleStoreUnavailable(t *testing.T) {
	client := unreachable(t)
	if _, err := ululeStoreBefore(client); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("before: %v, want ECONNREFUSED", err)
	}
	if _, err := ululeStoreAfter(client); err != nil {
		t.Errorf("after: %v", err)
	}
}
