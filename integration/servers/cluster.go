package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/network"
	"github.com/redis/go-redis/v9"
	"github.com/testcontainers/testcontainers-go"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
)

const (
	// ClusterSlots is the number of slots of a cluster.
	ClusterSlots = 16384

	// ClusterPrimaries is the number of primaries of a cluster with at least as many nodes.
	ClusterPrimaries = 3

	clusterTimeout = 30 * time.Second // until all nodes agree
)

// A Cluster is a Redis or Valkey Cluster whose nodes keep their addresses when they restart. The
// primaries come first in Nodes and share the slots evenly, in order. The other nodes are replicas,
// one of each primary.
type Cluster struct {
	Nodes   []*Server
	Network *testcontainers.DockerNetwork // of a cluster of containers with replicas
}

// StartCluster starts a cluster for this test alone, without replicas.
func StartCluster(t testing.TB, image string) *Cluster {
	t.Helper()
	return StartClusterOf(t, image, ClusterPrimaries)
}

// StartClusterOf starts a cluster with that many nodes; one node has all slots. args are options of
// the servers.
func StartClusterOf(t testing.TB, image string, nodes int, args ...string) *Cluster {
	t.Helper()
	needCluster(t)
	c, err := newCluster(image, nodes, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	CountTest(t, image+" cluster")
	return c
}

func newCluster(image string, nodes int, args ...string) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c := &Cluster{Nodes: make([]*Server, nodes)}
	timeout := "10000" // a node that gets no processor for some seconds has not failed
	if nodes > ClusterPrimaries {
		timeout = "2000" // until a replica takes over
	}
	err := c.run(ctx, image,
		append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", timeout}, args...))
	if err == nil {
		err = c.form(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s cluster: %w", image, err), c.close())
	}
	return c, nil
}

// newNetwork returns a network with a subnet of its own choice: only then can containers have fixed
// addresses.
func newNetwork(
	ctx context.Context,
) (nw *testcontainers.DockerNetwork, subnet netip.Prefix, err error) {
	for range 20 { // the subnet may be in use
		subnet = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 213, byte(rand.IntN(256)), 0}), 24)
		nw, err = tcnetwork.New(ctx,
			tcnetwork.WithLabels(map[string]string{Label: "1"}),
			tcnetwork.WithIPAM(&network.IPAM{Config: []network.IPAMConfig{{Subnet: subnet}}}))
		if err == nil {
			return nw, subnet, nil
		}
	}
	return nil, netip.Prefix{}, err
}

// run starts the nodes.
func (c *Cluster) run(ctx context.Context, image string, args []string) error {
	start := func(int) (*Server, error) { return env().newServer(image, Launch{Args: args}) }
	if !env().programs && len(c.Nodes) > ClusterPrimaries { // tests cut replicas off
		nw, subnet, err := newNetwork(ctx)
		if err != nil {
			return fmt.Errorf("creating a network: %w", err)
		}
		c.Network = nw
		ips := []netip.Addr{subnet.Addr().Next().Next()} // the first one is the gateway's
		for range c.Nodes {
			ips = append(ips, ips[len(ips)-1].Next())
		}
		start = func(i int) (*Server, error) {
			addr := netip.AddrPortFrom(ips[i], serverPort).String()
			s := &Server{Image: image, Addr: addr, peer: addr}
			return s, runAt(ctx, nw, s, testcontainers.WithCmd(args...))
		}
	}
	errs := make([]error, len(c.Nodes))
	var wg sync.WaitGroup
	for i := range c.Nodes {
		wg.Go(func() { c.Nodes[i], errs[i] = start(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// form assigns the slots, introduces the nodes to each other, and waits until all of them report
// that the cluster is complete and that the replicas follow their primaries.
func (c *Cluster) form(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	first := netip.MustParseAddrPort(c.Nodes[0].Addr)
	clients := make([]*redis.Client, len(c.Nodes))
	primaries := min(ClusterPrimaries, len(c.Nodes))
	for i, node := range c.Nodes {
		clients[i] = redis.NewClient(&redis.Options{Addr: node.Addr})
		defer clients[i].Close()
		if err := clients[i].Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
		if i < primaries {
			from, to := i*ClusterSlots/primaries, (i+1)*ClusterSlots/primaries-1
			if err := clients[i].ClusterAddSlotsRange(ctx, from, to).Err(); err != nil {
				return err
			}
		}
		if err := clients[i].ClusterMeet(ctx, first.Addr().String(),
			fmt.Sprint(first.Port())).Err(); err != nil {
			return err
		}
	}
	for _, client := range clients {
		if err := Poll(ctx, func() (bool, error) {
			info, err := client.ClusterInfo(ctx).Result()
			return strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", len(c.Nodes))), err
		}); err != nil {
			return fmt.Errorf("waiting for the nodes to agree on the cluster: %w", err)
		}
	}
	for i := primaries; i < len(clients); i++ {
		primary, err := clients[i-primaries].Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return err
		}
		if err := clients[i].ClusterReplicate(ctx, primary).Err(); err != nil {
			return err
		}
	}
	for _, client := range clients[primaries:] {
		if err := Poll(ctx, func() (bool, error) { return InSync(ctx, client) }); err != nil {
			return fmt.Errorf("waiting for a replica to catch up: %w", err)
		}
	}
	return nil
}

// InSync reports whether the server is a replica that has all data of its primary.
func InSync(ctx context.Context, client *redis.Client) (bool, error) {
	info, err := client.Info(ctx, "replication").Result()
	return strings.Contains(info, "role:slave") &&
		strings.Contains(info, "master_link_status:up") &&
		strings.Contains(info, "master_sync_in_progress:0"), err
}

func (c *Cluster) close() error {
	var errs []error
	for _, node := range c.Nodes {
		if node != nil {
			errs = append(errs, node.close())
		}
	}
	if c.Network != nil {
		ctx, cancel := context.WithTimeout(context.Background(), FaultTimeout)
		defer cancel()
		errs = append(errs, c.Network.Remove(ctx))
	}
	return errors.Join(errs...)
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		addrs[i] = node.Addr
	}
	return addrs
}
