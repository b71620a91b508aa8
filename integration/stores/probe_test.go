package stores

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

func TestRedisProbe(t *testing.T) {
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		clients.EachOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			s := lib.Client(t, clients.To(tgt)).NewStore(t, &serverstore.Options{Prefix: "probe:"})
			if err := servers.DropScripts(t.Context(), client); err != nil {
				t.Fatal(err)
			}
			for range 2 { // without and with the script loaded
				got, err := s.Probe(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				wantName := "redis"
				if strings.Contains(tgt.Name, "valkey") {
					wantName = "valkey"
				}
				major, _, _ := strings.Cut(got.Version, ".")
				if got.Name != wantName || major != "7" && major != "8" && major != "9" ||
					got.EvictionPolicy != "noeviction" || len(got.Warnings) > 0 {
					t.Errorf("got %+v, want %s 7 to 9 with noeviction and no warning", got,
						wantName)
				}
				if _, image, ok := strings.Cut(strings.TrimSuffix(tgt.Name, " cluster"), ":"); ok &&
					!strings.HasPrefix(got.Version, image+".") {
					t.Errorf("got version %s of %s", got.Version, tgt.Name)
				}
				if n, err := client.Exists(t.Context(), "probe:{=}").Result(); n != 0 ||
					err != nil {
					t.Errorf("the probe left %d keys behind, %v; want none", n, err)
				}
			}
		})
	})
}

