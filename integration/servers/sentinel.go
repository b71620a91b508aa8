package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/testcontainers/testcontainers-go"
)

const (
	numSentinels = 3

	sentinelPort = 26379
)

// Sentinels are three Sentinels and the pairs that they monitor, on their own network with fixed
// addresses.
type Sentinels struct {
	Nodes   []*Server
	Pairs   []*Pair
	image   string
	network *testcontainers.DockerNetwork
	last    netip.Addr // last address given to a container
}

// MasterSet is the name under which the Sentinels monitor the i-th pair.
func MasterSet(i int) string { return fmt.Sprintf("pair%d", i) }

// StartSentinels starts Sentinels that monitor that many pairs, for this test alone.
func StartSentinels(t testing.TB, image string, pairs int) *Sentinels {
	t.Helper()
	NeedNetwork(t)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	nw, subnet, err := newNetwork(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w := &Sentinels{image: image, network: nw, last: subnet.Addr().Next()} // of the gateway
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	conf, err := w.startPairs(ctx, pairs)
	if err == nil {
		err = w.startNodes(ctx, conf)
	}
	if err == nil {
		err = w.meet(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	CountTest(t, image+" Sentinel")
	return w
}

// newServer returns a server at the next address, not started yet.
func (w *Sentinels) newServer(port uint16) *Server {
	w.last = w.last.Next()
	return &Server{Image: w.image, Addr: netip.AddrPortFrom(w.last, port).String()}
}

// startPairs starts the servers, waits for the replicas, and returns the configuration of the
// Sentinels, which detect replicas fast only when they start.
func (w *Sentinels) startPairs(ctx context.Context, pairs int) (conf string, err error) {
	starting := parallel{network: w.network}
	text := strings.Builder{}
	fmt.Fprintf(&text, "port %d\nprotected-mode no\n", sentinelPort)
	for i := range pairs {
		p := &Pair{
			Of: w.image + " Sentinel", Primary: w.newServer(serverPort),
			Replica: w.newServer(serverPort),
			Network: w.network, Elected: isPrimary,
		}
		p.Announced = func(ctx context.Context) bool {
			return w.name(ctx, MasterSet(i), p.Replica.Addr)
		}
		w.Pairs = append(w.Pairs, p)
		args := []string{"--repl-diskless-sync-delay", "0"}
		starting.run(ctx, p.Primary, testcontainers.WithCmd(args...))
		primary := strings.ReplaceAll(p.Primary.Addr, ":", " ")
		starting.run(ctx, p.Replica,
			testcontainers.WithCmd(append(args, "--replicaof", primary)...))
		fmt.Fprintf(&text, "sentinel monitor %s %s 2\n", MasterSet(i), primary)
		fmt.Fprintf(&text, "sentinel down-after-milliseconds %s 1000\n", MasterSet(i))
		fmt.Fprintf(&text, "sentinel failover-timeout %s 5000\n", MasterSet(i))
	}
	if err := starting.wait(); err != nil {
		return "", err
	}
	for _, p := range w.Pairs {
		replica := redis.NewClient(&redis.Options{Addr: p.Replica.Addr})
		defer replica.Close()
		if err := Poll(ctx, func() (bool, error) { return InSync(ctx, replica) }); err != nil {
			return "", fmt.Errorf("waiting for a replica to catch up: %w", err)
		}
	}
	return text.String(), nil
}

func (w *Sentinels) startNodes(ctx context.Context, conf string) error {
	starting := parallel{network: w.network}
	for range numSentinels {
		s := w.newServer(sentinelPort)
		w.Nodes = append(w.Nodes, s)
		starting.run(ctx, s, sentinelOptions(w.image, conf)...)
	}
	return starting.wait()
}

// meet waits for the Sentinels to find each other, with short periods to make it fast. A primary
// that recovers becomes a replica after four periods.
func (w *Sentinels) meet(ctx context.Context) error {
	for _, s := range w.Nodes {
		c := redis.NewClient(&redis.Options{Addr: s.Addr})
		defer c.Close()
		debug := c.Do(ctx, "SENTINEL", "DEBUG", "PUBLISH-PERIOD", 500, "INFO-PERIOD", 1000)
		if err := debug.Err(); err != nil {
			return err
		}
	}
	for _, s := range w.Nodes {
		if err := Poll(ctx,
			func() (bool, error) { return knowsAll(ctx, s.Addr, len(w.Pairs)) }); err != nil {
			return fmt.Errorf("waiting for the Sentinels to find each other: %w", err)
		}
	}
	return nil
}

// parallel starts containers concurrently.
type parallel struct {
	network *testcontainers.DockerNetwork
	wg      sync.WaitGroup
	mu      sync.Mutex
	errs    []error
}

func (p *parallel) run(ctx context.Context, s *Server, opts ...testcontainers.ContainerCustomizer) {
	p.wg.Go(func() {
		if err := runAt(ctx, p.network, s, opts...); err != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.errs = append(p.errs, fmt.Errorf("%s: %w", s.Addr, err))
		}
	})
}

// wait returns when all have started.
func (p *parallel) wait() error {
	p.wg.Wait()
	return errors.Join(p.errs...)
}

func sentinelOptions(image, conf string) []testcontainers.ContainerCustomizer {
	program := "redis-sentinel"
	if strings.HasPrefix(image, "valkey/") {
		program = "valkey-sentinel"
	}
	file := path.Join(containerDir, "sentinel.conf") // the Sentinel writes to it
	return []testcontainers.ContainerCustomizer{
		testcontainers.WithFiles(testcontainers.ContainerFile{
			Reader: strings.NewReader(conf), ContainerFilePath: file, FileMode: 0o666,
		}),
		testcontainers.WithCmd(program, file),
	}
}

// knowsAll reports whether a Sentinel has found the others and the replica of each pair.
func knowsAll(ctx context.Context, addr string, pairs int) (bool, error) {
	c := redis.NewSentinelClient(&redis.Options{Addr: addr})
	defer c.Close()
	for i := range pairs {
		m, err := c.Master(ctx, MasterSet(i)).Result()
		if err != nil || m["num-other-sentinels"] != fmt.Sprint(numSentinels-1) ||
			m["num-slaves"] != "1" {
			return false, err
		}
	}
	return true, nil
}

// name reports whether every Sentinel says that the primary of set is at addr.
func (w *Sentinels) name(ctx context.Context, set, addr string) bool {
	for _, s := range w.Nodes {
		c := redis.NewSentinelClient(&redis.Options{Addr: s.Addr})
		defer c.Close()
		at, err := c.GetMasterAddrByName(ctx, set).Result()
		if err != nil || net.JoinHostPort(at[0], at[1]) != addr {
			return false
		}
	}
	return true
}

// isPrimary reports whether a server has the role of a primary.
func isPrimary(ctx context.Context, c *redis.Client) (bool, error) {
	info, err := c.Info(ctx, "replication").Result()
	return strings.Contains(info, "role:master"), err
}

// Addrs returns the addresses of the Sentinels.
func (w *Sentinels) Addrs() []string {
	addrs := make([]string, len(w.Nodes))
	for i, s := range w.Nodes {
		addrs[i] = s.Addr
	}
	return addrs
}

func (w *Sentinels) close() error {
	all := w.Nodes
	for _, p := range w.Pairs {
		all = append(all, p.Primary, p.Replica)
	}
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() { errs[i] = s.close() })
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), FaultTimeout)
	defer cancel()
	return errors.Join(append(errs, w.network.Remove(ctx))...)
}
