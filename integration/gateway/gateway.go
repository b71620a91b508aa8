// Package gateway has a server of xDS for tests, made of the library of which Envoy Gateway and
// Envoy AI Gateway make theirs.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/truewindow/ratelimit/integration/servers"
)

// A Gateway is a server. It notes what its clients say of each version.
type Gateway struct {
	testing.TB
	Addr    string // host:port
	node    string
	cache   cache.SnapshotCache
	grpc    *grpc.Server
	version int

	mu      sync.Mutex
	clients map[int64]string            // by the id of their stream: the value of x-client
	sent    map[answer]string           // versions
	said    map[string]map[string]error // of a client: what it says of a version; nil: accepted
}

// Start starts a gateway for clients with the id of a node, on a free port of a host.
func Start(t testing.TB, host, node string, options ...grpc.ServerOption) *Gateway {
	t.Helper()
	g := &Gateway{TB: t, node: node, cache: cache.NewSnapshotCache(false, cache.IDHash{}, nil),
		grpc: grpc.NewServer(options...), clients: make(map[int64]string),
		sent: make(map[answer]string),
		said: make(map[string]map[string]error)}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	g.Addr = listener.Addr().String()
	discovery.RegisterAggregatedDiscoveryServiceServer(g.grpc, server.NewServer(t.Context(),
		g.cache, server.CallbackFuncs{StreamOpenFunc: g.opened, StreamRequestFunc: g.requested,
			StreamResponseFunc: g.responded}))
	var serving sync.WaitGroup
	serving.Go(func() { _ = g.grpc.Serve(listener) })
	t.Cleanup(func() {
		g.grpc.Stop()
		serving.Wait()
	})
	return g
}

// Client returns the header with which a client tells its name, for
// CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS. Send waits for all clients with a name.
func (g *Gateway) Client(name string) (header string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.said[name] = make(map[string]error)
	return "x-client:" + name
}

func (g *Gateway) opened(ctx context.Context, stream int64, _ string) error {
	md, _ := metadata.FromIncomingContext(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	if names := md.Get("x-client"); len(names) > 0 {
		g.clients[stream] = names[0]
	}
	return nil
}

func (g *Gateway) requested(stream int64, r *discovery.DiscoveryRequest) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	said, version := g.said[g.clients[stream]], g.sent[answer{stream, r.GetResponseNonce()}]
	if said == nil || version == "" {
		return nil
	}
	said[version] = nil
	if wrong := r.GetErrorDetail(); wrong != nil {
		said[version] = errors.New(wrong.GetMessage())
	}
	return nil
}

// An answer is a response, by its stream and its nonce.
type answer struct {
	stream int64
	nonce  string
}

// responded notes the version of a response: a request that refuses it does not name it.
func (g *Gateway) responded(
	_ context.Context, stream int64, _ *discovery.DiscoveryRequest, r *discovery.DiscoveryResponse,
) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sent[answer{stream, r.GetNonce()}] = r.GetVersionInfo()
}

// Send makes resources the configuration, and returns when all clients with a name have said
// something of it: nil if they accept it. It fails the test if they differ.
func (g *Gateway) Send(resources ...*config.RateLimitConfig) error {
	g.Helper()
	var all []types.Resource
	for _, r := range resources {
		all = append(all, r)
	}
	g.mu.Lock()
	g.version++
	version := fmt.Sprint(g.version)
	g.mu.Unlock()
	snapshot, err := cache.NewSnapshot(version,
		map[resource.Type][]types.Resource{resource.RateLimitConfigType: all})
	if err == nil {
		err = g.cache.SetSnapshot(g.Context(), g.node, snapshot)
	}
	if err != nil {
		g.Fatal(err)
	}
	said := make(map[string]error)
	servers.Within(g, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		for client, versions := range g.said {
			if what, ok := versions[version]; ok {
				said[client] = what
			}
		}
		return len(said) == len(g.said)
	}, "not all clients have answered")
	var refusal error
	accepted := 0
	for _, what := range said {
		if what == nil {
			accepted++
		} else {
			refusal = what
		}
	}
	if accepted > 0 && accepted < len(said) {
		g.Errorf("version %s: %v", version, said)
	}
	// envoyproxy/ratelimit accepts what another goroutine then puts in force.
	time.Sleep(20 * time.Millisecond)
	return refusal
}