// TestRedisProbeFinds: Probe reports what is missing, whether or not the server knows its script.
func TestRedisProbeFinds(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(servers.Module + "/backend/internal/server/probe.lua")
	if err != nil {
		t.Fatal(err)
	}
	servers.EachImage(t, func(t *testing.T, image string) {
		server := servers.Start(t, image)
		admin := redis.NewClient(&redis.Options{Addr: server.Addr})
		defer admin.Close()
		do := func(args ...any) {
			t.Helper()
			if err := admin.Do(t.Context(), args...).Err(); err != nil {
				t.Fatalf("command %v: %v", args, err)
			}
		}
		for _, tt := range []struct {
			what       string
			acl        string // rights of the user; empty for the default user
			begin, end func()
			says       string // text in the error, or in the warning if works
			works      bool
		}{
			{what: "the least rights", acl: "~rl:* " + clients.DecisionRights,
				says: "may not run INFO", works: true},
			{what: "and INFO", acl: "~rl:* +info " + clients.DecisionRights, works: true},
			{what: "no EVALSHA", acl: "~rl:* " + clients.DecisionRights + " -evalsha",
				says: "does not permit this user to run EVALSHA"},
			{what: "no EVAL", acl: "~rl:* " + clients.DecisionRights + " -eval",
				says: "does not permit this user to run EVAL "},
			{what: "no SET", acl: "~rl:* " + clients.DecisionRights + " -set",
				says: "does not permit this user to run SET in a script"},
			{what: "no DEL", acl: "~rl:* " + clients.DecisionRights + " -del",
				says: "does not permit this user to run DEL in a script"},
			{what: "no TIME", acl: "~rl:* " + clients.DecisionRights + " -time",
				says: "does not permit this user to run TIME in a script"},
			{what: "other keys", acl: "~other:* " + clients.DecisionRights,
				says: "on keys that begin with the store's prefix; grant it the rights"},
			{what: "keys to read only", acl: "%R~rl:* " + clients.DecisionRights,
				says: "does not permit this user to run"},
			{
				what:  "replica",
				begin: func() { do("REPLICAOF", "127.0.0.1", "1") },
				end:   func() { do("REPLICAOF", "NO", "ONE") },
				says:  "the server is a read-only replica; use its primary",
			},
			{
				what:  "eviction",
				begin: func() { do("CONFIG", "SET", "maxmemory-policy", "volatile-lru") },
				end:   func() { do("CONFIG", "SET", "maxmemory-policy", "noeviction") },
				says: "With maxmemory-policy volatile-lru a server that is short of memory loses " +
					"admissions; set it to noeviction.",
				works: true,
			},
			{
				what:  "password",
				begin: func() { do("CONFIG", "SET", "requirepass", "hunter2") },
				end:   func() { do("CONFIG", "SET", "requirepass", "") },
				says:  "the user or the password is wrong or missing; set those of a user",
			},
		} {
			t.Run(tt.what, func(t *testing.T) {
				d := clients.Dialing{Addrs: []string{server.Addr}}
				if tt.acl != "" {
					d.Username, d.Password = "limiter", "hunter2"
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
				both := func(t *testing.T, check func(t *testing.T, lib clients.Library)) {
					clients.EachOn(t, image, func(t *testing.T, lib clients.Library) {
						do("SCRIPT", "FLUSH")
						check(t, lib)
						do("SCRIPT", "LOAD", script)
						check(t, lib)
					})
				}
				both(t, func(t *testing.T, lib clients.Library) {
					s := lib.Client(t, d).NewStore(t,
						&serverstore.Options{Timeout: clients.Patient})
					found, err := s.Probe(t.Context())
					if tt.works {
						if err != nil {
							t.Fatal(err)
						}
						if got := strings.Join(found.Warnings, " "); !strings.Contains(got,
							tt.says) || (got == "") != (tt.says == "") {
							t.Errorf("got warnings %q, want %q", got, tt.says)
						}
						if _, err := s.Take(t.Context(),
							clients.Take(servers.FreshKey(t))); err != nil {
							t.Errorf("the probe found no fault, but a Take got %v", err)
						}
						return
					}
					if err == nil || !strings.Contains(err.Error(), tt.says) ||
						!errors.Is(err, ratelimit.ErrUnavailable) {
						t.Errorf("got %v, want %q", err, tt.says)
					}
					if denied := tt.what != "replica"; errors.Is(err,
						serverstore.ErrDenied) != denied {
						t.Errorf("got %v, want ErrDenied: %t", err, denied)
					}
					if strings.Contains(fmt.Sprint(err), "hunter2") {
						t.Errorf("the error contains the password: %v", err)
					}
				})
			})
		}
	})
}

// TestRedisProbeScripts: Probe reports what the scripts of a server lack, and finds nothing missing
// if scripts may use only the keys that they declare. What Probe finds, a Take meets.
func TestRedisProbeScripts(t *testing.T) {
	servers.OneImage(t, servers.Newest(), func(t *testing.T, image string) {
		server := servers.Start(t, image)
		for _, tt := range []struct {
			dialect servers.Dialect
			says    string // the error, or "" if the server works
		}{
			{servers.Dialect{Declared: true, Forgetful: true}, ""},
			{servers.Dialect{NoTime: true},
				"the server has no TIME in a script, which decisions need; use one that has"},
			{servers.Dialect{NoStruct: true},
				"the server has no library struct in a script, which decisions need; use one"},
		} {
			addr := tt.dialect.Speak(t, server.Addr)
			clients.Each(t, func(t *testing.T, lib clients.Library) {
				s := lib.Client(t, clients.Dialing{Addrs: []string{addr}}).NewStore(t,
					&serverstore.Options{Timeout: clients.Patient})
				found, err := s.Probe(t.Context())
				_, errTake := s.Take(t.Context(), clients.Take(servers.FreshKey(t)))
				if tt.says == "" {
					if err != nil || errTake != nil || len(found.Warnings) > 0 {
						t.Errorf("%+v: %v, %v, %q", tt.dialect, err, errTake, found.Warnings)
					}
				} else if !errors.Is(err, errors.ErrUnsupported) ||
					!strings.Contains(err.Error(), tt.says) || errTake == nil {
					t.Errorf("%+v: %v, %v, want %q", tt.dialect, err, errTake, tt.says)
				}
			})
		}
	})
}

// TestRedisProbeWrongClient: Probe reports a client for a single server on a cluster, and a cluster
// client on a single server.
func TestRedisProbeWrongClient(t *testing.T) {
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		check := func(t *testing.T, lib clients.Library, d clients.Dialing, want string) {
			s := lib.Client(t, d).NewStore(t, &serverstore.Options{Timeout: clients.Patient})
			if _, err := s.Probe(t.Context()); !errors.Is(err, errors.ErrUnsupported) ||
				!strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		if !tgt.Cluster { // there the piped libraries have no client that works
			check(t, clients.Libraries[0], clients.Dialing{Addrs: tgt.Addrs, Cluster: true},
				"use a *redis.Client")
			return
		}
		clients.EachOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			want := "use a *redis.ClusterClient"
			if lib.Piped {
				want = "use a client without ForceSingleClient"
			}
			check(t, lib, clients.Dialing{Addrs: []string{primaryWithout(t, tgt, "rl:{=}")}}, want)
		})
	})
}

// primaryWithout returns the address of a primary that does not serve key.
func primaryWithout(t *testing.T, tgt *servers.Target, key string) string {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: tgt.Addrs})
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
