package stores

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	rueidisstore "github.com/truewindow/ratelimit/backend/rueidis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	valkeystore "github.com/truewindow/ratelimit/backend/valkey"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// Clients as programs wrap them for metrics and tracing.
type (
	tracedOne     struct{ *redis.Client }
	tracedCluster struct{ *redis.ClusterClient }
	tracedRing    struct{ *redis.Ring }
	tracedRueidis struct{ rueidis.Client }
	tracedValkey  struct{ valkey.Client }
)

// A shardedStore opens a store on a cluster.
type shardedStore struct {
	name  string
	plain bool // a client for one server
	open  func(t *testing.T, d clients.Dialing, opts *serverstore.Options) clients.Probing
}

func goRedisStore(
	name string, plain bool, wrap func(clients.Dialing) redis.UniversalClient,
) shardedStore {
	return shardedStore{name, plain,
		func(t *testing.T, d clients.Dialing, opts *serverstore.Options) clients.Probing {
			c := wrap(d)
			t.Cleanup(func() { c.Close() })
			return clients.GoRedis(c).NewStore(t, opts)
		}}
}

func one(d clients.Dialing) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: d.Addrs[0], Dialer: d.Dial})
}

func cluster(d clients.Dialing) *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: d.Addrs, Dialer: d.Dial})
}

func ring(d clients.Dialing) *redis.Ring {
	return redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"a": d.Addrs[0]}, Dialer: d.Dial,
	})
}

// shardedStores are stores on each client, as it is and wrapped.
var shardedStores = []shardedStore{
	goRedisStore("Client", true, func(d clients.Dialing) redis.UniversalClient { return one(d) }),
	goRedisStore("Client, wrapped", true,
		func(d clients.Dialing) redis.UniversalClient { return tracedOne{one(d)} }),
	goRedisStore("Client, wrapped by pointer", true,
		func(d clients.Dialing) redis.UniversalClient { return &tracedOne{one(d)} }),
	goRedisStore("Ring", true, func(d clients.Dialing) redis.UniversalClient { return ring(d) }),
	goRedisStore("Ring, wrapped", true,
		func(d clients.Dialing) redis.UniversalClient { return tracedRing{ring(d)} }),
	goRedisStore("ClusterClient", false,
		func(d clients.Dialing) redis.UniversalClient { return cluster(d) }),
	goRedisStore("ClusterClient, wrapped", false,
		func(d clients.Dialing) redis.UniversalClient { return tracedCluster{cluster(d)} }),
	goRedisStore("ClusterClient, wrapped by pointer", false,
		func(d clients.Dialing) redis.UniversalClient { return &tracedCluster{cluster(d)} }),
	rueidisSharded("rueidis", true, false), rueidisSharded("rueidis, wrapped", true, true),
	rueidisSharded("rueidis cluster", false, false),
	rueidisSharded("rueidis cluster, wrapped", false, true),
	valkeySharded("valkey-go", true, false), valkeySharded("valkey-go, wrapped", true, true),
	valkeySharded("valkey-go cluster", false, false),
	valkeySharded("valkey-go cluster, wrapped", false, true),
	{"rueidis, cached", true,
		func(t *testing.T, d clients.Dialing, opts *serverstore.Options) clients.Probing {
			return clients.Libraries[1].Caching(d).Store(t, opts)
		}},
	{"valkey-go, cached", true,
		func(t *testing.T, d clients.Dialing, opts *serverstore.Options) clients.Probing {
			return clients.Libraries[2].Caching(d).Store(t, opts)
		}},
}

func rueidisSharded(name string, plain, wrapped bool) shardedStore {
	return shardedStore{name, plain,
		func(t *testing.T, d clients.Dialing, opts *serverstore.Options) clients.Probing {
			d.Cluster = !plain
			c, err := rueidis.NewClient(d.RueidisOption())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			if wrapped {
				c = tracedRueidis{c}
			}
			s, err := rueidisstore.New(c, opts)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}}
}

