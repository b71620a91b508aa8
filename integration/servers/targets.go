package servers

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// A Target is a running server or cluster that tests share. Each test uses its own keys.
type Target struct {
	Name    string // such as "redis:7" or "redis:7 cluster"
	Image   string // "" for a server given by address
	Cluster bool
	Addrs   []string // one, or some nodes of the cluster
}

// EachTarget runs f, as a subtest, on every server and a cluster of the newest, in a full run on
// every cluster.
func EachTarget(t *testing.T, f func(t *testing.T, tgt *Target)) {
	t.Helper()
	eachOf(t, func(tgt *sharedTarget) bool {
		return depth.Full || !tgt.cluster || tgt.name == Newest()+" cluster"
	}, f)
}

func eachOf(t *testing.T, wanted func(*sharedTarget) bool, f func(t *testing.T, tgt *Target)) {
	t.Helper()
	needServers(t)
	for _, s := range allTargets() {
		if !wanted(&s) {
			continue
		}
		t.Run(s.testName(), func(t *testing.T) {
			f(t, s.shared(t))
		})
	}
}

// EachOwnTarget runs f, as a subtest, for every kind of server and cluster. start makes the test
// parallel and starts a target for it alone. A server given by address is shared, so its tests run
// one after the other.
func EachOwnTarget(
	t *testing.T, f func(t *testing.T, kind *Target, start func(*testing.T) *Target),
) {
	t.Helper()
	needServers(t)
	for _, s := range allTargets() {
		t.Run(s.testName(), func(t *testing.T) {
			f(t, s.kind(t), func(t *testing.T) *Target {
				if s.own == nil {
					return s.shared(t)
				}
				t.Parallel()
				return s.own(t)
			})
		})
	}
}

// EachServer is EachTarget without clusters, except in a full run. Use it to test what clusters and
// single servers do alike.
func EachServer(t *testing.T, f func(t *testing.T, tgt *Target)) {
	t.Helper()
	eachOf(t, func(tgt *sharedTarget) bool { return depth.Full || !tgt.cluster }, f)
}

// Client returns a new client, closed at the end of the test.
func (tgt *Target) Client(t testing.TB) redis.UniversalClient {
	t.Helper()
	c := tgt.Open()
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Error(err)
		}
	})
	return c
}

// Open returns a new client that the caller closes.
func (tgt *Target) Open() redis.UniversalClient {
	if tgt.Cluster {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: tgt.Addrs})
	}
	return redis.NewClient(&redis.Options{Addr: tgt.Addrs[0]})
}

// sharedTarget is a target that starts when a test first uses it.
type sharedTarget struct {
	name    string
	cluster bool
	get     func() (*Target, error)
	own     func(t testing.TB) *Target // starts one for one test; nil for a server given by address
}

func (s *sharedTarget) testName() string {
	return strings.NewReplacer(" ", "-", "/", "-").Replace(s.name)
}

// kind returns a target, without addresses if its server was not started.
func (s *sharedTarget) kind(t testing.TB) *Target {
	t.Helper()
	if s.own != nil {
		image := strings.TrimSuffix(s.name, " cluster")
		return &Target{Name: s.name, Image: image, Cluster: s.cluster}
	}
	given, err := s.get()
	if err != nil {
		t.Fatal(err)
	}
	return given
}

func (s *sharedTarget) shared(t testing.TB) *Target {
	t.Helper()
	if s.cluster && s.own != nil {
		needCluster(t)
	}
	tgt, err := s.get()
	if err != nil {
		t.Fatal(err)
	}
	CountTest(t, tgt.Name)
	return tgt
}

// allTargets are the servers given by address or, if there are none, a server and a cluster of each
// image.
var allTargets = sync.OnceValue(func() []sharedTarget {
	var all []sharedTarget
	add := func(name string, start func() (*Target, error), own func(testing.TB) *Target) {
		all = append(all,
			sharedTarget{name, strings.HasSuffix(name, " cluster"), sync.OnceValues(start), own})
	}
	if given := givenAddresses(); len(given) > 0 {
		for _, g := range given {
			add(g.name, func() (*Target, error) { return findTarget(g.name, g.addr) }, nil)
		}
		return all
	}
	for _, image := range Images() {
		add(image, func() (*Target, error) {
			s, err := env().running[image]()
			if err != nil {
				return nil, err
			}
			return &Target{Name: image, Image: image, Addrs: []string{s.Addr}}, nil
		}, func(t testing.TB) *Target {
			return &Target{Name: image, Image: image, Addrs: []string{Start(t, image).Addr}}
		})
		name := image + " cluster"
		add(name, func() (*Target, error) {
			c, err := newCluster(image, ClusterPrimaries)
			if err != nil {
				return nil, err
			}
			AtEnd(c.close)
			return &Target{Name: name, Image: image, Cluster: true, Addrs: c.Addrs()}, nil
		}, func(t testing.TB) *Target {
			return &Target{Name: name, Image: image, Cluster: true,
				Addrs: StartCluster(t, image).Addrs()}
		})
	}
	return all
})

type given struct{ name, addr string }

// findTarget detects whether the server at addr is a node of a cluster.
func findTarget(name, addr string) (*Target, error) {
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	info, err := c.Info(context.Background(), "cluster").Result()
	if err != nil {
		return nil, err
	}
	return &Target{Name: name, Cluster: strings.Contains(info, "cluster_enabled:1"),
		Addrs: []string{addr}}, nil
}
