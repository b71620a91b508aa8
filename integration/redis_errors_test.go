package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

// TestRedisErrors puts servers into the states in which they refuse scripts, and holds that the error says that nothing was recorded,
// names the cause and no key, and that nothing was recorded.
func TestRedisErrors(t *testing.T) {
	for _, image := range images {
		t.Run(strings.ReplaceAll(image, "/", "-"), func(t *testing.T) {
			server := startServer(t, image, "--busy-reply-threshold", "1")
			admin := redis.NewClient(&redis.Options{Addr: server.addr, Protocol: 2, DisableIdentity: true})
			defer admin.Close()
			do := func(args ...any) {
				t.Helper()
				if err := admin.Do(t.Context(), args...).Err(); err != nil {
					t.Fatalf("%v: %v", args, err)
				}
			}
			isBusy := func() (bool, error) {
				err := admin.Get(t.Context(), "none").Err()
				if err == redis.Nil {
					err = nil
				}
				if redis.HasErrorPrefix(err, "BUSY") {
					return true, nil
				}
				return false, err
			}
			for _, tt := range []struct {
				code    string
				options redis.Options
				begin   func()
				end     func()
			}{
				{
					code:  "READONLY",
					begin: func() { do("REPLICAOF", "127.0.0.1", "1") },
					end:   func() { do("REPLICAOF", "NO", "ONE") },
				},
				{
					code: "MASTERDOWN",
					begin: func() {
						do("CONFIG", "SET", "replica-serve-stale-data", "no")
						do("REPLICAOF", "127.0.0.1", "1")
					},
					end: func() { do("REPLICAOF", "NO", "ONE") },
				},
				{
					code:  "NOREPLICAS",
					begin: func() { do("CONFIG", "SET", "min-replicas-to-write", "1") },
					end:   func() { do("CONFIG", "SET", "min-replicas-to-write", "0") },
				},
				{
					code:  "OOM",
					begin: func() { do("CONFIG", "SET", "maxmemory", "1") },
					end:   func() { do("CONFIG", "SET", "maxmemory", "0") },
				},
				{
					code: "BUSY",
					begin: func() {
						busy := redis.NewClient(&redis.Options{Addr: server.addr, MaxRetries: -1, ReadTimeout: time.Minute})
						go func() {
							defer busy.Close()
							busy.Eval(context.Background(), "while true do end", nil)
						}()
						mustPoll(t, isBusy)
					},
					end: func() {
						do("SCRIPT", "KILL")
						mustPoll(t, func() (bool, error) { busy, err := isBusy(); return !busy, err })
					},
				},
				{
					code:  "NOAUTH",
					begin: func() { do("CONFIG", "SET", "requirepass", "open") },
					end:   func() { do("CONFIG", "SET", "requirepass", "") },
				},
				{
					code:    "WRONGPASS",
					options: redis.Options{Username: "nobody", Password: "hunter2"},
				},
				{
					code:    "NOPERM",
					options: redis.Options{Username: "reader", Password: "hunter2"},
					begin:   func() { do("ACL", "SETUSER", "reader", "on", ">hunter2", "~*", "+@all", "-evalsha") },
				},
				{
					code:    "NOPERM",
					options: redis.Options{Username: "elsewhere", Password: "hunter2"},
					begin:   func() { do("ACL", "SETUSER", "elsewhere", "on", ">hunter2", "~other:*", "+@all") },
				},
				{
					code:  "", // no more than maxclients, if the answer is read before the connection is seen to be closed
					begin: func() { do("CONFIG", "SET", "maxclients", "1") },
					end:   func() { do("CONFIG", "SET", "maxclients", "1000") },
				},
			} {
				t.Run(cmp.Or(tt.code, "max clients"), func(t *testing.T) {
					opts := tt.options
					opts.Addr = server.addr
					client := redis.NewClient(&opts)
					defer client.Close()
					s := redisStore(t, client, &redisstore.Options{Timeout: 5 * time.Second})
					key := freshKey(t)
					if tt.begin != nil {
						tt.begin()
					}
					_, err := s.Take(t.Context(), take(key))
					if tt.end != nil {
						tt.end()
					}
					wantUnavailable(t, err, tt.code)
					for _, secret := range []string{key, "hunter2"} {
						if strings.Contains(fmt.Sprint(err), secret) {
							t.Errorf("%v has %q in it", err, secret)
						}
					}
					if n := recorded(t, redisStore(t, admin, nil), key); n != 0 {
						t.Errorf("%d records", n)
					}
				})
			}
		})
	}
}

