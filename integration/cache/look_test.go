package cache

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// A lookHook dials connections that call a function before a look is sent: the read of a refused
// state with which a store makes the server track it.
type lookHook struct {
	before func(conn net.Conn) // called once, before the next look; may be nil
	mu     sync.Mutex
}

func (h *lookHook) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &hookedConn{conn, h}, nil
}

func (h *lookHook) set(before func(net.Conn)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before = before
}

type hookedConn struct {
	net.Conn
	hook *lookHook
}

func (c *hookedConn) Write(b []byte) (int, error) {
	c.hook.mu.Lock()
	if before := c.hook.before; before != nil && bytes.Contains(b, []byte("CACHING")) {
		c.hook.before = nil
		before(c.Conn)
	}
	c.hook.mu.Unlock()
	return c.Conn.Write(b)
}

// refuseOnce uses up a limit of three on a fresh key and returns the demand after the server has
// refused it once.
func refuseOnce(t testing.TB, s ratelimit.Store) driver.Demand {
	t.Helper()
	d := driver.Demand{Key: servers.FreshKey(t), Algorithm: clients.ThreeAnHour, N: 3}
	if res := clients.Ask(t, s, d); !res.Allowed {
		t.Fatalf("got %+v, want an admission", res)
	}
	d.N = 1
	clients.WantRefused(t, s, d, ratelimit.SourceStore)
	return d
}

// TestLookUnknownScript: a look works on a server that has lost its scripts since the refusal.
func TestLookUnknownScript(t *testing.T) {
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		admin := servers.Connect(t, server.Addr)
		clients.EachCaching(t, func(t *testing.T, lib clients.Library) {
			var h lookHook
			d := clients.Dialing{Addrs: []string{server.Addr}, Dial: h.dial}
			s := lib.NewCache(t, d, clients.CacheOptions{Age: time.Hour})
			var flushed atomic.Bool
			h.set(func(net.Conn) {
				flushed.Store(servers.DropScripts(context.WithoutCancel(t.Context()), admin) == nil)
			})
			full := refuseOnce(t, s)
			servers.Within(t, func() bool { return s.Stats().Cache.Stored == 1 },
				"the refusal was not cached")
			clients.WantRefused(t, s, full, ratelimit.SourceCache)
			if !flushed.Load() {
				t.Error("the server did not lose its scripts: this test proves nothing")
			}
			wantSeen(t, s, admin, full)
		})
	})
}

// wantSeen checks that s notices when another client deletes the state of d, whose refusal is
// cached.
func wantSeen(t testing.TB, s clients.Caching, admin redis.UniversalClient, d driver.Demand) {
	t.Helper()
	before := s.Stats().Cache.Invalidations
	if err := admin.Del(t.Context(), "rl:{="+d.Key+"}:hour:"+d.Algorithm.Name()).Err(); err != nil {
		t.Fatal(err)
	}
	servers.Within(t, func() bool { return s.Stats().Cache.Invalidations > before },
		"the server did not report the change")
	servers.Within(t, func() bool { return clients.Decided(t, s, d).Allowed },
		"still refused after a Reset")
}

// TestLookLost: if the connection is cut when a look is sent, the refusal is not cached; the next
// one is.
func TestLookLost(t *testing.T) {
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		clients.EachCaching(t, func(t *testing.T, lib clients.Library) {
			var h lookHook
			d := clients.Dialing{Addrs: []string{server.Addr}, Dial: h.dial}
			s := lib.NewCache(t, d, clients.CacheOptions{Age: time.Hour})
			var cut atomic.Bool
			h.set(func(conn net.Conn) { conn.Close(); cut.Store(true) })
			full := refuseOnce(t, s)
			servers.Within(t, func() bool { return cut.Load() && s.Stats().Cache.Entries == 0 },
				"the entry of a lost look was not removed")
			if stats := s.Stats().Cache; stats.Stored != 0 {
				t.Errorf("got %+v, want nothing stored", stats)
			}
			servers.Within(t,
				func() bool { return clients.Decided(t, s, full).Source == ratelimit.SourceCache },
				"the next refusal was not cached")
		})
	})
}

