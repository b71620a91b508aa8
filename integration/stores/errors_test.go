package stores

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
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestRedisErrors: if a server refuses scripts, the error is ErrUnavailable, names the cause and
// not the key, and nothing is recorded.
func TestRedisErrors(t *testing.T) {
	servers.EachImage(t, func(t *testing.T, image string) {
		server := servers.Start(t, image, "--busy-reply-threshold", "1")
		admin := redis.NewClient(&redis.Options{Addr: server.Addr, Protocol: 2,
			DisableIdentity: true})
		defer admin.Close()
		do := func(args ...any) {
			t.Helper()
			if err := admin.Do(t.Context(), args...).Err(); err != nil {
				t.Fatalf("command %v: %v", args, err)
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
					busy := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1,
						ReadTimeout: time.Minute})
					go func() {
						defer busy.Close()
						busy.Eval(context.Background(), "while true do end", nil)
					}()
					servers.Await(t, isBusy)
				},
				end: func() {
					do("SCRIPT", "KILL")
					servers.Await(t, func() (bool, error) {
						busy, err := isBusy()
						return !busy, err
					})
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
				code: "NOPERM",
				user: "reader",
				begin: func() {
					do("ACL", "SETUSER", "reader", "on", ">hunter2", "~*", "+@all", "-evalsha")
				},
			},
			{
				code: "NOPERM",
				user: "elsewhere",
				begin: func() {
					do("ACL", "SETUSER", "elsewhere", "on", ">hunter2", "~other:*", "+@all")
				},
			},
			{
				// no maxclients error if the client notices the closed connection before it reads
				// the answer
				code:  "",
				begin: func() { do("CONFIG", "SET", "maxclients", "1") },
				end:   func() { do("CONFIG", "SET", "maxclients", "1000") },
			},
		} {
			t.Run(cmp.Or(tt.code, "max clients"), func(t *testing.T) {
				clients.EachOn(t, image, func(t *testing.T, lib clients.Library) {
					if tt.begin != nil {
						tt.begin()
					}
					d := clients.Dialing{Addrs: []string{server.Addr}, Username: tt.user}
					if tt.user != "" {
						d.Password = "hunter2"
					}
					s := lib.Client(t, d).NewStore(t,
						&serverstore.Options{Timeout: 5 * time.Second})
					key := servers.FreshKey(t)
					_, err := s.Take(t.Context(), clients.Take(key))
					if tt.end != nil {
						tt.end()
					}
					if tt.code != "" || !lib.Piped {
						wantUnavailable(t, err, tt.code)
					} else if !errors.Is(err, ratelimit.ErrUnavailable) {
						t.Errorf("got %v, want ErrUnavailable", err)
					}
					for _, secret := range []string{key, "hunter2"} {
						if strings.Contains(fmt.Sprint(err), secret) {
							t.Errorf("the error contains %q: %v", secret, err)
						}
					}
					if n := clients.Recorded(t, clients.GoRedis(admin).
						NewStore(t, &serverstore.Options{Timeout: clients.Patient}), key); n != 0 {
						t.Errorf("%d units recorded, want none", n)
					}
				})
			})
		}
	})
}

// TestRedisNoScripts runs on a server without scripts, which repeats the arguments in its error.
// The first call fails with a sentence that says so, and so does Probe.
func TestRedisNoScripts(t *testing.T) {
	servers.EachImage(t, func(t *testing.T, image string) {
		server := servers.Start(t, image, "--rename-command", "EVALSHA", "",
			"--rename-command", "EVAL", "")
		clients.EachOn(t, image, func(t *testing.T, lib clients.Library) {
			s := lib.Client(t, clients.Dialing{Addrs: []string{server.Addr}}).
				NewStore(t, &serverstore.Options{Timeout: clients.Patient})
			_, err := s.Take(t.Context(), clients.Take("secret"))
			wantUnavailable(t, err, "unknown command")
			if strings.Contains(fmt.Sprint(err), "secret") {
				t.Errorf("the error contains the key: %v", err)
			}
			_, errProbe := s.Probe(t.Context())
			for _, err := range []error{err, errProbe} {
				if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(fmt.Sprint(err),
					"the server runs no scripts (EVAL, EVALSHA); use Redis or Valkey") {
					t.Errorf("got %v, want ErrUnsupported and what to use", err)
				}
			}
		})
	})
}

// TestRedisSeveralSlots: keys of two slots are decided together only on a single server or with a
// tag.
func TestRedisSeveralSlots(t *testing.T) {
	t.Parallel()
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		clients.EachOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			c := lib.Client(t, clients.To(tgt))
			s := c.NewStore(t, &serverstore.Options{Timeout: clients.Patient})
			tagged := c.NewStore(t, &serverstore.Options{Prefix: "tagged:",
				Timeout: clients.Patient, Tag: func(string) string { return "group" }})
			ds := []driver.Demand{clients.Take(servers.FreshKey(t)),
				clients.Take(servers.FreshKey(t)), clients.Take(servers.FreshKey(t)),
				clients.Take(servers.FreshKey(t))}
			out := make([]ratelimit.Result, len(ds))
			err := s.TakeAll(t.Context(), ds, out)
			if tgt.Cluster != errors.Is(err, errors.ErrUnsupported) || !tgt.Cluster && err != nil {
				t.Error(err)
			}
			if tgt.Cluster {
				for _, d := range ds {
					if n := clients.Recorded(t, s, d.Key); n != 0 {
						t.Errorf("%d units recorded after %v, want none", n, err)
					}
				}
			}
			if err := tagged.TakeAll(t.Context(), ds, out); err != nil {
				t.Errorf("with a tag: got %v, want no error", err)
			}
			for _, d := range ds {
				if n := clients.Recorded(t, tagged, d.Key); n != 1 {
					t.Errorf("with a tag: %d units recorded, want 1", n)
				}
			}
		})
	})
}
