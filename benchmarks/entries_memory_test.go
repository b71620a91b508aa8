package main

import (
	"context"
	"net/http"
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
	close func()
}

// A memoryEntry is a limiter in process.
type memoryEntry struct {
	name string
	open func(q quota) (decider, error)
}

// Names of entries that are measured in several benchmarks.
const (
	ours          = "ratelimit"
	xTime         = "x-time-rate"
	goLimiter     = "go-limiter"
	ululeName     = "ulule"
	throttledName = "throttled"
	httprateName  = "httprate"
)

const maxKeys = 16_000_000

// memoryEntries are the limiters in process. The first is the reference of the others.
var memoryEntries = []memoryEntry{
	{xTime, openXTime},
	{ours, func(q quota) (decider, error) { return openMemory(algorithm.SlidingLog(q.limit())) }},
	{"ratelimit-bucket",
		func(q quota) (decider, error) { return openMemory(algorithm.GCRA(q.limit())) }},
	{"ratelimit-fixed",
		func(q quota) (decider, error) { return openMemory(algorithm.FixedWindow(q.limit())) }},
	{ululeName, openUluleMemory},
	{throttledName, openThrottledMemory},
	{goLimiter, openGoLimiter},
	{httprateName, openHTTPRate},
	{"failsafe", openFailsafe},
}

func openMemory(a ratelimit.Algorithm) (decider, error) {
	store, err := memorystore.New(&memorystore.Options{MaxKeys: maxKeys})
	if err != nil {
		return decider{}, err
	}
	return limiting(store, func() { store.Close() }, a)
}

// limiting returns this module on a store. It calls closeStore on an error; otherwise the decider
// does.
func limiting(
	store ratelimit.Store, closeStore func(), a ratelimit.Algorithm,
) (decider, error) {
	limiter, err := ratelimit.New(store, a)
	if err != nil {
		closeStore()
		return decider{}, err
	}
	return decider{
		allow: func(ctx context.Context, key string) (bool, error) {
			res, err := limiter.Allow(ctx, key)
			return res.Allowed, err
		},
		close: closeStore,
	}, nil
}

// budgetEntry is measured with short runs only: it makes two calls of the store.
var budgetEntry = memoryEntry{"ratelimit-budget", openBudget}

// openBudget returns a decider that reserves a unit, and commits it if it is admitted.
func openBudget(q quota) (decider, error) {
	store, err := memorystore.New(&memorystore.Options{MaxKeys: maxKeys})
	if err != nil {
		return decider{}, err
	}
	limiter, err := ratelimit.New(store, algorithm.Budget(algorithm.SlidingLog(q.limit())))
	if err != nil {
		store.Close()
		return decider{}, err
	}
	return decider{
		allow: func(ctx context.Context, key string) (bool, error) {
			r, err := limiter.Reserve(ctx, key, 1)
			if err != nil || !r.Allowed() {
				return false, err
			}
			return true, r.Commit(ctx, 1)
		},
		close: func() { store.Close() },
	}, nil
}

// perKey keeps one limiter per key, as programs do if a limiter of the library has no keys.
func perKey[L any](create func() L, allow func(L) bool) decider {
	var limiters sync.Map
	return decider{
		allow: func(_ context.Context, key string) (bool, error) {
			l, ok := limiters.Load(key)
			if !ok {
				l, _ = limiters.LoadOrStore(key, create())
			}
			return allow(l.(L)), nil
		},
		close: func() {},
	}
}

func openXTime(q quota) (decider, error) {
	perSecond := rate.Limit(float64(q.max) / q.window.Seconds())
	create := func() *rate.Limiter { return rate.NewLimiter(perSecond, int(q.max)) }
	return perKey(create, (*rate.Limiter).Allow), nil
}

func openFailsafe(q quota) (decider, error) {
	create := func() ratelimiter.RateLimiter[any] {
		return ratelimiter.NewBursty[any](uint(q.max), q.window)
	}
	return perKey(create, ratelimiter.RateLimiter[any].TryAcquirePermit), nil
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
	limiter, err := newThrottled(store, q)
	if err != nil {
		return decider{}, err
	}
	return decider{
		allow: func(ctx context.Context, key string) (bool, error) {
			limited, _, err := limiter.RateLimitCtx(ctx, key, 1)
			return err == nil && !limited, err
		},
		close: func() {},
	}, nil
}

func newThrottled(store throttled.GCRAStoreCtx, q quota) (*throttled.GCRARateLimiterCtx, error) {
	return throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(int(q.max), q.window), MaxBurst: int(q.max) - 1,
	})
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
		close: func() {},
	}, nil
}