// TestLookAtMovedSlot: if the slot moves between a refusal and the look, the look follows the
// redirect, and the new server reports changes.
func TestLookAtMovedSlot(t *testing.T) {
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		cl := servers.StartCluster(t, image)
		clients.EachCaching(t, func(t *testing.T, lib clients.Library) {
			var h lookHook
			s := lib.NewCache(t, clients.Dialing{Addrs: cl.Addrs(), Cluster: true, Dial: h.dial},
				clients.CacheOptions{Age: time.Hour})
			admin := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cl.Addrs()})
			defer admin.Close()
			for range 5 {
				var moved atomic.Bool
				d := driver.Demand{Key: servers.FreshKey(t),
					Algorithm: clients.ThreeAnHour, N: 3}
				clients.Ask(t, s, d)
				h.set(func(net.Conn) { moveSlot(t, admin, "{="+d.Key+"}"); moved.Store(true) })
				d.N = 1
				stored := s.Stats().Cache.Stored
				clients.WantRefused(t, s, d, ratelimit.SourceStore)
				servers.Within(t,
					func() bool { return moved.Load() && s.Stats().Cache.Stored == stored+1 },
					"not cached")
				clients.WantRefused(t, s, d, ratelimit.SourceCache)
				wantSeen(t, s, admin, d)
			}
		})
	})
}

// moveSlot moves the slot of key and its keys to another primary. Any goroutine may call it.
func moveSlot(t *testing.T, admin *redis.ClusterClient, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if err := move(ctx, admin, key); err != nil {
		t.Error(err)
	}
}

func move(ctx context.Context, admin *redis.ClusterClient, key string) error {
	slot := int(admin.ClusterKeySlot(ctx, key).Val())
	var from, to *redis.Client
	var all []*redis.Client
	var mu sync.Mutex
	if err := admin.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		own, err := node.Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return err
		}
		shards, err := node.ClusterShards(ctx).Result()
		mu.Lock()
		defer mu.Unlock()
		all = append(all, node)
		has := false
		for _, shard := range shards {
			owns := slices.ContainsFunc(shard.Nodes, func(n redis.Node) bool { return n.ID == own })
			has = has || owns && slices.ContainsFunc(shard.Slots, func(r redis.SlotRange) bool {
				return r.Start <= int64(slot) && int64(slot) <= r.End
			})
		}
		switch {
		case has:
			from = node
		case to == nil:
			to = node
		}
		return err
	}); err != nil {
		return err
	}
	if from == nil || to == nil {
		return fmt.Errorf("no primary has slot %d, or no other primary exists", slot)
	}
	fromID, toID := from.Do(ctx, "CLUSTER", "MYID").Val(), to.Do(ctx, "CLUSTER", "MYID").Val()
	host, port, err := net.SplitHostPort(to.Options().Addr)
	if err != nil {
		return err
	}
	if err := to.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID).Err(); err != nil {
		return err
	}
	if err := from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID).Err(); err != nil {
		return err
	}
	for {
		keys, err := from.ClusterGetKeysInSlot(ctx, slot, 100).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		for _, key := range keys { // a key that has expired is not an error
			if err := from.Migrate(ctx, host, port, key, 0, servers.FaultTimeout).
				Err(); err != nil {
				return err
			}
		}
	}
	for _, node := range append([]*redis.Client{to, from}, all...) {
		if err := node.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", toID).Err(); err != nil {
			return err
		}
	}
	return nil
}

// TestAdmittedTracksNothing: a server tracks no state for admitted demands, and one for each
// refused demand.
func TestAdmittedTracksNothing(t *testing.T) {
	servers.EachImage(t, func(t *testing.T, image string) {
		server := servers.Start(t, image)
		admin := servers.Connect(t, server.Addr)
		tracked := func() string {
			info, err := admin.InfoMap(t.Context(), "stats").Result()
			if err != nil {
				t.Fatal(err)
			}
			return info["Stats"]["tracking_total_keys"]
		}
		clients.EachCachingOn(t, image, func(t *testing.T, lib clients.Library) {
			opts := serverstore.Options{Prefix: servers.UniquePrefix(), Timeout: clients.Patient}
			s := lib.NewCache(t, clients.Dialing{Addrs: []string{server.Addr}},
				clients.CacheOptions{Options: opts, Age: time.Hour})
			for i := range 500 {
				d := driver.Demand{Key: fmt.Sprint("k", i%100),
					Algorithm: algorithm.SlidingLog(ratelimit.PerHour("hour", 5)), N: 1}
				if res := clients.Ask(t, s, d); !res.Allowed {
					t.Fatalf("got %+v, want an admission", res)
				}
			}
			if n := tracked(); n != "0" {
				t.Errorf("%s states are tracked, want none", n)
			}
			useUp(t, s)
			if n := tracked(); n != "1" {
				t.Errorf("%s states are tracked, want 1, that of the refusal", n)
			}
			if err := admin.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		})
	})
}
