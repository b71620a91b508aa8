package stores

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestClientSideCache: through clients of go-redis that cache replies, all decisions come from the
// server, while the clients answer the program's own reads from their caches.
func TestClientSideCache(t *testing.T) {
	t.Parallel()
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		addr := servers.Start(t, image).Addr
		control := servers.Connect(t, addr)
		for _, alone := range []bool{false, true} {
			t.Run(fmt.Sprintf("alone=%t", alone), func(t *testing.T) {
				opts := &serverstore.Options{Timeout: clients.Patient, NoBatching: alone}
				decideBesideCache(t, addr, control, opts)
			})
		}
		t.Run("no right to track", func(t *testing.T) {
			acl := clients.ACL(clients.DecisionRights)
			if err := control.Do(t.Context(), acl...).Err(); err != nil {
				t.Fatal(err)
			}
			_, store := cachingGoRedis(t, &redis.Options{Addr: addr, Username: "cacher",
				Password: "hunter2"}, &serverstore.Options{Timeout: clients.Patient})
			key := servers.FreshKey(t)
			clients.Ask(t, store, clients.Take(key))
			if n := clients.Recorded(t, store, key); n != 1 {
				t.Errorf("%d recorded, want 1", n)
			}
		})
	})
}

// cachingGoRedis returns a client with a cache, and a store on it.
func cachingGoRedis(
	t *testing.T, c *redis.Options, opts *serverstore.Options,
) (*redis.Client, ratelimit.Store) {
	t.Helper()
	c.ClientSideCacheConfig = &redis.ClientSideCacheConfig{}
	client := redis.NewClient(c)
	t.Cleanup(func() { client.Close() })
	store, err := redisstore.New(client, opts)
	if err != nil {
		t.Fatal(err)
	}
	return client, store
}

func decideBesideCache(
	t *testing.T, addr string, control *redis.Client, opts *serverstore.Options,
) {
	var caching [2]*redis.Client
	var stores [2]ratelimit.Store
	for i := range stores {
		caching[i], stores[i] = cachingGoRedis(t, &redis.Options{Addr: addr, PoolSize: 4}, opts)
	}

	// Callers use one limit up while others read and write a string on the same connections.
	const callers, calls = 4, 100 // of each client
	const most = callers * calls  // half of what they ask for
	limit := driver.Demand{Key: servers.FreshKey(t), N: 1,
		Algorithm: algorithm.SlidingLog(ratelimit.PerDay("day", most))}
	text := servers.FreshKey(t)
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for i := range stores {
		for range callers {
			wg.Go(func() {
				ctx := context.Background()
				for n := range calls {
					res, err := stores[i].Take(ctx, limit)
					if err != nil {
						t.Error(err)
						return
					}
					if res.Allowed {
						admitted.Add(1)
					}
					if n%10 == 0 {
						control.Set(ctx, text, n, 0)
					}
					caching[i].Get(ctx, text)
				}
			})
		}
	}
	wg.Wait()
	if n := admitted.Load(); n != most {
		t.Errorf("%d admitted, want %d", n, most)
	}

	// What one client records, the other finds at once.
	var before [2]redis.CSCStats
	for i, c := range caching {
		if before[i] = c.CSCStats(); before[i].Hits == 0 {
			t.Fatalf("the client's cache answered nothing (%+v): this test proves nothing",
				before[i])
		}
	}
	key := servers.FreshKey(t)
	for n := range int64(100) {
		clients.Ask(t, stores[n%2], clients.Take(key))
		for _, s := range stores {
			if got := clients.Recorded(t, s, key); got != n+1 {
				t.Fatalf("%d recorded, want %d", got, n+1)
			}
		}
	}
	for i, c := range caching {
		after := c.CSCStats()
		if after.Hits != before[i].Hits || after.Misses != before[i].Misses {
			t.Errorf("decisions changed the use of the cache from %+v to %+v", before[i], after)
		}
	}
}