func valkeySharded(name string, plain, wrapped bool) shardedStore {
	return shardedStore{name, plain,
		func(t *testing.T, d clients.Dialing, opts *serverstore.Options) clients.Probing {
			d.Cluster = !plain
			c, err := valkey.NewClient(d.ValkeyOption())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			if wrapped {
				c = tracedValkey{c}
			}
			s, err := valkeystore.New(c, opts)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}}
}

// TestSharded: a server that refuses keys of several slots in one script decides the calls of many
// callers exactly, through a client for one server as through one for a cluster, wrapped or not. It
// refuses a batch once for each batch in flight, and no caller sees it. Probe warns of such a
// server, and fails if it does not have all keys.
func TestSharded(t *testing.T) {
	t.Parallel()
	servers.EachImage(t, func(t *testing.T, image string) {
		t.Parallel()
		single := servers.StartClusterOf(t, image, 1).Addrs()
		three := servers.StartCluster(t, image).Addrs()
		for _, store := range shardedStores {
			t.Run(store.name, func(t *testing.T) {
				if !store.plain {
					store.decides(t, three)
				}
				store.decides(t, single)
				store.probes(t, single, three)
			})
		}
	})
}

// decides makes demands alone and at once, and counts what is admitted.
func (store shardedStore) decides(t *testing.T, addrs []string) {
	const keys, limit = 20, 20
	callers := depth.Of(32, 64)
	h := newHoldup()
	s := store.open(t, clients.Dialing{Addrs: addrs, Dial: h.dial}, &serverstore.Options{
		Prefix: servers.UniquePrefix(), Timeout: clients.Patient,
	})
	log := algorithm.SlidingLog(ratelimit.PerHour("hour", limit))
	demand := func(key int) driver.Demand {
		return driver.Demand{Key: fmt.Sprint("key", key), Algorithm: log, N: 1}
	}
	var admitted [keys]atomic.Int64
	take := func(key int) {
		res, err := s.Take(t.Context(), demand(key))
		if err != nil {
			t.Error(err)
		} else if res.Allowed {
			admitted[key].Add(1)
		}
	}
	for key := range keys {
		take(key)
	}
	if n := h.crossed.Load(); n > 0 {
		t.Errorf("%d lone calls were refused", n)
	}
	several := func() {
		err := s.TakeAll(t.Context(), []driver.Demand{demand(0), demand(1)},
			make([]ratelimit.Result, 2))
		if !errors.Is(err, errors.ErrUnsupported) || errors.Is(err, ratelimit.ErrUnavailable) {
			t.Errorf("a TakeAll of two slots: %v", err)
		}
	}
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := range keys {
				take((caller + i) % keys)
				if i == keys/2 && caller%8 == 0 {
					several()
				}
			}
		})
	}
	wg.Wait()
	for key := range keys {
		if n := admitted[key].Load(); n != limit {
			t.Errorf("key %d: %d admitted, want %d", key, n, limit)
		}
	}
	several()
	if n := h.crossed.Load(); store.plain && n > int64(2+callers/8+1) || !store.plain && n > 0 {
		t.Errorf("the server refused %d scripts", n)
	}
}

// probes probes a cluster of one shard, and each shard of one of three.
func (store shardedStore) probes(t *testing.T, single, three []string) {
	opts := &serverstore.Options{Timeout: clients.Patient}
	found, err := store.open(t, clients.Dialing{Addrs: single}, opts).Probe(t.Context())
	warned := strings.Contains(strings.Join(found.Warnings, " "), "The server is a cluster")
	if err != nil || warned != store.plain {
		t.Errorf("a cluster of one shard: %+v, %v", found, err)
	}
	if !store.plain {
		if found, err := store.open(t, clients.Dialing{Addrs: three}, opts).Probe(
			t.Context()); err != nil || len(found.Warnings) > 0 {
			t.Errorf("a cluster: %+v, %v", found, err)
		}
		return
	}
	for _, addr := range three {
		s := store.open(t, clients.Dialing{Addrs: []string{addr}}, opts)
		if found, err := s.Probe(t.Context()); !errors.Is(err, errors.ErrUnsupported) ||
			!strings.Contains(fmt.Sprint(err), "the server is a node of a cluster; use ") {
			t.Errorf("a node of a cluster: %+v, %v", found, err)
		}
	}
}

