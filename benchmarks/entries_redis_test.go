package main

import (
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	rueidisstore "github.com/truewindow/ratelimit/backend/rueidis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	valkeystore "github.com/truewindow/ratelimit/backend/valkey"
	"github.com/valkey-io/valkey-go"
)

// A redisEntry is a limiter on a server. Every decider that it opens has its own connections.
type redisEntry struct {
	name  string
	open  func(addr string, q quota) (decider, error)
	calls []string // commands that it sends, as in commandstats; nil means only scripts
}

const (
	oursAlone      = "ratelimit-alone" // each decision in a call of its own
	oursRueidis    = "ratelimit-rueidis"
	oursValkey     = "ratelimit-valkey"
	cachingRueidis = "ratelimit-rueidis-cached"
	cachingValkey  = "ratelimit-valkey-cached"
	zset           = "zset"
	zsetRueidis    = "zset-rueidis"
	emptyScript    = "empty-script"
	redisRate      = "redis_rate"
	rueidisLimiter = "rueidislimiter"
	valkeyLimiter  = "valkeylimiter"
	httprateRedis  = "httprate-redis"
	goRedisstore   = "go-redisstore"
)

// redisEntries are the limiters on a server. The first is the reference of the others.
var redisEntries = []redisEntry{
	{zset, openScript(zsetSource), nil},
	{zsetRueidis, openZsetRueidis, nil},
	{emptyScript, openScript("return 1"), nil},
	{ours, openOurs(false), nil},
	{oursAlone, openOurs(true), nil},
	{oursRueidis, openOursRueidis, nil},
	{oursValkey, openOursValkey, nil},
	{cachingRueidis, openCachingRueidis, nil},
	{cachingValkey, openCachingValkey, nil},
	{redisRate, openRedisRate, nil},
	{ululeName, openUluleRedis, nil},
	{throttledName, openThrottledRedis, []string{"time", "get", "setnx", "expire", "eval"}},
	{rueidisLimiter, openRueidisLimiter, nil},
	{valkeyLimiter, openValkeyLimiter, nil},
	{httprateRedis, openHTTPRateRedis, []string{"mget", "multi", "incrby", "expire", "exec"}},
	{goRedisstore, openGoRedisstore, nil},
}

// redisEntriesExcept returns the entries without those of the names.
func redisEntriesExcept(names ...string) []redisEntry {
	return slices.DeleteFunc(slices.Clone(redisEntries), func(e redisEntry) bool {
		return slices.Contains(names, e.name)
	})
}

// redisEntriesOf returns the entries of the names, in the order of redisEntries.
func redisEntriesOf(names ...string) []redisEntry {
	return slices.DeleteFunc(slices.Clone(redisEntries), func(e redisEntry) bool {
		return !slices.Contains(names, e.name)
	})
}

const (
	connections   = 64
	clientTimeout = 10 * time.Second // long, so that a stall shows as latency and not as an error
)

func newGoRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: connections, PoolTimeout: clientTimeout, ReadTimeout: clientTimeout,
		WriteTimeout: clientTimeout,
	})
}

func newRueidis(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true,
		ConnWriteTimeout: clientTimeout,
	})
}

func newValkey(addr string) (valkey.Client, error) {
	return valkey.NewClient(valkey.ClientOption{
		InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true,
		ConnWriteTimeout: clientTimeout,
	})
}

func openOurs(alone bool) func(string, quota) (decider, error) {
	return func(addr string, q quota) (decider, error) {
		client := newGoRedis(addr)
		store, err := redisstore.New(client,
			&serverstore.Options{Timeout: clientTimeout, NoBatching: alone})
		if err != nil {
			client.Close()
			return decider{}, err
		}
		return limiting(store, func() { client.Close() }, algorithm.SlidingLog(q.limit()))
	}
}

func openOursRueidis(addr string, q quota) (decider, error) {
	client, err := newRueidis(addr)
	if err != nil {
		return decider{}, err
	}
	store, err := rueidisstore.New(client, &serverstore.Options{Timeout: clientTimeout})
	if err != nil {
		client.Close()
		return decider{}, err
	}
	return limiting(store, client.Close, algorithm.SlidingLog(q.limit()))
}

func openOursValkey(addr string, q quota) (decider, error) {
	client, err := newValkey(addr)
	if err != nil {
		return decider{}, err
	}
	store, err := valkeystore.New(client, &serverstore.Options{Timeout: clientTimeout})
	if err != nil {
		client.Close()
		return decider{}, err
	}
	return limiting(store, client.Close, algorithm.SlidingLog(q.limit()))
}

func openCachingRueidis(addr string, q quota) (decider, error) {
	store, err := rueidisstore.Open(rueidis.ClientOption{InitAddress: []string{addr},
		ForceSingleClient: true, ConnWriteTimeout: clientTimeout},
		&serverstore.OpenOptions{Options: serverstore.Options{Timeout: clientTimeout}})
	if err != nil {
		return decider{}, err
	}
	return limiting(store, func() { store.Close() }, algorithm.SlidingLog(q.limit()))
}

func openCachingValkey(addr string, q quota) (decider, error) {
	store, err := valkeystore.Open(valkey.ClientOption{InitAddress: []string{addr},
		ForceSingleClient: true, ConnWriteTimeout: clientTimeout},
		&serverstore.OpenOptions{Options: serverstore.Options{Timeout: clientTimeout}})
	if err != nil {
		return decider{}, err
	}
	return limiting(store, func() { store.Close() }, algorithm.SlidingLog(q.limit()))
}