func mustPoll(t *testing.T, done func() (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), faultTimeout)
	defer cancel()
	if err := poll(ctx, done); err != nil {
		t.Fatal(err)
	}
}

// TestRedisNoEvalsha runs on a server that does not know EVALSHA. Such servers repeat the arguments in their answer.
func TestRedisNoEvalsha(t *testing.T) {
	for _, image := range images {
		t.Run(strings.ReplaceAll(image, "/", "-"), func(t *testing.T) {
			server := startServer(t, image, "--rename-command", "EVALSHA", "")
			client := redis.NewClient(&redis.Options{Addr: server.addr})
			defer client.Close()
			s := redisStore(t, client, nil)
			_, err := s.Take(t.Context(), take("secret"))
			if !errors.Is(err, ratelimit.ErrUnavailable) || errors.Is(err, ratelimit.ErrOutcomeUnknown) {
				t.Errorf("%v, want ErrUnavailable", err)
			}
			if text := fmt.Sprint(err); !strings.Contains(text, "ERR unknown command") || strings.Contains(text, "secret") {
				t.Errorf("%v", err)
			}
			if _, err := s.Probe(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("Probe: %v, want ErrUnsupported", err)
			}
		})
	}
}

// TestRedisForeignValue finds a value of another type, and one that is no state, where a state should be.
func TestRedisForeignValue(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		client := tgt.client(t)
		s := redisStore(t, client, &redisstore.Options{Prefix: "foreign:"})
		for what, put := range map[string]func(key string) error{
			"list":   func(key string) error { return client.RPush(t.Context(), key, "x").Err() },
			"string": func(key string) error { return client.Set(t.Context(), key, "x", 0).Err() },
		} {
			key := freshKey(t)
			stored := "foreign:{=" + key + "}:24h0m0s:log1"
			if err := put(stored); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Take(t.Context(), take(key)); !errors.Is(err, ratelimit.ErrCorruptState) {
				t.Errorf("%s: %v, want ErrCorruptState", what, err)
			}
			reset := take(key)
			reset.Op = ratelimit.Reset
			if _, err := s.Take(t.Context(), reset); err != nil {
				t.Errorf("%s: reset: %v", what, err)
			}
			if n, err := client.Exists(t.Context(), stored).Result(); n != 0 || err != nil {
				t.Errorf("%s: still there after a reset: %v", what, err)
			}
		}
	})
}

// TestRedisSeveralSlots decides on keys of two slots: together only on a single server, or with a tag.
func TestRedisSeveralSlots(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		client := tgt.client(t)
		for what, c := range map[string]redis.UniversalClient{
			"client":         client,
			"wrapped client": struct{ redis.UniversalClient }{client}, // whose server is the one to refuse
		} {
			s := redisStore(t, c, nil)
			tagged := redisStore(t, c, &redisstore.Options{Prefix: "tagged:", Tag: func(string) string { return "group" }})
			ds := []ratelimit.Demand{take(freshKey(t)), take(freshKey(t)), take(freshKey(t)), take(freshKey(t))}
			out := make([]ratelimit.Result, len(ds))
			err := s.TakeAll(t.Context(), ds, out)
			if tgt.cluster != errors.Is(err, errors.ErrUnsupported) || !tgt.cluster && err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if tgt.cluster {
				for _, d := range ds {
					if n := recorded(t, s, d.Key); n != 0 {
						t.Errorf("%s: %d records after %v", what, n, err)
					}
				}
			}
			if err := tagged.TakeAll(t.Context(), ds, out); err != nil {
				t.Errorf("%s: with a tag: %v", what, err)
			}
			for _, d := range ds {
				if n := recorded(t, tagged, d.Key); n != 1 {
					t.Errorf("%s: with a tag: %d records", what, n)
				}
			}
		}
	})
}
