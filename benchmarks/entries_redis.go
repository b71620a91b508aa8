package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/rueidis"
	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	rueidisstore "github.com/truewindow/ratelimit/backend/rueidis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	valkeystore "github.com/truewindow/ratelimit/backend/valkey"
	"github.com/truewindow/ratelimit/driver"
	"github.com/valkey-io/valkey-go"
)

// A redisEntry is a limiter on a server. Every decider that it opens has its own connections.
type redisEntry struct {
	about
	open  func(addr string, q quota) (decider, error)
	calls []string // commands that it sends, as in commandstats; nil means only scripts
}

const (
	oursRueidis    = "ratelimit, rueidis"
	oursValkey     = "ratelimit, valkey-go"
	oursAlone      = "ratelimit, alone"
	cachingRueidis = "ratelimit, rueidis, refusals cached"
	cachingValkey  = "ratelimit, valkey-go, refusals cached"
	zset           = "zset"
	zsetRetry      = "zset+ra"
	zsetRueidis    = "zset, rueidis"
	zsetValkey     = "zset, valkey-go"
	emptyScript    = "empty EVALSHA"
	atOnce         = "answered at once"
	redisRate      = "redis_rate"
	rueidisLimiter = "rueidislimiter"
	valkeyLimiter  = "valkeylimiter"
	httprateRedis  = "httprate-redis"
	goRedisstore   = "go-redisstore"
)

const (
	goRedis   = "github.com/redis/go-redis/v9"
	rueidisGo = "github.com/redis/rueidis"
	valkeyGo  = "github.com/valkey-io/valkey-go"
)

var redisEntries = []redisEntry{
	{about{zset, goRedis, "BSD-2-Clause", "exact log, sorted set in Lua"},
		openScript(zsetSource), nil},
	{about{zsetRetry, goRedis, "BSD-2-Clause", "the same, reads the oldest member when it refuses"},
		openScript(zsetRetrySource), nil},
	{about{zsetRueidis, rueidisGo, "Apache-2.0", "zset, automatic pipelining"},
		openZsetRueidis, nil},
	{about{zsetValkey, valkeyGo, "Apache-2.0", "zset, automatic pipelining"}, openZsetValkey, nil},
	{about{emptyScript, goRedis, "BSD-2-Clause", "none: a script that returns 1"},
		openScript("return 1"), nil},
	{about{atOnce, oursName, "MIT", "none: a store that admits at once, without a server"},
		openAtOnce, nil},
	{about{redisRate, "github.com/go-redis/redis_rate/v10", "BSD-2-Clause", "GCRA in Lua"},
		openRedisRate, nil},
	{about{ululeName, "github.com/ulule/limiter/v3", "MIT", "fixed window in Lua"},
		openUluleRedis, nil},
	{about{throttledName, "github.com/throttled/throttled/v2", "BSD-3-Clause",
		"GCRA, compare-and-swap"}, openThrottledRedis,
		[]string{"time", "get", "setnx", "expire", "eval"}},
	{about{rueidisLimiter, "github.com/redis/rueidis/rueidislimiter", "Apache-2.0",
		"fixed window in Lua, automatic pipelining"}, openRueidisLimiter, nil},
	{about{valkeyLimiter, "github.com/valkey-io/valkey-go/valkeylimiter", "Apache-2.0",
		"fixed window in Lua, automatic pipelining"}, openValkeyLimiter, nil},
	{about{httprateRedis, "github.com/go-chi/httprate-redis", "MIT",
		"sliding counter of two windows, read and then written"}, openHTTPRateRedis,
		[]string{"mget", "multi", "incrby", "expire", "exec"}},
	{about{goRedisstore, "github.com/sethvargo/go-redisstore", "Apache-2.0", "fixed window in Lua"},
		openGoRedisstore, nil},
	{about{ours, oursName, "MIT", "exact log in Lua, through go-redis"}, openOurs(false), nil},
	{about{oursAlone, oursName, "MIT", "the same, each decision in a call of its own"},
		openOurs(true), nil},
	{about{oursRueidis, oursName, "MIT", "exact log in Lua, through rueidis"},
		openOursRueidis, nil},
	{about{oursValkey, oursName, "MIT", "exact log in Lua, through valkey-go"},
		openOursValkey, nil},
	{about{cachingRueidis, oursName, "MIT",
		"the same through rueidis, with the client that Open makes"},
		openCachingRueidis, nil},
	{about{cachingValkey, oursName, "MIT",
		"the same through valkey-go, with the client that Open makes"},
		openCachingValkey, nil},
}

