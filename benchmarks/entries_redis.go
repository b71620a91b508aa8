package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

// A redisEntry is a limiter on a server. Every decider that it opens has connections of its own.
type redisEntry struct {
	about
	open  func(addr string, q quota) (decider, error)
	calls []string // the commands that it sends, as in commandstats; nil means scripts only
}

const (
	zset          = "zset"
	zsetRetry     = "zset+ra"
	zsetRueidis   = "zset, rueidis"
	emptyScript   = "empty EVALSHA"
	redisRate     = "redis_rate"
	connections   = 64
	clientTimeout = 10 * time.Second // so that a stall is seen as latency and not as an error
)

const goRedis = "github.com/redis/go-redis/v9"

var redisEntries = []redisEntry{
	{about{zset, goRedis, "BSD-2-Clause", "exact log, sorted set in Lua"}, openScript(zsetSource), nil},
	{about{zsetRetry, goRedis, "BSD-2-Clause", "the same, reads the oldest member when it refuses"}, openScript(zsetRetrySource), nil},
	{about{zsetRueidis, "github.com/redis/rueidis", "Apache-2.0", "zset, automatic pipelining"}, openRueidis, nil},
	{about{emptyScript, goRedis, "BSD-2-Clause", "none: a script that returns 1"}, openScript("return 1"), nil},
	{about{redisRate, "github.com/go-redis/redis_rate/v10", "BSD-2-Clause", "GCRA in Lua"}, openRedisRate, nil},
	{about{"ulule", "github.com/ulule/limiter/v3", "MIT", "fixed window in Lua"}, openUluleRedis, nil},
	{about{throttledName, "github.com/throttled/throttled/v2", "BSD-3-Clause", "GCRA, compare-and-swap"}, openThrottledRedis,
		[]string{"time", "get", "setnx", "expire", "eval"}},
	{about{ours, oursName, "MIT", "exact log in Lua, through go-redis"}, openOurs, nil},
}

// The plain sorted-set log. KEYS[1]: the log. ARGV: limit, window in µs, window in ms, a member that no other call has. Returns 1
// or 0; the second script {1 or 0, µs until a retry}.
const (
	zsetBegin = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - ARGV[2])
local used = redis.call('ZCARD', KEYS[1])
if used < tonumber(ARGV[1]) then
  redis.call('ZADD', KEYS[1], now, ARGV[4])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
`
	zsetSource = zsetBegin + `  return 1
end
return 0`
	zsetRetrySource = zsetBegin + `  return {1, 0}
end
local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
return {0, oldest[2] + ARGV[2] - now}`
)

// zsetUnits is the plain sorted-set log for demands of ARGV[5] units: a member for each.
var zsetUnits = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - ARGV[2])
local n = tonumber(ARGV[5])
if redis.call('ZCARD', KEYS[1]) + n > tonumber(ARGV[1]) then return 0 end
for first = 1, n, 1000 do
  local list = {}
  for i = first, math.min(first + 999, n) do
    list[#list + 1] = now
    list[#list + 1] = ARGV[4] .. ':' .. i
  end
  redis.call('ZADD', KEYS[1], unpack(list))
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1`)

// members makes the members of a sorted set: one for each call, also between clients.
type members struct {
	prefix string
	count  atomic.Int64
}

func newMembers() *members { return &members{prefix: rand.Text()[:8]} }

func (m *members) next() string { return m.prefix + strconv.FormatInt(m.count.Add(1), 10) }

// redisNames returns the names of all entries but those left out.
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
	return redisEntry{}, fmt.Errorf("no entry %q", name)
}

func newGoRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: connections, PoolTimeout: clientTimeout, ReadTimeout: clientTimeout, WriteTimeout: clientTimeout,
	})
}

// scriptArgs are the arguments of the sorted-set scripts but the member.
func scriptArgs(q quota) [3]string {
	return [3]string{
		strconv.FormatInt(q.max, 10), strconv.FormatInt(q.window.Microseconds(), 10), strconv.FormatInt(q.window.Milliseconds(), 10),
	}
}

func openScript(source string) func(string, quota) (decider, error) {
	return func(addr string, q quota) (decider, error) {
		client, script, args, members := newGoRedis(addr), redis.NewScript(source), scriptArgs(q), newMembers()
		return decider{
			allow: func(ctx context.Context, key string) (bool, error) {
				reply, err := script.Run(ctx, client, []string{key}, args[0], args[1], args[2], members.next()).Result()
				if list, ok := reply.([]any); ok && len(list) > 0 {
					reply = list[0]
				}
				return reply == int64(1), err
			},
			allowN: func(ctx context.Context, key string, n int64) (bool, error) {
				allowed, err := zsetUnits.Run(ctx, client, []string{key}, args[0], args[1], args[2], members.next(), n).Bool()
				return allowed, err
			},
			close: func() { client.Close() },
		}, nil
	}
}

func openRueidis(addr string, q quota) (decider, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true, ConnWriteTimeout: clientTimeout,
	})
	if err != nil {
		return decider{}, err
	}
	script, args, members := rueidis.NewLuaScript(zsetSource), scriptArgs(q), newMembers()
	return decider{
		allow: func(ctx context.Context, key string) (bool, error) {
			n, err := script.Exec(ctx, client, []string{key}, []string{args[0], args[1], args[2], members.next()}).AsInt64()
			return n == 1, err
		},
		close: client.Close,
	}, nil
}

func openRedisRate(addr string, q quota) (decider, error) {
	client := newGoRedis(addr)
	limiter := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Rate: int(q.max), Burst: int(q.max), Period: q.window}
	return decider{
		allow: func(ctx context.Context, key string) (bool, error) {
			res, err := limiter.Allow(ctx, key, limit)
			return err == nil && res.Allowed > 0, err
		},
		allowN: func(ctx context.Context, key string, n int64) (bool, error) {
			res, err := limiter.AllowN(ctx, key, limit, int(n))
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

func openOurs(addr string, q quota) (decider, error) {
	client := newGoRedis(addr)
	store, err := redisstore.New(client, &redisstore.Options{Timeout: clientTimeout})
	if err != nil {
		client.Close()
		return decider{}, err
	}
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.Limit{Max: q.max, Window: q.window}))
	if err != nil {
		client.Close()
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
		close: func() { client.Close() },
	}, nil
}
