package main

import (
	"context"
	"crypto/rand"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"
)

// The plain sorted-set log. KEYS[1]: the log. ARGV: limit, window in µs, window in ms, a unique
// member. The first script returns 1 or 0, the second {1 or 0, µs until a retry}.
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

// zsetUnits is the plain sorted-set log for demands of ARGV[5] units, with a member for each unit.
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

// members makes members of a sorted set that are unique across calls and clients.
type members struct {
	prefix string
	count  atomic.Int64
}

func newMembers() *members { return &members{prefix: rand.Text()[:8]} }

func (m *members) next() string { return m.prefix + strconv.FormatInt(m.count.Add(1), 10) }

// scriptArgs returns the arguments of the sorted-set scripts, without the member.
func scriptArgs(q quota) [3]string {
	return [3]string{
		strconv.FormatInt(q.max, 10), strconv.FormatInt(q.window.Microseconds(), 10),
		strconv.FormatInt(q.window.Milliseconds(), 10),
	}
}

func openScript(source string) func(string, quota) (decider, error) {
	return func(addr string, q quota) (decider, error) {
		client, script, args, members := newGoRedis(addr), redis.NewScript(source),
			scriptArgs(q), newMembers()
		return decider{
			allow: func(ctx context.Context, key string) (bool, error) {
				reply, err := script.Run(ctx, client, []string{key}, args[0], args[1], args[2],
					members.next()).Result()
				if list, ok := reply.([]any); ok && len(list) > 0 {
					reply = list[0]
				}
				return reply == int64(1), err
			},
			allowN: func(ctx context.Context, key string, n int64) (bool, error) {
				allowed, err := zsetUnits.Run(ctx, client, []string{key}, args[0], args[1], args[2],
					members.next(), n).Bool()
				return allowed, err
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
	script, args, members := rueidis.NewLuaScript(zsetSource), scriptArgs(q), newMembers()
	return decider{
		allow: func(ctx context.Context, key string) (bool, error) {
			n, err := script.Exec(ctx, client, []string{key},
				[]string{args[0], args[1], args[2], members.next()}).AsInt64()
			return n == 1, err
		},
		close: client.Close,
	}, nil
}

func openZsetValkey(addr string, q quota) (decider, error) {
	client, err := newValkey(addr)
	if err != nil {
		return decider{}, err
	}
	script, args, members := valkey.NewLuaScript(zsetSource), scriptArgs(q), newMembers()
	return decider{
		allow: func(ctx context.Context, key string) (bool, error) {
			n, err := script.Exec(ctx, client, []string{key},
				[]string{args[0], args[1], args[2], members.next()}).AsInt64()
			return n == 1, err
		},
		close: client.Close,
	}, nil
}
