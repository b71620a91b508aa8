package servers

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/redis/go-redis/v9"
	"github.com/testcontainers/testcontainers-go"
)

// Follow makes s a replica of primary.
func (s *Server) Follow(t testing.TB, primary *Server) {
	t.Helper()
	host, port, err := net.SplitHostPort(primary.peer)
	if err != nil {
		t.Fatal(err)
	}
	c := Connect(t, s.Addr)
	if err := c.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	Within(t, func() bool { ok, err := InSync(t.Context(), c); return ok && err == nil },
		"the replica does not follow")
}

// AwaitReplica returns when one replica has all writes of s.
func (s *Server) AwaitReplica(t testing.TB) {
	t.Helper()
	c := Connect(t, s.Addr).Conn()
	defer c.Close()
	// WAIT covers only writes of the same connection.
	if err := c.Set(t.Context(), FreshKey(t), "", 0).Err(); err != nil {
		t.Fatal(err)
	}
	const timeout = 2 * time.Second // shorter than the client's timeout
	if n, err := c.Wait(t.Context(), 1, timeout).Result(); err != nil || n != 1 {
		t.Fatalf("%d replicas have all writes, %v; want 1", n, err)
	}
}

// A Pair is a primary and its replica.
type Pair struct {
	Of               string // such as "redis:8 cluster"
	Primary, Replica *Server
	Network          *testcontainers.DockerNetwork
	// Elected reports whether the replica has become the primary.
	Elected func(ctx context.Context, replica *redis.Client) (bool, error)
	// Announced reports whether every Sentinel names the replica as the primary. It is nil without
	// Sentinels.
	Announced func(context.Context) bool
}

func (p *Pair) String() string { return p.Of }

// Kind returns what p is part of, such as "cluster".
func (p *Pair) Kind() string { return strings.TrimPrefix(p.Of, p.Primary.Image+" ") }

// Disconnect removes the primary from its network.
func (p *Pair) Disconnect(t testing.TB) {
	t.Helper()
	p.Primary.fault(t, "disconnect", func(ctx context.Context) error {
		return withDocker(ctx, func(docker *testcontainers.DockerClient) error {
			opts := client.NetworkDisconnectOptions{Container: p.Primary.container.GetContainerID()}
			_, err := docker.NetworkDisconnect(ctx, p.Network.ID, opts)
			return err
		})
	})
}

// Connect gives the primary its old address again.
func (p *Pair) Connect(t testing.TB) {
	t.Helper()
	ip := netip.MustParseAddrPort(p.Primary.Addr).Addr()
	p.Primary.fault(t, "connect", func(ctx context.Context) error {
		return withDocker(ctx, func(docker *testcontainers.DockerClient) error {
			_, err := docker.NetworkConnect(ctx, p.Network.ID, client.NetworkConnectOptions{
				Container: p.Primary.container.GetContainerID(),
				EndpointConfig: &network.EndpointSettings{
					IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: ip},
				},
			})
			return err
		})
	})
}
