package integration

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A target is a running server or cluster that the tests share. Each test keeps to keys of its own.
type target struct {
	name    string // such as "redis:7" or "redis:7 cluster"
	image   string // or "" for a server that was given
	cluster bool
	addrs   []string // one, or some nodes of the cluster
}

// eachTarget runs f, as a subtest, on every server and every cluster.
func eachTarget(t *testing.T, f func(t *testing.T, tgt *target)) {
	t.Helper()
	eachOf(t, func(*sharedTarget) bool { return true }, f)
}

func eachOf(t *testing.T, wanted func(*sharedTarget) bool, f func(t *testing.T, tgt *target)) {
	t.Helper()
	if noServers != "" {
		skip(t, noServers)
	}
	for _, s := range allTargets() {
		if !wanted(&s) {
			continue
		}
		t.Run(s.testName(), func(t *testing.T) {
			f(t, s.shared(t))
		})
	}
}

// eachOwnTarget runs f with every library on every server and every cluster, each of them f's own, and all beside each other. Servers that were given
// are shared, and used one after the other.
func eachOwnTarget(t *testing.T, f func(t *testing.T, tgt *target, lib library)) {
	t.Helper()
	if noServers != "" {
		skip(t, noServers)
	}
	for _, s := range allTargets() {
		t.Run(s.testName(), func(t *testing.T) {
			eachLibrary(t, func(t *testing.T, lib library) {
				if s.own == nil {
					f(t, s.shared(t), lib)
					return
				}
				t.Parallel()
				f(t, s.own(t), lib)
			})
		})
	}
}

// eachServer is eachTarget for what a cluster does as any server does: clusters are left out but in a full run.
func eachServer(t *testing.T, f func(t *testing.T, tgt *target)) {
	t.Helper()
	eachOf(t, func(tgt *sharedTarget) bool { return full || !tgt.cluster }, f)
}

// client returns a new client, closed at the end of the test.
func (tgt *target) client(t testing.TB) redis.UniversalClient {
	t.Helper()
	c := tgt.open()
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Error(err)
		}
	})
	return c
}

// open returns a new client that the caller closes.
func (tgt *target) open() redis.UniversalClient {
	if tgt.cluster {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: tgt.addrs})
	}
	return redis.NewClient(&redis.Options{Addr: tgt.addrs[0]})
}

// dropScripts makes the server forget all scripts; in a cluster, each primary.
func dropScripts(ctx context.Context, c redis.UniversalClient) error {
	if cc, ok := c.(*redis.ClusterClient); ok {
		return cc.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return node.ScriptFlush(ctx).Err()
		})
	}
	return c.ScriptFlush(ctx).Err()
}

// sharedTarget starts its target when a test first asks for it.
type sharedTarget struct {
	name    string
	cluster bool
	get     func() (*target, error)
	own     func(t testing.TB) *target // starts one like it for a test alone; nil for a server that was given
}

func (s *sharedTarget) testName() string {
	return strings.NewReplacer(" ", "-", "/", "-").Replace(s.name)
}

func (s *sharedTarget) shared(t testing.TB) *target {
	t.Helper()
	tgt, err := s.get()
	if err != nil {
		t.Fatal(err)
	}
	ran.add(tgt.name)
	return tgt
}

// allTargets are the servers given by address or, if there are none, two of each image.
var allTargets = sync.OnceValue(func() []sharedTarget {
	var all []sharedTarget
	add := func(name string, start func() (*target, error), own func(testing.TB) *target) {
		all = append(all, sharedTarget{name, strings.HasSuffix(name, " cluster"), sync.OnceValues(start), own})
	}
	if given := givenAddresses(); len(given) > 0 {
		for _, g := range given {
			add(g.name, func() (*target, error) { return findTarget(g.name, g.addr) }, nil)
		}
		return all
	}
	for _, image := range images {
		add(image, func() (*target, error) {
			s, err := newServer(image)
			if err != nil {
				return nil, err
			}
			shared.add(s.close)
			return &target{name: image, image: image, addrs: []string{s.addr}}, nil
		}, func(t testing.TB) *target {
			return &target{name: image, image: image, addrs: []string{startServer(t, image).addr}}
		})
		name := image + " cluster"
		add(name, func() (*target, error) {
			c, err := newCluster(image, clusterPrimaries)
			if err != nil {
				return nil, err
			}
			shared.add(c.close)
			return &target{name: name, image: image, cluster: true, addrs: c.addrs()}, nil
		}, func(t testing.TB) *target {
			return &target{name: name, image: image, cluster: true, addrs: startCluster(t, image).addrs()}
		})
	}
	return all
})

type given struct{ name, addr string }

func givenAddresses() []given {
	var all []given
	for _, g := range []given{{"given redis", "RATELIMIT_REDIS_ADDR"}, {"given valkey", "RATELIMIT_VALKEY_ADDR"}} {
		if addr := os.Getenv(g.addr); addr != "" {
			all = append(all, given{g.name, addr})
		}
	}
	return all
}

// findTarget asks the server at addr whether it is a node of a cluster.
func findTarget(name, addr string) (*target, error) {
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	info, err := c.Info(context.Background(), "cluster").Result()
	if err != nil {
		return nil, err
	}
	return &target{name: name, cluster: strings.Contains(info, "cluster_enabled:1"), addrs: []string{addr}}, nil
}

// shared closes at the end of the run what the tests share.
var shared closers

type closers struct {
	mu  sync.Mutex
	all []func() error
}

func (c *closers) add(f func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, f)
}

func closeShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	var errs []error
	for _, f := range shared.all {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}
