package integration

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
	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

// What the packages' documentation says that a user needs.
const (
	decisionRights = "+evalsha +eval +time +getrange +set +setrange +pexpireat +pexpire +del"
	cacheRights    = "+client|tracking"
	clusterRights  = "+cluster|slots +cluster|shards"
)

// TestCacheRights opens stores as users with few rights. Without the tracking there is no cache, and all the rest is as ever.
func TestCacheRights(t *testing.T) {
	t.Parallel()
	eachImage(t, "redis:8", func(t *testing.T, image string) {
		server := startServer(t, image)
		admin := newCalm(t, server.addr)
		for _, tt := range []struct {
			what, rights string
			any          bool // the client is to find out what kind of server it is
			enabled      bool
		}{
			{what: "the least rights", rights: decisionRights + " " + cacheRights, enabled: true},
			{what: "the least rights, any server", rights: decisionRights + " " + cacheRights, any: true, enabled: true},
			{what: "no tracking", rights: decisionRights},
			{what: "no tracking, any server", rights: decisionRights, any: true},
			{what: "all but tracking", rights: "+@all -client|tracking", any: true},
		} {
			t.Run(tt.what, func(t *testing.T) {
				if err := admin.Do(t.Context(), aclOf(tt.rights)...).Err(); err != nil {
					t.Fatal(err)
				}
				eachCaching(t, func(t *testing.T, lib library) {
					d := dialing{addrs: []string{server.addr}, username: "cacher", password: "hunter2", cluster: tt.any}
					s := lib.newCache(t, d, cacheOptions{age: time.Hour, hasty: true})
					checkCacheEnabled(t, s, tt.enabled)
					if tt.enabled { // the connection outlives its signs of life
						time.Sleep(3 * openKeepAlive)
						if stats := s.CacheStats(); stats.Flushes != 0 {
							t.Errorf("%+v", stats)
						}
					}
				})
			})
		}
	})
}

