package cache

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestCacheRights opens stores as users with few rights. Without the right to track keys there is
// no cache; everything else works.
func TestCacheRights(t *testing.T) {
	t.Parallel()
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		admin := servers.Connect(t, server.Addr)
		for _, tt := range []struct {
			what, rights string
			any          bool // the client detects the kind of server
			enabled      bool
		}{
			{what: "the least rights", rights: clients.DecisionRights + " " + clients.CacheRights,
				enabled: true},
			{what: "the least rights, any server", rights: clients.DecisionRights + " " +
				clients.CacheRights, any: true, enabled: true},
			{what: "no tracking", rights: clients.DecisionRights},
			{what: "no caching", rights: clients.DecisionRights +
				" +client|tracking +multi +exec +eval_ro +evalsha_ro"},
			{what: "no transactions", rights: clients.DecisionRights +
				" +client|tracking +client|caching +exec +eval_ro +evalsha_ro", any: true},
			{what: "no end of transactions", rights: clients.DecisionRights +
				" +client|tracking +client|caching +multi +eval_ro +evalsha_ro"},
			{what: "no scripts that only read", rights: clients.DecisionRights +
				" +client|tracking +client|caching +multi +exec +evalsha_ro"},
			{what: "no known scripts that only read", rights: clients.DecisionRights +
				" +client|tracking +client|caching +multi +exec +eval_ro"},
			{what: "no tracking, any server", rights: clients.DecisionRights, any: true},
			{what: "all but tracking", rights: "+@all -client|tracking", any: true},
		} {
			t.Run(tt.what, func(t *testing.T) {
				if err := admin.Do(t.Context(), clients.ACL(tt.rights)...).Err(); err != nil {
					t.Fatal(err)
				}
				clients.EachCaching(t, func(t *testing.T, lib clients.Library) {
					d := clients.Dialing{Addrs: []string{server.Addr}, Username: "cacher",
						Password: "hunter2", Cluster: tt.any}
					opts := clients.CacheOptions{Age: time.Hour}
					clients.CheckCacheEnabled(t, lib.NewCache(t, d, opts), tt.enabled)
					if opts.Hasty = true; tt.enabled && !outlives(t, lib.NewCache(t, d, opts)) {
						t.Error("the cache is flushed after each keep-alive period")
					}
				})
			})
		}
	})
}

// outlives reports whether the connection of a store's cache outlives several keep-alive periods. A
// busy machine may delay an answer by more than one, but hardly three times in a row.
func outlives(t *testing.T, s clients.Caching) bool {
	t.Helper()
	for range 3 {
		_, _ = s.Take(t.Context(), clients.Take(servers.FreshKey(t))) // it connects
		before := s.Stats().Cache.Flushes
		time.Sleep(3 * openKeepAlive)
		if s.Stats().Cache.Flushes == before {
			return true
		}
	}
	return false
}

// TestCacheRightsOnCluster is the same on a cluster, whose clients also need the right to read the
// slots.
func TestCacheRightsOnCluster(t *testing.T) {
	t.Parallel()
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		cl := servers.StartCluster(t, image)
		for _, enabled := range []bool{true, false} {
			rights := clients.DecisionRights + " " + clients.ClusterRights
			if enabled {
				rights += " " + clients.CacheRights
			}
			for _, addr := range cl.Addrs() {
				if err := servers.Connect(t, addr).Do(t.Context(), clients.ACL(rights)...).
					Err(); err != nil {
					t.Fatal(err)
				}
			}
			clients.Each(t, func(t *testing.T, lib clients.Library) {
				d := clients.Dialing{Addrs: cl.Addrs(), Username: "cacher", Password: "hunter2",
					Cluster: true}
				if lib.Caching == nil {
					clients.Ask(t, lib.Client(t, d).
						NewStore(t, &serverstore.Options{Timeout: clients.Patient}),
						clients.Take(servers.FreshKey(t)))
					return
				}
				clients.CheckCacheEnabled(t,
					lib.NewCache(t, d, clients.CacheOptions{Age: time.Hour}), enabled)
			})
		}
	})
}

// TestCacheRightLost: a store whose user loses the right to track, and whose connections end, goes
// on without a cache. It caches again when the right returns.
func TestCacheRightLost(t *testing.T) {
	t.Parallel()
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server, cl := servers.Start(t, image), servers.StartCluster(t, image)
		for name, addrs := range map[string][]string{"single": {server.Addr},
			"cluster": cl.Addrs()} {
			all := clients.DecisionRights + " " + clients.CacheRights + " " + clients.ClusterRights
			// set changes the user's rights and ends its connections.
			set := func(t *testing.T, rights string) {
				t.Helper()
				for _, addr := range addrs {
					admin := servers.Connect(t, addr)
					if err := errors.Join(
						admin.Do(t.Context(), clients.ACL(rights)...).Err(),
						admin.Do(t.Context(), "CLIENT", "KILL", "USER", "cacher").Err(),
					); err != nil {
						t.Fatal(err)
					}
				}
			}
			clients.EachCaching(t, func(t *testing.T, lib clients.Library) {
				set(t, all)
				d := clients.Dialing{Addrs: addrs, Username: "cacher", Password: "hunter2",
					Cluster: name == "cluster"}
				s := lib.NewCache(t, d, clients.CacheOptions{Age: time.Hour})
				used := useUp(t, s)
				clients.WantCached(t, s, used)

				set(t, strings.ReplaceAll(all, "+client|tracking", ""))
				for range 8 { // on each server, whatever connections break meanwhile
					clients.Decided(t, s, clients.Take(servers.FreshKey(t)))
				}
				for i := range 60 {
					clients.WantRefused(t, s, used, ratelimit.SourceStore)
					if res := clients.Ask(t, s, clients.Take(servers.FreshKey(t))); !res.Allowed {
						t.Fatalf("%s: attempt %d: got %+v, want an admission", name, i, res)
					}
				}
				found, err := s.Probe(t.Context())
				if err != nil || !strings.Contains(strings.Join(found.Warnings, " "),
					"does not track") {
					t.Errorf("%s: probe got %+v, %v; want a warning about tracking", name, found,
						err)
				}

				set(t, all)
				clients.Decided(t, s, clients.Take(servers.FreshKey(t)))
				servers.Within(t, func() bool {
					res, err := s.Take(t.Context(), used)
					return err == nil && res.Source == ratelimit.SourceCache
				}, name+": no refusal is cached again")
			})
		}
	})
}

