package integration

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/testcontainers/testcontainers-go"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"
)

const (
	numSentinels = 3

	sentinelPort = 26379
)

// A watch is three Sentinels and the pairs that they watch, on a network of its own with fixed addresses.
type watch struct {
	sentinels []*server
	pairs     []*pair
	network   *testcontainers.DockerNetwork
}

// masterSet is the name by which the Sentinels know the i-th pair.
func masterSet(i int) string { return fmt.Sprintf("pair%d", i) }

func startWatch(t testing.TB, image string, pairs int) *watch {
	t.Helper()
	if noDocker != "" {
		skip(t, noDocker)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	nw, subnet, err := newNetwork(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{network: nw}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	free := subnet.Addr().Next() // the gateway's
	newAddr := func(port uint16) netip.AddrPort {
		free = free.Next()
		return netip.AddrPortFrom(free, port)
	}

	var errs sync.Map // of those that start at the same time
	var wg sync.WaitGroup
	run := func(s *server, start func() (testcontainers.Container, error)) {
		wg.Go(func() {
			var err error
			if s.container, err = start(); err != nil {
				errs.Store(s.addr, err)
			}
		})
	}
	conf := strings.Builder{}
	fmt.Fprintf(&conf, "port %d\nprotected-mode no\n", sentinelPort)
	for i := range pairs {
		primary, replica := newAddr(6379), newAddr(6379)
		p := &pair{of: image + " Sentinel", primary: &server{image: image, addr: primary.String()},
			replica: &server{image: image, addr: replica.String()}, network: nw, elected: isPrimary}
		w.pairs = append(w.pairs, p)
		args := []string{"--repl-diskless-sync-delay", "0"}
		run(p.primary, func() (testcontainers.Container, error) {
			return runImage(ctx, image, tcnetwork.WithNetwork(nil, nw), address(primary.Addr()), testcontainers.WithCmdArgs(args...))
		})
		run(p.replica, func() (testcontainers.Container, error) {
			return runImage(ctx, image, tcnetwork.WithNetwork(nil, nw), address(replica.Addr()),
				testcontainers.WithCmdArgs(append(args, "--replicaof", fmt.Sprintf("%v %d", primary.Addr(), primary.Port()))...))
		})
		fmt.Fprintf(&conf, "sentinel monitor %s %v %d 2\nsentinel down-after-milliseconds %[1]s 1000\nsentinel failover-timeout %[1]s 5000\n",
			masterSet(i), primary.Addr(), primary.Port())
	}
	wg.Wait()
	for _, p := range w.pairs { // before the Sentinels look for replicas, which they do seldom
		if p.replica.container == nil {
			break
		}
		replica := newCalm(t, p.replica.addr)
		if err := poll(ctx, func() (bool, error) { return inSync(ctx, replica) }); err != nil {
			t.Fatal(err)
		}
	}
	for range numSentinels {
		at := newAddr(sentinelPort)
		s := &server{image: image, addr: at.String()}
		w.sentinels = append(w.sentinels, s)
		run(s, func() (testcontainers.Container, error) { return runSentinel(ctx, image, nw, at.Addr(), conf.String()) })
	}
	wg.Wait()
	errs.Range(func(addr, err any) bool {
		t.Errorf("%v: %v", addr, err)
		return true
	})
	if t.Failed() {
		t.FailNow()
	}
	for _, s := range w.sentinels {
		// They meet sooner, and a primary that came back is a replica after four such periods.
		debug := newCalm(t, s.addr).Do(ctx, "SENTINEL", "DEBUG", "PUBLISH-PERIOD", 500, "INFO-PERIOD", 1000)
		if err := debug.Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range w.sentinels {
		if err := poll(ctx, func() (bool, error) { return knowsAll(ctx, s.addr, pairs) }); err != nil {
			t.Fatalf("waiting for the Sentinels to find each other: %v", err)
		}
	}
	ran.add(image + " Sentinel")
	return w
}

func runSentinel(
	ctx context.Context, image string, nw *testcontainers.DockerNetwork, ip netip.Addr, conf string,
) (testcontainers.Container, error) {
	program := "redis-sentinel"
	if strings.HasPrefix(image, "valkey/") {
		program = "valkey-sentinel"
	}
	const file = "/data/sentinel.conf" // which it writes to
	c, err := testcontainers.Run(ctx, image, tcnetwork.WithNetwork(nil, nw), address(ip),
		testcontainers.WithLabels(map[string]string{label: "1"}),
		testcontainers.WithFiles(testcontainers.ContainerFile{Reader: strings.NewReader(conf), ContainerFilePath: file, FileMode: 0o666}),
		testcontainers.WithCmd(program, file),
		testcontainers.WithWaitStrategy(wait.ForLog("Sentinel ID is")))
	if err != nil && c != nil {
		_ = testcontainers.TerminateContainer(c, testcontainers.StopTimeout(0))
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// knowsAll tells whether a Sentinel knows the others, and the replica of each pair.
func knowsAll(ctx context.Context, addr string, pairs int) (bool, error) {
	c := redis.NewSentinelClient(&redis.Options{Addr: addr})
	defer c.Close()
	for i := range pairs {
		m, err := c.Master(ctx, masterSet(i)).Result()
		if err != nil || m["num-other-sentinels"] != fmt.Sprint(numSentinels-1) || m["num-slaves"] != "1" {
			return false, err
		}
	}
	return true, nil
}

// isPrimary tells whether a server says that it is a primary.
func isPrimary(ctx context.Context, c *redis.Client) (bool, error) {
	info, err := c.Info(ctx, "replication").Result()
	return strings.Contains(info, "role:master"), err
}

func (w *watch) addrs() []string {
	addrs := make([]string, len(w.sentinels))
	for i, s := range w.sentinels {
		addrs[i] = s.addr
	}
	return addrs
}

func (w *watch) close() error {
	all := w.sentinels
	for _, p := range w.pairs {
		all = append(all, p.primary, p.replica)
	}
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() { errs[i] = s.close() })
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), faultTimeout)
	defer cancel()
	return errors.Join(append(errs, w.network.Remove(ctx))...)
}

// TestSentinelFailover loses three primaries, each in another way. Sentinels take their time to make a primary that came back a replica, so
// nobody waits for each alone.
func TestSentinelFailover(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	eachImage(t, "valkey/valkey:8", func(t *testing.T, image string) {
		w := startWatch(t, image, len(faults))
		var struck []*failover
		for i, f := range faults {
			d := dialing{addrs: w.addrs(), masterSet: masterSet(i), prompt: true}
			struck = append(struck, strike(t, f, w.pairs[i], d, func(_ testing.TB, name string) failoverKeys {
				return failoverKeys{own: name, calm: name + "-calm", shared: "shared", group: [2]string{name + "/1", name + "/2"}}
			}))
			struck[i].heal()
		}
		for _, fo := range struck {
			fo.finish(t)
		}
	})
}