// TestShardedProbeRights: a user with the least rights is enough for Probe to tell a cluster of one
// shard from one of several.
func TestShardedProbeRights(t *testing.T) {
	t.Parallel()
	servers.EachImage(t, func(t *testing.T, image string) {
		for _, nodes := range []int{1, 2} {
			for _, addr := range servers.StartClusterOf(t, image, nodes).Addrs() {
				admin := redis.NewClient(&redis.Options{Addr: addr})
				defer admin.Close()
				if err := admin.Do(t.Context(),
					clients.ACL(clients.DecisionRights)...).Err(); err != nil {
					t.Fatal(err)
				}
				clients.EachOn(t, image, func(t *testing.T, lib clients.Library) {
					s := lib.Client(t, clients.Dialing{
						Addrs: []string{addr}, Username: "cacher", Password: "hunter2",
					}).NewStore(t, &serverstore.Options{Timeout: clients.Patient})
					found, err := s.Probe(t.Context())
					if nodes > 1 && !errors.Is(err, errors.ErrUnsupported) ||
						nodes == 1 && (err != nil || len(found.Warnings) != 2) {
						t.Errorf("%d shards: %+v, %v", nodes, found, err)
					}
				})
			}
		}
	})
}

// TestHiddenClient: New refuses a client whose type does not show what it is.
func TestHiddenClient(t *testing.T) {
	c := redis.NewClient(&redis.Options{})
	defer c.Close()
	_, err := redisstore.New(struct{ redis.UniversalClient }{c}, nil)
	if !errors.Is(err, ratelimit.ErrInvalid) {
		t.Error(err)
	}
}

// TestShardedDeadline: the server does not answer after it has refused a batch. Each caller returns
// in time, none of the calls is recorded twice, and none whose error says that it was not.
func TestShardedDeadline(t *testing.T) {
	t.Parallel()
	servers.EachImage(t, func(t *testing.T, image string) {
		addrs := servers.StartClusterOf(t, image, 1).Addrs()
		clients.EachOn(t, image, func(t *testing.T, lib clients.Library) {
			h := newHoldup()
			opts := &serverstore.Options{Prefix: servers.UniquePrefix(), Timeout: time.Second}
			s := lib.Client(t, clients.Dialing{Addrs: addrs, Dial: h.dial}).NewStore(t, opts)
			if _, err := s.Take(t.Context(), clients.Take("first")); err != nil {
				t.Fatal(err)
			}
			outcomes := make([]outcome, 24)
			var all, waiting sync.WaitGroup
			take := func(i int) {
				waiting.Add(1)
				ctx := &arriving{Context: t.Context(), arrived: waiting.Done}
				all.Go(func() {
					key := fmt.Sprint("key", i)
					res, err := s.Take(ctx, clients.Take(key))
					outcomes[i] = outcome{key, res, err}
				})
			}
			open := h.close()
			take(0)
			servers.Within(t, func() bool { return h.held.Load() > 0 }, "a call")
			for i := range outcomes[1:] {
				take(1 + i)
			}
			waiting.Wait()
			again := func() {}
			h.onCrossed = sync.OnceFunc(func() { again = h.close() })
			open()
			all.Wait()
			if again(); h.crossed.Load() == 0 {
				t.Error("no batch was refused: this test proves nothing")
			}
			reader := lib.Client(t, clients.Dialing{Addrs: addrs}).NewStore(t,
				&serverstore.Options{Prefix: opts.Prefix, Timeout: clients.Patient})
			failed := 0
			for _, o := range outcomes {
				n := clients.Recorded(t, reader, o.key)
				switch {
				case o.err == nil && n != 1,
					errors.Is(o.err, ratelimit.ErrOutcomeUnknown) && n > 1,
					o.err != nil && !errors.Is(o.err, ratelimit.ErrOutcomeUnknown) && n > 0,
					o.err != nil && !errors.Is(o.err, context.DeadlineExceeded):
					t.Errorf("%s: %d recorded, %v", o.key, n, o.err)
				}
				if o.err != nil {
					failed++
				}
			}
			if failed == 0 {
				t.Error("all calls were answered: this test proves nothing")
			}
		})
	})
}