const openKeepAlive = 200 * time.Millisecond

// TestCacheWithoutHello: on a server that has only the older protocol, which has no push messages,
// the store works without a cache.
func TestCacheWithoutHello(t *testing.T) {
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image, "--rename-command", "HELLO", "HELLO-NO-MORE")
		clients.EachCaching(t, func(t *testing.T, lib clients.Library) {
			s := lib.NewCache(t, clients.Dialing{Addrs: []string{server.Addr}},
				clients.CacheOptions{Age: time.Hour})
			clients.CheckCacheEnabled(t, s, false)
		})
	})
}

// TestCacheOpenRefused: Open returns ErrUnavailable for a server that rejects the client or cannot
// be reached.
func TestCacheOpenRefused(t *testing.T) {
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		clients.EachCaching(t, func(t *testing.T, lib clients.Library) {
			for what, d := range map[string]clients.Dialing{
				"wrong password": {Addrs: []string{server.Addr}, Username: "nobody",
					Password: "hunter2"},
				"nobody listens": {Addrs: []string{"127.0.0.1:1"}},
				"no cluster":     {Addrs: []string{"127.0.0.1:1"}, Cluster: true},
			} {
				_, err := lib.OpenCache(d, clients.CacheOptions{})
				if !errors.Is(err, ratelimit.ErrUnavailable) {
					t.Errorf("%s: %v, want ErrUnavailable", what, err)
				}
				if err != nil && strings.Contains(err.Error(), "hunter2") {
					t.Errorf("%s: the error contains the password: %v", what, err)
				}
			}
		})
	})
}

// TestCacheInvalidationsPassedOn: the caller's own OnInvalidations is still called.
func TestCacheInvalidationsPassedOn(t *testing.T) {
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		clients.EachCachingOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			var heard atomic.Int64
			opts := serverstore.Options{Prefix: servers.UniquePrefix(), Timeout: clients.Patient}
			s := lib.NewCache(t, clients.To(tgt),
				clients.CacheOptions{Options: opts, Age: time.Hour,
					OnInvalidation: func() { heard.Add(1) }})
			d := useUp(t, s)
			before := heard.Load()
			d.Op = driver.OpReset
			clients.Ask(t, clients.CalmStore(t, tgt, &opts), d)
			servers.Within(t, func() bool { return heard.Load() > before },
				"OnInvalidations was not called")
			if stats := s.Stats().Cache; stats.Entries != 0 {
				t.Errorf("called before the cache dropped its entry: %+v", stats)
			}
		})
	})
}

// TestCacheClose closes stores in use. Waiting calls return, later calls return ErrUnavailable, and
// no goroutine stays.
func TestCacheClose(t *testing.T) {
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		clients.EachCachingOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			goroutines := runtime.NumGoroutine()
			for range 5 {
				opts := serverstore.Options{Prefix: servers.UniquePrefix(),
					Timeout: clients.Patient}
				s := lib.NewCache(t, clients.To(tgt),
					clients.CacheOptions{Options: opts, Age: time.Hour})
				d := useUp(t, s)
				var wg sync.WaitGroup
				begun := make(chan struct{}, 16)
				for c := range cap(begun) {
					wg.Go(func() {
						d := d
						d.Key += string(rune('a' + c%4))
						for first := true; ; first = false {
							_, err := s.Take(t.Context(), d)
							if first {
								begun <- struct{}{}
							}
							if err == nil {
								continue
							}
							if !errors.Is(err, ratelimit.ErrUnavailable) &&
								!errors.Is(err, ratelimit.ErrOutcomeUnknown) {
								t.Errorf("%v, want ErrUnavailable", err)
							}
							return
						}
					})
				}
				for range cap(begun) {
					<-begun
				}
				s.Close()
				wg.Wait()
				s.Close()
				for _, demand := range []driver.Demand{d,
					{Key: "other", Algorithm: clients.ThreeAnHour, N: 1}} {
					if _, err := s.Take(t.Context(), demand); !errors.Is(err,
						ratelimit.ErrUnavailable) || errors.Is(err, ratelimit.ErrOutcomeUnknown) {
						t.Errorf("%v, want ErrUnavailable", err)
					}
				}
				if err := s.TakeAll(t.Context(), []driver.Demand{d},
					make([]ratelimit.Result, 1)); !errors.Is(err, ratelimit.ErrUnavailable) {
					t.Errorf("TakeAll: %v, want ErrUnavailable", err)
				}
				if stats := s.Stats().Cache; stats.Entries != 0 || stats.Bytes != 0 {
					t.Errorf("got %+v, want no entry and no bytes", stats)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), servers.FaultTimeout)
			defer cancel()
			if err := servers.Poll(ctx,
				func() (bool, error) {
					return runtime.NumGoroutine() <= goroutines,
						nil
				}); err != nil {
				t.Errorf("%d goroutines, want at most %d", runtime.NumGoroutine(), goroutines)
			}
		})
	})
}
