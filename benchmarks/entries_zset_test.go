package main

import (
	"context"
	"crypto/rand"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// zsetSource is the plain sorted-set log. KEYS[1]: the log. ARGV: limit, window in µs, window in
// ms, a unique member. It returns 1 or 0.
const zsetSource = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - ARGV[2])
local used = redis.call('ZCARD', KEYS[1])
if used < tonumber(ARGV[1]) then
  redis.call('ZADD', KEYS[1], now, ARGV[4])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return 1
end
return 0`

// zsetArgs returns a function that returns the arguments of a call, with a member that is unique
// across calls and clients.
func zsetArgs(q quota) func() []string {
	limit, us, ms := strconv.FormatInt(q.max, 10), strconv.FormatInt(q.window.Microseconds(), 10),
		strconv.FormatInt(q.window.Milliseconds(), 10)
	prefix, count := rand.Text()[:8], new(atomic.Int64)
	return func() []string {
		return []string{limit, us, ms, prefix + strconv.FormatInt(count.Add(1), 10)}
	}
}

// openScript runs a script that takes the arguments of zsetSource, through go-redis.
func openScript(source string) func(string, quota) (decider, error) {
	return func(addr string, q quota) (decider, error) {
		client, script, args := newGoRedis(addr), redis.NewScript(source), zsetArgs(q)
		return decider{
			allow: func(ctx context.Context, key string) (bool, error) {
				a := args()
				return script.Run(ctx, client, []string{key}, a[0], a[1], a[2], a[3]).Bool()
			},
			close: func() { client.Close() },
		}, nil
	}
}

func openZsetRueidis(addr string, q quota) (decider, error) {
	client, err := newRueidis(addr)
	if err != nil {
		return decider{}, err
	}
	script, args := rueidis.NewLuaScript(zsetSource), zsetArgs(q)
	return decider{
		allow: func(ctx context.Context, key string) (bool, error) {
			n, err := script.Exec(ctx, client, []string{key}, args()).AsInt64()
			return n == 1, err
		},
		close: client.Close,
	}, nil
}
