package integration

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
	clusterSlots     = 16384
	clusterPrimaries = 3
	clusterTimeout   = 30 * time.Second // until all nodes agree
)

// A cluster is a Redis or Valkey Cluster on a network of its own, where each node keeps its address when it is stopped and started.
// The primaries, which are the first of the nodes, share the slots evenly, in order. The nodes after them are replicas, one of each.
type cluster struct {
	nodes   []*server
	network *testcontainers.DockerNetwork
}

// startCluster starts a cluster of the test's own, without replicas, for those who do it harm.
func startCluster(t testing.TB, image string) *cluster {
	t.Helper()
	return startClusterOf(t, image, clusterPrimaries)
}

// startClusterOf starts a cluster of that many nodes. args are options of the servers.
func startClusterOf(t testing.TB, image string, nodes int, args ...string) *cluster {
	t.Helper()
	if noDocker != "" {
		skip(t, noDocker)
	}
	c, err := newCluster(image, nodes, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	ran.add(image + " cluster")
	return c
}

func newCluster(image string, nodes int, args ...string) (*cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	nw, subnet, err := newNetwork(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s cluster: network: %w", image, err)
	}
	c := &cluster{network: nw, nodes: make([]*server, nodes)}
	if err := c.run(ctx, image, subnet, args); err != nil {
		return nil, errors.Join(fmt.Errorf("%s cluster: %w", image, err), c.close())
	}
	return c, nil
}

// newNetwork returns a network with a subnet that we chose: only in such a network may a container's address be fixed.
func newNetwork(ctx context.Context) (nw *testcontainers.DockerNetwork, subnet netip.Prefix, err error) {
	for range 20 { // others may have the subnet
		subnet = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 213, byte(rand.IntN(256)), 0}), 24)
		nw, err = tcnetwork.New(ctx,
			tcnetwork.WithLabels(map[string]string{label: "1"}),
			tcnetwork.WithIPAM(&network.IPAM{Config: []network.IPAMConfig{{Subnet: subnet}}}))
		if err == nil {
			return nw, subnet, nil
		}
	}
	return nil, netip.Prefix{}, err
}

func (c *cluster) run(ctx context.Context, image string, subnet netip.Prefix, args []string) error {
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	args = append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000"}, args...)
	free := subnet.Addr().Next().Next() // the first one is the gateway's
	for i := range c.nodes {
		ip := free
		free = free.Next()
		c.nodes[i] = &server{image: image, addr: netip.AddrPortFrom(ip, 6379).String()}
		wg.Go(func() {
			c.nodes[i].container, errs[i] = runImage(ctx, image,
				tcnetwork.WithNetwork(nil, c.network), address(ip),
				testcontainers.WithCmdArgs(args...))
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.form(ctx)
}

// form hands out the slots, introduces the nodes to each other, and waits until all of them say that the cluster is complete and the replicas
// follow their primaries.
func (c *cluster) form(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	first := netip.MustParseAddrPort(c.nodes[0].addr)
	clients := make([]*redis.Client, len(c.nodes))
	for i, node := range c.nodes {
		clients[i] = redis.NewClient(&redis.Options{Addr: node.addr})
		defer clients[i].Close()
		if err := clients[i].Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
		if i < clusterPrimaries {
			from, to := i*clusterSlots/clusterPrimaries, (i+1)*clusterSlots/clusterPrimaries-1
			if err := clients[i].ClusterAddSlotsRange(ctx, from, to).Err(); err != nil {
				return err
			}
		}
		if err := clients[i].ClusterMeet(ctx, first.Addr().String(), fmt.Sprint(first.Port())).Err(); err != nil {
			return err
		}
	}
	for _, client := range clients {
		if err := poll(ctx, func() (bool, error) {
			info, err := client.ClusterInfo(ctx).Result()
			return strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", len(c.nodes))), err
		}); err != nil {
			return fmt.Errorf("waiting for agreement: %w", err)
		}
	}
	for i := clusterPrimaries; i < len(clients); i++ {
		primary, err := clients[i-clusterPrimaries].Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return err
		}
		if err := clients[i].ClusterReplicate(ctx, primary).Err(); err != nil {
			return err
		}
	}
	for _, client := range clients[clusterPrimaries:] {
		if err := poll(ctx, func() (bool, error) { return inSync(ctx, client) }); err != nil {
			return fmt.Errorf("waiting for a replica: %w", err)
		}
	}
	return nil
}

// inSync tells that the server is a replica that has what its primary has.
func inSync(ctx context.Context, client *redis.Client) (bool, error) {
	info, err := client.Info(ctx, "replication").Result()
	return strings.Contains(info, "role:slave") && strings.Contains(info, "master_link_status:up") &&
		strings.Contains(info, "master_sync_in_progress:0"), err
}

func (c *cluster) close() error {
	var errs []error
	for _, node := range c.nodes {
		errs = append(errs, node.close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), faultTimeout)
	defer cancel()
	return errors.Join(append(errs, c.network.Remove(ctx))...)
}

func (c *cluster) addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, node := range c.nodes {
		addrs[i] = node.addr
	}
	return addrs
}

// poll asks until the answer is yes, an error comes, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
