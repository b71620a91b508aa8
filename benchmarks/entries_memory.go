package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/go-chi/httprate"
	golimiter "github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

// A quota is the limit of an entry: at most max units in window, or the nearest limit that the
// library can express.
type quota struct {
	max    int64
	window time.Duration
}

func (q quota) limit() ratelimit.Limit {
	return ratelimit.Limit{Name: "api", Max: q.max, Window: q.window}
}

// A decider is a measured limiter. It is safe for concurrent use.
type decider struct {
	allow func(ctx context.Context, key string) (bool, error)
	// nil if the library has only requests of one unit
	allowN func(ctx context.Context, key string, n int64) (bool, error)
	close  func()
}

// An about describes an entry in the report.
type about struct {
	Name, Module, Licence, Algorithm string
}

// A memoryEntry is a limiter in process.
type memoryEntry struct {
	about
	open func(q quota) (decider, error)
}

const (
	ours          = "ratelimit"
	xTime         = "x/time/rate"
	goLimiter     = "go-limiter"
	ululeName     = "ulule"
	throttledName = "throttled"
	httprateName  = "httprate"
	oursName      = "github.com/truewindow/ratelimit"
	maxKeys       = 16_000_000
)

var memoryEntries = []memoryEntry{
	{about{xTime, "golang.org/x/time", "BSD-3-Clause",
		"token bucket, one limiter per key in a sync.Map"}, openXTime},
	{about{ours, oursName, "MIT", "exact log"},
		func(q quota) (decider, error) { return openMemory(q, 0, nil) }},
	{about{ululeName, "github.com/ulule/limiter/v3", "MIT", "fixed window"}, openUluleMemory},
	{about{throttledName, "github.com/throttled/throttled/v2", "BSD-3-Clause", "GCRA"},
		openThrottledMemory},
	{about{goLimiter, "github.com/sethvargo/go-limiter", "Apache-2.0", "fixed window"},
		openGoLimiter},
	{about{httprateName, "github.com/go-chi/httprate", "MIT", "sliding counter of two windows"},
		openHTTPRate},
	{about{"failsafe", "github.com/failsafe-go/failsafe-go", "MIT",
		"fixed window, one limiter per key in a sync.Map"}, openFailsafe},
}

// memoryNames returns the names of all entries except those in without.
func memoryNames(without ...string) []string {
	var names []string
	for _, e := range memoryEntries {
		if !slices.Contains(without, e.Name) {
			names = append(names, e.Name)
		}
	}
	return names
}

func openMemoryEntry(name string, q quota) (decider, error) {
	for _, e := range memoryEntries {
		if e.Name == name {
			return e.open(q)
		}
	}
	return decider{}, fmt.Errorf("unknown entry %q", name)
}

// openMemory opens this module. Resolution 0 is the finest, a nil now is the store's clock.
func openMemory(q quota, resolution time.Duration, now func() int64) (decider, error) {
	store, err := memorystore.New(&memorystore.Options{MaxKeys: maxKeys, Now: now})
	if err != nil {
		return decider{}, err
	}
	log := algorithm.SlidingLog(q.limit())
	if resolution > 0 {
		log = log.WithResolution(resolution)
	}
	limiter, err := ratelimit.New(store, log)
	if err != nil {
		store.Close()
		return decider{}, err
	}
	return decider{
		allow: func(ctx context.Context, key string) (bool, error) {
			res, err := limiter.Allow(ctx, key)
			return res.Allowed, err
		},
		allowN: func(ctx context.Context, key string, n int64) (bool, error) {
			res, err := limiter.AllowN(ctx, key, n)
			return res.Allowed, err
		},
		close: func() { store.Close() },
	}, nil
}

// perKey keeps one limiter per key, as programs do if a limiter of the library has no keys.
func perKey[L any](create func() L, allow func(L) bool, allowN func(L, int64) bool) decider {
	var limiters sync.Map
	return decider{
		allow: func(_ context.Context, key string) (bool, error) {
			l, ok := limiters.Load(key)
			if !ok {
				l, _ = limiters.LoadOrStore(key, create())
			}
			return allow(l.(L)), nil
		},
		allowN: func(_ context.Context, key string, n int64) (bool, error) {
			l, ok := limiters.Load(key)
			if !ok {
				l, _ = limiters.LoadOrStore(key, create())
			}
			return allowN(l.(L), n), nil
		},
		close: func() {},
	}
}

func openXTime(q quota) (decider, error) {
	perSecond := rate.Limit(float64(q.max) / q.window.Seconds())
	create := func() *rate.Limiter { return rate.NewLimiter(perSecond, int(q.max)) }
	return perKey(create, (*rate.Limiter).Allow,
		func(l *rate.Limiter, n int64) bool { return l.AllowN(time.Now(), int(n)) }), nil
}

func openFailsafe(q quota) (decider, error) {
	create := func() ratelimiter.RateLimiter[any] {
		return ratelimiter.NewBursty[any](uint(q.max), q.window)
	}
	return perKey(create, ratelimiter.RateLimiter[any].TryAcquirePermit,
		func(l ratelimiter.RateLimiter[any], n int64) bool {
			return l.TryAcquirePermits(uint(n))
		}), nil
}

func openUluleMemory(q quota) (decider, error) {
	return ululeDecider(ululememory.NewStore(), q), nil
}

func ululeDecider(store ulule.Store, q quota) decider {
	limiter := ulule.New(store, ulule.Rate{Period: q.window, Limit: q.max})
	return decider{
		allow: func(ctx context.Context, key string) (bool, error) {
			res, err := limiter.Get(ctx, key)
			return err == nil && !res.Reached, err
		},
		allowN: func(ctx context.Context, key string, n int64) (bool, error) {
			res, err := limiter.Increment(ctx, key, n)
			return err == nil && !res.Reached, err
		},
		close: func() {},
	}
}

func openThrottledMemory(q quota) (decider, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return decider{}, err
	}
	return throttledDecider(store, q)
}

func throttledDecider(store throttled.GCRAStoreCtx, q quota) (decider, error) {
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(int(q.max), q.window), MaxBurst: int(q.max) - 1,
	})
	if err != nil {
		return decider{}, err
	}
	return decider{
		allow: func(ctx context.Context, key string) (bool, error) {
			limited, _, err := limiter.RateLimitCtx(ctx, key, 1)
			return err == nil && !limited, err
		},
		allowN: func(ctx context.Context, key string, n int64) (bool, error) {
			limited, _, err := limiter.RateLimitCtx(ctx, key, int(n))
			return err == nil && !limited, err
		},
		close: func() {},
	}, nil
}

func openGoLimiter(q quota) (decider, error) {
	store, err := golimiter.New(&golimiter.Config{Tokens: uint64(q.max), Interval: q.window})
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

// openHTTPRate omits the response headers, which the other entries do not write either.
func openHTTPRate(q quota) (decider, error) {
	limiter := httprate.NewRateLimiter(int(q.max), q.window,
		httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	request, err := http.NewRequest(http.MethodGet, "/", nil)
	if err != nil {
		return decider{}, err
	}
	return decider{
		allow: func(_ context.Context, key string) (bool, error) {
			return !limiter.OnLimit(nil, request, key), nil
		},
		allowN: func(ctx context.Context, key string, n int64) (bool, error) {
			return !limiter.OnLimit(nil, request.WithContext(httprate.WithIncrement(ctx, int(n))),
				key), nil
		},
		close: func() {},
	}, nil
}