// TestCacheRightsOnCluster is the same on a cluster, whose client also asks who serves what.
func TestCacheRightsOnCluster(t *testing.T) {
	t.Parallel()
	eachImage(t, "redis:8", func(t *testing.T, image string) {
		cl := startCluster(t, image)
		for _, enabled := range []bool{true, false} {
			rights := decisionRights + " " + clusterRights
			if enabled {
				rights += " " + cacheRights
			}
			for _, addr := range cl.addrs() {
				if err := newCalm(t, addr).Do(t.Context(), aclOf(rights)...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			eachLibrary(t, func(t *testing.T, lib library) {
				d := dialing{addrs: cl.addrs(), username: "cacher", password: "hunter2", cluster: true}
				if lib.caching == nil {
					ask(t, lib.client(t, d).newStore(t, &redisstore.Options{Timeout: patient}), take(freshKey(t)))
					return
				}
				checkCacheEnabled(t, lib.newCache(t, d, cacheOptions{age: time.Hour}), enabled)
			})
		}
	})
}

// aclOf makes the user "cacher", whose password is "hunter2", one with these rights.
func aclOf(rights string) []any {
	args := []any{"ACL", "SETUSER", "cacher", "reset", "on", ">hunter2", "~rl:*"}
	for rule := range strings.FieldsSeq(rights) {
		args = append(args, rule)
	}
	return args
}

const openKeepAlive = 200 * time.Millisecond

// checkCacheEnabled holds that s says whether it caches, does so or not, and decides rightly anyway.
func checkCacheEnabled(t *testing.T, s caching, enabled bool) {
	t.Helper()
	found, err := s.probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if warned := strings.Contains(strings.Join(found.Warnings, " "), "does not track"); warned == enabled {
		t.Errorf("warnings: %q", found.Warnings)
	}
	d := ratelimit.Demand{Key: freshKey(t), Algorithm: threeAnHour, N: 1}
	for i := range 10 {
		res := ask(t, s, d)
		if res.Allowed != (i < 3) || (res.Source == ratelimit.SourceCache) != (enabled && i > 3) {
			t.Errorf("attempt %d: %+v", i, res)
		}
	}
	stats := s.CacheStats()
	if stats.Enabled != enabled || stats.Refusals > 0 != enabled || stats.Stored > 0 != enabled || stats.Entries > 0 != enabled {
		t.Errorf("%+v", stats)
	}
}

// TestCacheWithoutHello opens a store on a server that speaks the older protocol only, in which nothing can be told unasked.
func TestCacheWithoutHello(t *testing.T) {
	eachImage(t, "redis:8", func(t *testing.T, image string) {
		server := startServer(t, image, "--rename-command", "HELLO", "HELLO-NO-MORE")
		eachCaching(t, func(t *testing.T, lib library) {
			s := lib.newCache(t, dialing{addrs: []string{server.addr}}, cacheOptions{age: time.Hour})
			checkCacheEnabled(t, s, false)
		})
	})
}

// TestCacheOpenRefused holds that a server that does not let the client in, or cannot be reached, is ErrUnavailable.
func TestCacheOpenRefused(t *testing.T) {
	eachImage(t, "redis:8", func(t *testing.T, image string) {
		server := startServer(t, image)
		eachCaching(t, func(t *testing.T, lib library) {
			for what, d := range map[string]dialing{
				"wrong password": {addrs: []string{server.addr}, username: "nobody", password: "hunter2"},
				"nobody listens": {addrs: []string{"127.0.0.1:1"}},
				"no cluster":     {addrs: []string{"127.0.0.1:1"}, cluster: true},
			} {
				_, err := lib.openCache(d, cacheOptions{})
				if !errors.Is(err, ratelimit.ErrUnavailable) {
					t.Errorf("%s: %v, want ErrUnavailable", what, err)
				}
				if err != nil && strings.Contains(err.Error(), "hunter2") {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	})
}

// TestCacheInvalidationsPassedOn holds that the caller's own OnInvalidations is still called.
func TestCacheInvalidationsPassedOn(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		eachCaching(t, func(t *testing.T, lib library) {
			var heard atomic.Int64
			opts := redisstore.Options{Prefix: uniquePrefix(), Timeout: patient}
			s := lib.newCache(t, tgt.dialing(), cacheOptions{Options: opts, age: time.Hour, onInvalidation: func() { heard.Add(1) }})
			d := useUp(t, s)
			before := heard.Load()
			d.Op = ratelimit.Reset
			ask(t, calmStore(t, tgt, &opts), d)
			within(t, func() bool { return heard.Load() > before }, "not called")
			if stats := s.CacheStats(); stats.Entries != 0 {
				t.Errorf("%+v: called before the cache had heard", stats)
			}
		})
	})
}

// TestCacheClose closes stores while they are used. Whoever waits is answered; then there is nothing but ErrUnavailable, and no goroutine stays.
func TestCacheClose(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		eachCaching(t, func(t *testing.T, lib library) {
			goroutines := runtime.NumGoroutine()
			for range 5 {
				opts := redisstore.Options{Prefix: uniquePrefix(), Timeout: patient}
				s := lib.newCache(t, tgt.dialing(), cacheOptions{Options: opts, age: time.Hour})
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
							if !errors.Is(err, ratelimit.ErrUnavailable) && !errors.Is(err, ratelimit.ErrOutcomeUnknown) {
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
				for _, demand := range []ratelimit.Demand{d, {Key: "other", Algorithm: threeAnHour, N: 1}} {
					if _, err := s.Take(t.Context(), demand); !errors.Is(err, ratelimit.ErrUnavailable) || errors.Is(err, ratelimit.ErrOutcomeUnknown) {
						t.Errorf("%v, want ErrUnavailable", err)
					}
				}
				if err := s.TakeAll(t.Context(), []ratelimit.Demand{d}, make([]ratelimit.Result, 1)); !errors.Is(err, ratelimit.ErrUnavailable) {
					t.Errorf("TakeAll: %v, want ErrUnavailable", err)
				}
				if stats := s.CacheStats(); stats.Entries != 0 || stats.Bytes != 0 {
					t.Errorf("%+v", stats)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), faultTimeout)
			defer cancel()
			if err := poll(ctx, func() (bool, error) { return runtime.NumGoroutine() <= goroutines, nil }); err != nil {
				t.Errorf("%d goroutines, were %d", runtime.NumGoroutine(), goroutines)
			}
		})
	})
}
