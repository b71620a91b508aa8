package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

func TestRedisProbe(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		client := tgt.client(t)
		eachLibrary(t, func(t *testing.T, lib library) {
			s := lib.client(t, tgt.dialing()).newStore(t, &redisstore.Options{Prefix: "probe:"})
			if err := dropScripts(t.Context(), client); err != nil {
				t.Fatal(err)
			}
			for range 2 { // with the script unknown and known
				got, err := s.probe(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				wantName := "redis"
				if strings.Contains(tgt.name, "valkey") {
					wantName = "valkey"
				}
				major, _, _ := strings.Cut(got.Version, ".")
				if got.Name != wantName || major != "7" && major != "8" && major != "9" || got.EvictionPolicy != "noeviction" || len(got.Warnings) > 0 {
					t.Errorf("%+v", got)
				}
				if _, image, ok := strings.Cut(strings.TrimSuffix(tgt.name, " cluster"), ":"); ok && image != major {
					t.Errorf("%s is said to be %s", tgt.name, got.Version)
				}
				if n, err := client.Exists(t.Context(), "probe:{=}").Result(); n != 0 || err != nil {
					t.Errorf("the probe left its key behind: %v", err)
				}
			}
		})
	})
}

// TestRedisProbeFinds holds that the probe says what is missing.
func TestRedisProbeFinds(t *testing.T) {
	t.Parallel()
	const least = "+evalsha +eval +time +getrange +set +setrange +pexpireat +pexpire +del"
	for _, image := range images {
		t.Run(strings.ReplaceAll(image, "/", "-"), func(t *testing.T) {
			server := startServer(t, image)
			admin := redis.NewClient(&redis.Options{Addr: server.addr})
			defer admin.Close()
			do := func(args ...any) {
				t.Helper()
				if err := admin.Do(t.Context(), args...).Err(); err != nil {
					t.Fatalf("%v: %v", args, err)
				}
			}
			for _, tt := range []struct {
				what       string
				acl        string // of the user, if not the default user
				begin, end func()
				says       string // in the error, or in the warning if works
				works      bool
			}{
				{what: "the least rights", acl: "~rl:* " + least, says: "may not run INFO", works: true},
				{what: "and INFO", acl: "~rl:* +info " + least, works: true},
				{what: "no EVALSHA", acl: "~rl:* " + least + " -evalsha", says: "does not permit this user to run scripts"},
				{what: "no EVAL", acl: "~rl:* " + least + " -eval", says: "does not permit this user to run scripts"},
				{what: "no SET", acl: "~rl:* " + least + " -set", says: "does not permit this user to run SET in a script"},
				{what: "no DEL", acl: "~rl:* " + least + " -del", says: "does not permit this user to run DEL in a script"},
				{what: "no TIME", acl: "~rl:* " + least + " -time", says: "does not permit this user to run TIME in a script"},
				{what: "other keys", acl: "~other:* " + least, says: "on keys that begin with the store's prefix"},
				{what: "keys to read only", acl: "%R~rl:* " + least, says: "does not permit this user to run"},
				{
					what:  "replica",
					begin: func() { do("REPLICAOF", "127.0.0.1", "1") },
					end:   func() { do("REPLICAOF", "NO", "ONE") },
					says:  "read-only replica",
				},
				{
					what:  "eviction",
					begin: func() { do("CONFIG", "SET", "maxmemory-policy", "volatile-lru") },
					end:   func() { do("CONFIG", "SET", "maxmemory-policy", "noeviction") },
					says:  "With maxmemory-policy volatile-lru",
					works: true,
				},
				{
					what:  "password",
					begin: func() { do("CONFIG", "SET", "requirepass", "hunter2") },
					end:   func() { do("CONFIG", "SET", "requirepass", "") },
					says:  "wants another user or password",
				},
			} {
				t.Run(tt.what, func(t *testing.T) {
					d := dialing{addrs: []string{server.addr}}
					if tt.acl != "" {
						d.username, d.password = "limiter", "hunter2"
						do("ACL", "DELUSER", "limiter")
						args := []any{"ACL", "SETUSER", "limiter", "on", ">hunter2"}
						for rule := range strings.FieldsSeq(tt.acl) {
							args = append(args, rule)
						}
						do(args...)
					}
					if tt.begin != nil {
						tt.begin()
						defer tt.end()
					}
					eachLibrary(t, func(t *testing.T, lib library) {
						do("SCRIPT", "FLUSH")
						s := lib.client(t, d).newStore(t, &redisstore.Options{Timeout: patient})
						found, err := s.probe(t.Context())
						if tt.works {
							if err != nil {
								t.Fatal(err)
							}
							if got := strings.Join(found.Warnings, " "); !strings.Contains(got, tt.says) || (got == "") != (tt.says == "") {
								t.Errorf("warnings: %q, want %q", got, tt.says)
							}
							if _, err := s.Take(t.Context(), take(freshKey(t))); err != nil {
								t.Errorf("the probe found no fault, but a Take: %v", err)
							}
							return
						}
						if err == nil || !strings.Contains(err.Error(), tt.says) || !errors.Is(err, ratelimit.ErrUnavailable) {
							t.Errorf("%v, want %q", err, tt.says)
						}
						if strings.Contains(fmt.Sprint(err), "hunter2") {
							t.Errorf("%v", err)
						}
					})
				})
			}
		})
	}
}

// TestRedisProbeWrongClient gives the probe a client for one server where there is a cluster, and the other way round.
func TestRedisProbeWrongClient(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		check := func(t *testing.T, lib library, d dialing, want string) {
			s := lib.client(t, d).newStore(t, &redisstore.Options{Timeout: patient})
			if _, err := s.probe(t.Context()); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		if !tgt.cluster { // for which the piped libraries have no client that works
			check(t, libraries[0], dialing{addrs: tgt.addrs, cluster: true}, "wants a *redis.Client")
			return
		}
		eachLibrary(t, func(t *testing.T, lib library) {
			want := "wants a *redis.ClusterClient"
			if lib.piped {
				want = "wants a client without ForceSingleClient"
			}
			check(t, lib, dialing{addrs: []string{strangerTo(t, tgt, "rl:{=}")}}, want)
		})
	})
}

// strangerTo returns the address of a primary that does not have key.
func strangerTo(t *testing.T, tgt *target, key string) string {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: tgt.addrs})
	defer client.Close()
	owner, err := client.MasterForKey(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		other, err := client.MasterForKey(t.Context(), fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		if addr := other.Options().Addr; addr != owner.Options().Addr {
			return addr
		}
	}
}
