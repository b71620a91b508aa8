package main

import (
	"context"
	"net/http"

	"github.com/go-chi/httprate"
	httprateredis "github.com/go-chi/httprate-redis"
	"github.com/go-redis/redis_rate/v10"
	redigo "github.com/gomodule/redigo/redis"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislimiter"
	sethvargo "github.com/sethvargo/go-redisstore"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
	"github.com/valkey-io/valkey-go"
	"github.com/valkey-io/valkey-go/valkeylimiter"
)

func openRedisRate(addr string, q quota) (decider, error) {
	client := newGoRedis(addr)
	limiter := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Rate: int(q.max), Burst: int(q.max), Period: q.window}
	return decider{
		allow: func(ctx context.Context, key string) (bool, error) {
			res, err := limiter.Allow(ctx, key, limit)
			return err == nil && res.Allowed > 0, err
		},
		close: func() { client.Close() },
	}, nil
}

func openUluleRedis(addr string, q quota) (decider, error) {
	client := newGoRedis(addr)
	store, err := ululeredis.NewStore(client)
	if err != nil {
		client.Close()
		return decider{}, err
	}
	d := ululeDecider(store, q)
	d.close = func() { client.Close() }
	return d, nil
}

func openThrottledRedis(addr string, q quota) (decider, error) {
	client := newGoRedis(addr)
	store, err := goredisstore.NewCtx(client, "throttled:")
	if err != nil {
		client.Close()
		return decider{}, err
	}
	d, err := throttledDecider(store, q)
	d.close = func() { client.Close() }
	return d, err
}

func openRueidisLimiter(addr string, q quota) (decider, error) {
	client, err := newRueidis(addr)
	if err != nil {
		return decider{}, err
	}
	limiter, err := rueidislimiter.NewRateLimiter(rueidislimiter.RateLimiterOption{
		ClientBuilder: func(rueidis.ClientOption) (rueidis.Client, error) { return client, nil },
		Limit:         int(q.max), Window: q.window,
	})
	if err != nil {
		client.Close()
		return decider{}, err
	}
	return decider{
		allow: func(ctx context.Context, key string) (bool, error) {
			res, err := limiter.Allow(ctx, key)
			return res.Allowed, err
		},
		close: client.Close,
	}, nil
}

func openValkeyLimiter(addr string, q quota) (decider, error) {
	client, err := newValkey(addr)
	if err != nil {
		return decider{}, err
	}
	limiter, err := valkeylimiter.NewRateLimiter(valkeylimiter.RateLimiterOption{
		ClientBuilder: func(valkey.ClientOption) (valkey.Client, error) { return client, nil },
		Limit:         int(q.max), Window: q.window,
	})
	if err != nil {
		client.Close()
		return decider{}, err
	}
	return decider{
		allow: func(ctx context.Context, key string) (bool, error) {
			res, err := limiter.Allow(ctx, key)
			return res.Allowed, err
		},
		close: client.Close,
	}, nil
}

// failure is a ResponseWriter that keeps the error of httprate, which would otherwise look like a
// refusal.
type failure struct {
	http.ResponseWriter
	err error
}

// openHTTPRateRedis disables the local counter for an unavailable server, which is another limiter.
// It omits the response headers.
func openHTTPRateRedis(addr string, q quota) (decider, error) {
	client := newGoRedis(addr)
	limiter := httprate.NewRateLimiter(int(q.max), q.window,
		httprateredis.WithRedisLimitCounter(&httprateredis.Config{Client: client,
			WindowLength: q.window, FallbackDisabled: true}),
		httprate.WithResponseHeaders(httprate.ResponseHeaders{}),
		httprate.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
			w.(*failure).err = err
		}),
	)
	request, err := http.NewRequest(http.MethodGet, "/", nil)
	if err != nil {
		client.Close()
		return decider{}, err
	}
	return decider{
		allow: func(_ context.Context, key string) (bool, error) {
			var f failure
			limited := limiter.OnLimit(&f, request, key)
			return !limited && f.err == nil, f.err
		},
		close: func() { client.Close() },
	}, nil
}

// openGoRedisstore uses a pool that keeps its connections, like those of the other entries.
func openGoRedisstore(addr string, q quota) (decider, error) {
	store, err := sethvargo.NewWithPool(&sethvargo.Config{Tokens: uint64(q.max),
		Interval: q.window}, &redigo.Pool{
		MaxIdle: connections, MaxActive: connections, Wait: true,
		Dial: func() (redigo.Conn, error) {
			return redigo.Dial("tcp", addr, redigo.DialReadTimeout(clientTimeout),
				redigo.DialWriteTimeout(clientTimeout))
		},
	})
	if err != nil {
		return decider{}, err
	}
	return decider{
		allow: func(ctx context.Context, key string) (bool, error) {
			_, _, _, ok, err := store.Take(ctx, key)
			return ok, err
		},
		close: func() { store.Close(context.Background()) },
	}, nil
}
