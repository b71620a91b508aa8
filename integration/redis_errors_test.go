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
				code  string
				user  string
				begin func()
				end   func()
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
					code: "WRONGPASS",
					user: "nobody",
				},
				{
					code:  "NOPERM",
					user:  "reader",
					begin: func() { do("ACL", "SETUSER", "reader", "on", ">hunter2", "~*", "+@all", "-evalsha") },
				},
				{
					code:  "NOPERM",
					user:  "elsewhere",
					begin: func() { do("ACL", "SETUSER", "elsewhere", "on", ">hunter2", "~other:*", "+@all") },
				},
				{
					code:  "", // no more than maxclients, if the answer is read before the connection is seen to be closed
					begin: func() { do("CONFIG", "SET", "maxclients", "1") },
					end:   func() { do("CONFIG", "SET", "maxclients", "1000") },
				},
			} {
				t.Run(cmp.Or(tt.code, "max clients"), func(t *testing.T) {
					eachLibrary(t, func(t *testing.T, lib library) {
						if tt.begin != nil {
							tt.begin()
						}
						d := dialing{addrs: []string{server.addr}, username: tt.user}
						if tt.user != "" {
							d.password = "hunter2"
						}
						s := lib.client(t, d).newStore(t, &redisstore.Options{Timeout: 5 * time.Second})
						key := freshKey(t)
						_, err := s.Take(t.Context(), take(key))
						if tt.end != nil {
							tt.end()
						}
						if tt.code != "" || !lib.piped {
							wantUnavailable(t, err, tt.code)
						} else if !errors.Is(err, ratelimit.ErrUnavailable) {
							t.Errorf("%v, want ErrUnavailable", err)
						}
						for _, secret := range []string{key, "hunter2"} {
							if strings.Contains(fmt.Sprint(err), secret) {
								t.Errorf("%v has %q in it", err, secret)
							}
						}
						if n := recorded(t, goRedisClient(admin).newStore(t, &redisstore.Options{Timeout: patient}), key); n != 0 {
							t.Errorf("%d records", n)
						}
					})
				})
			}
		})
	}
}

func mustPoll(t testing.TB, done func() (bool, error)) {
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
			eachLibrary(t, func(t *testing.T, lib library) {
				s := lib.client(t, dialing{addrs: []string{server.addr}}).newStore(t, &redisstore.Options{Timeout: patient})
				_, err := s.Take(t.Context(), take("secret"))
				wantUnavailable(t, err, "unknown command")
				if strings.Contains(fmt.Sprint(err), "secret") {
					t.Errorf("%v", err)
				}
				if _, err := s.probe(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("Probe: %v, want ErrUnsupported", err)
				}
			})
		})
	}
}

// TestRedisSeveralSlots decides on keys of two slots: together only on a single server, or with a tag.
func TestRedisSeveralSlots(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, tgt *target) {
		client := tgt.client(t)
		several := func(t *testing.T, c anyClient) {
			s := c.newStore(t, &redisstore.Options{Timeout: patient})
			tagged := c.newStore(t, &redisstore.Options{Prefix: "tagged:", Timeout: patient, Tag: func(string) string { return "group" }})
			ds := []ratelimit.Demand{take(freshKey(t)), take(freshKey(t)), take(freshKey(t)), take(freshKey(t))}
			out := make([]ratelimit.Result, len(ds))
			err := s.TakeAll(t.Context(), ds, out)
			if tgt.cluster != errors.Is(err, errors.ErrUnsupported) || !tgt.cluster && err != nil {
				t.Error(err)
			}
			if tgt.cluster {
				for _, d := range ds {
					if n := recorded(t, s, d.Key); n != 0 {
						t.Errorf("%d records after %v", n, err)
					}
				}
			}
			if err := tagged.TakeAll(t.Context(), ds, out); err != nil {
				t.Errorf("with a tag: %v", err)
			}
			for _, d := range ds {
				if n := recorded(t, tagged, d.Key); n != 1 {
					t.Errorf("with a tag: %d records", n)
				}
			}
		}
		eachLibrary(t, func(t *testing.T, lib library) { several(t, lib.client(t, tgt.dialing())) })
		t.Run("wrapped go-redis", func(t *testing.T) { // whose server is the one to refuse
			several(t, goRedisClient(struct{ redis.UniversalClient }{client}))
		})
	})
}