var (
	// oursOnServers is this module through each client.
	oursOnServers = []string{ours, oursRueidis, oursValkey}

	// notQuick are omitted from a quick run, because others are similar or they take long.
	notQuick = []string{zsetValkey, ululeName, throttledName, valkeyLimiter, httprateRedis,
		goRedisstore, cachingValkey}

	// cachedRefusals is this module with its own client and a cache of refusals.
	cachedRefusals = []string{cachingRueidis, cachingValkey}
)

// redisNames returns the names of all entries except those in without.
func redisNames(without ...string) []string {
	var names []string
	for _, e := range redisEntries {
		if !slices.Contains(without, e.Name) {
			names = append(names, e.Name)
		}
	}
	return names
}

func findRedisEntry(name string) (redisEntry, error) {
	for _, e := range redisEntries {
		if e.Name == name {
			return e, nil
		}
	}
	return redisEntry{}, fmt.Errorf("unknown entry %q", name)
}

// limiting returns this module on a store, or the error of opening the store. It closes the client
// on an error; otherwise the decider does.
func limiting(store ratelimit.Store, err error, q quota, closeClient func()) (decider, error) {
	if err != nil {
		closeClient()
		return decider{}, err
	}
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(q.limit()))
	if err != nil {
		closeClient()
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
		close: closeClient,
	}, nil
}

func openOurs(alone bool) func(string, quota) (decider, error) {
	return func(addr string, q quota) (decider, error) {
		client := newGoRedis(addr)
		store, err := redisstore.New(client,
			&serverstore.Options{Timeout: clientTimeout, NoBatching: alone})
		return limiting(store, err, q, func() { client.Close() })
	}
}

func openOursRueidis(addr string, q quota) (decider, error) {
	client, err := newRueidis(addr)
	if err != nil {
		return decider{}, err
	}
	store, err := rueidisstore.New(client, &serverstore.Options{Timeout: clientTimeout})
	return limiting(store, err, q, client.Close)
}

func openOursValkey(addr string, q quota) (decider, error) {
	client, err := newValkey(addr)
	if err != nil {
		return decider{}, err
	}
	store, err := valkeystore.New(client, &serverstore.Options{Timeout: clientTimeout})
	return limiting(store, err, q, client.Close)
}

func openCachingRueidis(addr string, q quota) (decider, error) {
	store, err := rueidisstore.Open(rueidis.ClientOption{InitAddress: []string{addr},
		ForceSingleClient: true, ConnWriteTimeout: clientTimeout},
		&serverstore.OpenOptions{Options: serverstore.Options{Timeout: clientTimeout}})
	if err != nil {
		return decider{}, err
	}
	return limiting(store, nil, q, func() { store.Close() })
}

func openCachingValkey(addr string, q quota) (decider, error) {
	store, err := valkeystore.Open(valkey.ClientOption{InitAddress: []string{addr},
		ForceSingleClient: true, ConnWriteTimeout: clientTimeout},
		&serverstore.OpenOptions{Options: serverstore.Options{Timeout: clientTimeout}})
	if err != nil {
		return decider{}, err
	}
	return limiting(store, nil, q, func() { store.Close() })
}

// admitting is a store that admits everything.
type admitting struct{}

func (admitting) Take(_ context.Context, d driver.Demand) (ratelimit.Result, error) {
	return ratelimit.Result{Allowed: true, Limit: driver.Limit{Max: d.N}}, nil
}

func (admitting) TakeAll(_ context.Context, _ []driver.Demand, out []ratelimit.Result) error {
	for i := range out {
		out[i] = ratelimit.Result{Allowed: true}
	}
	return nil
}

// openAtOnce opens a store without a server. Its rate is the most that the measuring callers can
// reach.
func openAtOnce(_ string, q quota) (decider, error) {
	return limiting(admitting{}, nil, q, func() {})
}
