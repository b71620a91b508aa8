package integration

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tcredis "github.com/testcontainers/testcontainers-go/modules/redis"
	tcvalkey "github.com/testcontainers/testcontainers-go/modules/valkey"
)

// images are the servers that every test runs on: those that RATELIMIT_IMAGES names, separated by commas, or all that are promised.
var images = func() []string {
	if names := os.Getenv("RATELIMIT_IMAGES"); names != "" {
		return strings.Split(names, ",")
	}
	return []string{"redis:7", "redis:8", "valkey/valkey:8"}
}()

const (
	serverPort = "6379/tcp"

	// label marks our containers and networks for sweep.
	label = "com.github.truewindow.ratelimit.integration"

	startTimeout = 5 * time.Minute // a pull included
	faultTimeout = 30 * time.Second
)

// A server is one Redis or Valkey process. Its address stays the same when it is stopped and started again.
type server struct {
	image     string
	addr      string // host:port
	container testcontainers.Container
}

// startServer starts a server of the test's own, for those who do it harm. args are options of the server.
func startServer(t testing.TB, image string, args ...string) *server {
	t.Helper()
	return startServerWith(t, image, testcontainers.WithCmdArgs(args...))
}

func startServerWith(t testing.TB, image string, opts ...testcontainers.ContainerCustomizer) *server {
	t.Helper()
	if noDocker != "" {
		skip(t, noDocker)
	}
	s, err := newServer(image, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	ran.add(image)
	return s
}

// newServer publishes the server on a port chosen beforehand: one that the engine chooses changes with every start.
func newServer(image string, opts ...testcontainers.ContainerCustomizer) (*server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	publish := testcontainers.WithHostConfigModifier(func(hc *container.HostConfig) {
		hc.PortBindings = network.PortMap{
			network.MustParsePort(serverPort): {{HostPort: strconv.Itoa(port)}},
		}
	})
	c, err := runImage(ctx, image, append(opts, publish)...)
	if err != nil {
		return nil, err
	}
	s := &server{image: image, container: c}
	if s.addr, err = c.PortEndpoint(ctx, serverPort, ""); err != nil {
		return nil, fmt.Errorf("%s: %w", image, err)
	}
	return s, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// runImage starts a container by the module that belongs to the image, and leaves none behind when that fails.
func runImage(ctx context.Context, image string, opts ...testcontainers.ContainerCustomizer) (testcontainers.Container, error) {
	opts = append(opts, testcontainers.WithLabels(map[string]string{label: "1"}))
	var c testcontainers.Container
	var err error
	if strings.HasPrefix(image, "valkey/") {
		vc, verr := tcvalkey.Run(ctx, image, opts...)
		if err = verr; vc != nil {
			c = vc.Container
		}
	} else {
		rc, rerr := tcredis.Run(ctx, image, opts...)
		if err = rerr; rc != nil {
			c = rc.Container
		}
	}
	if err != nil {
		if c != nil {
			_ = testcontainers.TerminateContainer(c, testcontainers.StopTimeout(0))
		}
		if strings.Contains(err.Error(), "create container") {
			err = fmt.Errorf("%w\n(where no registry can be reached, \"make images\" builds the images)", err)
		}
		return nil, fmt.Errorf("%s: %w", image, err)
	}
	return c, nil
}

func (s *server) close() error {
	if s.container == nil {
		return nil
	}
	return testcontainers.TerminateContainer(s.container, testcontainers.StopTimeout(0))
}

// stop ends the server in good order; its address refuses connections until start. What it held is there again then.
func (s *server) stop(t testing.TB) {
	t.Helper()
	timeout := faultTimeout
	s.fault(t, "stop", func(ctx context.Context, _ *testcontainers.DockerClient) error {
		return s.container.Stop(ctx, &timeout)
	})
}

// kill ends the server as a crash would.
func (s *server) kill(t testing.TB) {
	t.Helper()
	s.signal(t, "SIGKILL")
}

// signal sends a signal to the server's process.
func (s *server) signal(t testing.TB, name string) {
	t.Helper()
	s.fault(t, name, func(ctx context.Context, docker *testcontainers.DockerClient) error {
		_, err := docker.ContainerKill(ctx, s.container.GetContainerID(), client.ContainerKillOptions{Signal: name})
		return err
	})
}

// start starts a server that was stopped or killed, and returns when it accepts connections.
func (s *server) start(t testing.TB) {
	t.Helper()
	s.fault(t, "start", func(ctx context.Context, _ *testcontainers.DockerClient) error {
		return s.container.Start(ctx)
	})
}

// pause freezes the server: connections stay open and nothing answers until unpause.
func (s *server) pause(t testing.TB) {
	t.Helper()
	s.fault(t, "pause", func(ctx context.Context, docker *testcontainers.DockerClient) error {
		_, err := docker.ContainerPause(ctx, s.container.GetContainerID(), client.ContainerPauseOptions{})
		return err
	})
}

func (s *server) unpause(t testing.TB) {
	t.Helper()
	s.fault(t, "unpause", func(ctx context.Context, docker *testcontainers.DockerClient) error {
		_, err := docker.ContainerUnpause(ctx, s.container.GetContainerID(), client.ContainerUnpauseOptions{})
		return err
	})
}

func (s *server) fault(t testing.TB, what string, f func(context.Context, *testcontainers.DockerClient) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), faultTimeout)
	defer cancel()
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		t.Fatalf("%s %s: %v", what, s.image, err)
	}
	defer docker.Close()
	if err := f(ctx, docker); err != nil {
		t.Fatalf("%s %s: %v", what, s.image, err)
	}
}

// sweep removes our containers and networks of more than an hour ago. Younger ones may belong to a run that goes on.
func sweep(ctx context.Context) error {
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return err
	}
	defer docker.Close()
	ours := make(client.Filters).Add("label", label)
	list, err := docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: ours})
	if err != nil {
		return err
	}
	for _, c := range list.Items {
		if time.Since(time.Unix(c.Created, 0)) < time.Hour {
			continue
		}
		if _, err := docker.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
			return err
		}
	}
	_, err = docker.NetworkPrune(ctx, client.NetworkPruneOptions{Filters: ours.Clone().Add("until", "1h")})
	return err
}

// address gives a container the fixed address ip in its only network.
func address(ip netip.Addr) testcontainers.CustomizeRequestOption {
	return testcontainers.WithEndpointSettingsModifier(func(settings map[string]*network.EndpointSettings) {
		for _, s := range settings {
			s.IPAMConfig = &network.EndpointIPAMConfig{IPv4Address: ip}
		}
	})
}
