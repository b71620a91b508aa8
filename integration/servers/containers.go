package servers

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/exec"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
)

const (
	loopback    = "127.0.0.1"
	serverPort  = 6379
	exposedPort = "6379/tcp"

	// containerDir is the working directory of a server in a container.
	containerDir = "/data"

	// Label marks the containers and networks of these tests for sweep.
	Label = "com.github.truewindow.ratelimit.integration"

	// startTimeout is how long servers may take to start and to meet: long, since Sentinels that a
	// busy machine stops for two seconds do nothing for the next thirty.
	startTimeout = 5 * time.Minute
)

// A Server is one Redis or Valkey process, in a container or as a program on this machine. It keeps
// its address when it restarts.
type Server struct {
	Image     string
	Addr      string // host:port
	peer      string // host:port for other servers
	tls       bool
	container testcontainers.Container
	program   *program
}

// A Launch holds the options of a server, besides its port.
type Launch struct {
	Args  []string
	env   []string          // entries such as "NAME=value"
	Files map[string][]byte // by name, in the server's working directory
	TLS   bool              // the port accepts TLS only
}

func (l Launch) listen(port int) []string {
	if l.TLS {
		return []string{"--port", "0", "--tls-port", strconv.Itoa(port)}
	}
	return []string{"--port", strconv.Itoa(port)}
}

// options returns the options of the container.
func (l Launch) options(port int) []testcontainers.ContainerCustomizer {
	env := make(map[string]string)
	for _, e := range l.env {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	opts := []testcontainers.ContainerCustomizer{
		testcontainers.WithEnv(env),
		testcontainers.WithCmd(slices.Concat(l.Args, l.listen(port))...),
	}
	for file, content := range l.Files {
		opts = append(opts, testcontainers.WithFiles(testcontainers.ContainerFile{
			Reader: bytes.NewReader(content), ContainerFilePath: path.Join(containerDir, file),
			FileMode: 0o644,
		}))
	}
	return opts
}

// Start starts a server for this test alone. args are options of the server.
func Start(t testing.TB, image string, args ...string) *Server {
	t.Helper()
	return StartWith(t, image, Launch{Args: args})
}

// StartWith starts a server for this test alone with the options of l.
func StartWith(t testing.TB, image string, l Launch) *Server {
	t.Helper()
	NeedOwn(t)
	s, err := env().newServer(image, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	CountTest(t, image)
	return s
}

func (e *environment) newServer(image string, l Launch) (*Server, error) {
	switch {
	case e.programs:
		return newProgram(image, l)
	case e.local:
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		return newOnHost(ctx, image, l)
	}
	return newPublished(image, l)
}

// newOnHost starts a container that uses the network of this machine, on the loopback interface. It
// starts in half the time of one with a network of its own, and no proxy copies what clients send.
func newOnHost(ctx context.Context, image string, l Launch) (*Server, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	l.Args = append([]string{"--bind", loopback}, l.Args...)
	c, err := runImage(ctx, image, append(l.options(port),
		testcontainers.WithHostConfigModifier(func(hc *container.HostConfig) {
			hc.NetworkMode = network.NetworkHost
		}))...)
	if err != nil {
		return nil, err
	}
	addr := net.JoinHostPort(loopback, strconv.Itoa(port))
	s := &Server{Image: image, Addr: addr, peer: addr, tls: l.TLS, container: c}
	if err := s.await(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", image, err), s.close())
	}
	return s, nil
}

// newPublished publishes the server on a fixed port: a port that the engine chooses changes with
// every restart.
func newPublished(image string, l Launch) (*Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	publish := testcontainers.WithHostConfigModifier(func(hc *container.HostConfig) {
		hc.PortBindings = network.PortMap{
			network.MustParsePort(exposedPort): {{HostPort: strconv.Itoa(port)}},
		}
	})
	opts := append(l.options(serverPort), testcontainers.WithExposedPorts(exposedPort), publish)
	c, err := runImage(ctx, image, opts...)
	if err != nil {
		return nil, err
	}
	s := &Server{Image: image, tls: l.TLS, container: c}
	if err := s.locate(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", image, err), s.close())
	}
	return s, nil
}

// locate sets the addresses of a container and returns when the server answers.
func (s *Server) locate(ctx context.Context) (err error) {
	if s.Addr, err = s.container.PortEndpoint(ctx, exposedPort, ""); err != nil {
		return err
	}
	ip, err := s.container.ContainerIP(ctx)
	if err != nil {
		return err
	}
	s.peer = net.JoinHostPort(ip, strconv.Itoa(serverPort))
	return s.await(ctx)
}

// runImage starts a container and removes it if that fails.
func runImage(
	ctx context.Context, image string, opts ...testcontainers.ContainerCustomizer,
) (testcontainers.Container, error) {
	opts = append(opts, testcontainers.WithLabels(map[string]string{Label: "1"}))
	c, err := testcontainers.Run(ctx, image, opts...)
	if err != nil {
		if c != nil {
			_ = testcontainers.TerminateContainer(c, testcontainers.StopTimeout(0))
		}
		return nil, fmt.Errorf("%s: %w", image, err)
	}
	return c, nil
}

// runAt starts a container at a fixed address in a network and returns when it answers.
func runAt(
	ctx context.Context, nw *testcontainers.DockerNetwork, s *Server,
	opts ...testcontainers.ContainerCustomizer,
) (err error) {
	ip := netip.MustParseAddrPort(s.Addr).Addr()
	opts = append(opts, tcnetwork.WithNetwork(nil, nw), address(ip))
	if s.container, err = runImage(ctx, s.Image, opts...); err != nil {
		return err
	}
	return s.await(ctx)
}

// await returns when the server in a container answers.
func (s *Server) await(ctx context.Context) error {
	return Poll(ctx, func() (bool, error) {
		if answersPing(ctx, s.Addr, s.tls) {
			return true, nil
		}
		state, err := s.container.State(ctx)
		if err != nil || state.Running {
			return false, err
		}
		logs, err := s.container.Logs(ctx)
		if err != nil {
			return false, err
		}
		defer logs.Close()
		text, _ := io.ReadAll(logs)
		return false, fmt.Errorf("the server exited: %s", bytes.TrimSpace(text))
	})
}

func (s *Server) close() error {
	switch {
	case s.program != nil:
		return s.program.close()
	case s.container != nil:
		return testcontainers.TerminateContainer(s.container, testcontainers.StopTimeout(0))
	}
	return nil
}

// Stop shuts the server down. Its address refuses connections until Start, which restores the data.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	s.fault(t, "stop", func(ctx context.Context) error {
		if s.program != nil {
			return s.program.end(ctx, syscall.SIGTERM)
		}
		timeout := FaultTimeout
		return s.container.Stop(ctx, &timeout)
	})
}

// Kill ends the server as a crash would.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.Signal(t, "SIGKILL")
}

// Signal sends a signal to the server's process.
func (s *Server) Signal(t testing.TB, name string) {
	t.Helper()
	s.fault(t, name, func(ctx context.Context) error {
		if s.program != nil {
			return s.program.signal(ctx, name)
		}
		return withDocker(ctx, func(docker *testcontainers.DockerClient) error {
			id, opts := s.container.GetContainerID(), client.ContainerKillOptions{Signal: name}
			_, err := docker.ContainerKill(ctx, id, opts)
			return err
		})
	})
}

// Start restarts a server that was stopped or killed, and returns when it accepts connections.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	s.fault(t, "start", func(ctx context.Context) error {
		if s.program != nil {
			return s.program.start(ctx)
		}
		if err := s.container.Start(ctx); err != nil {
			return err
		}
		return s.await(ctx)
	})
}

// answersPing reports whether a server answers PING, even with an error, and has loaded its data.
func answersPing(ctx context.Context, addr string, overTLS bool) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var conn net.Conn
	var err error
	if overTLS {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
		conn, err = dialer.DialContext(ctx, "tcp", addr)
	} else {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		return false
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return false
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return false
	}
	answer := make([]byte, len("-LOADING"))
	n, _ := conn.Read(answer)
	return n > 0 && string(answer) != "-LOADING"
}

// Pause freezes the server: connections stay open, and nothing is answered until Unpause.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	s.Signal(t, "SIGSTOP")
}

// Unpause continues a frozen server.
func (s *Server) Unpause(t testing.TB) {
	t.Helper()
	s.Signal(t, "SIGCONT")
}

// write replaces the content of a file from Launch.Files. The length stays the same, so a server
// that has mapped the file sees the change.
func (s *Server) write(ctx context.Context, file string, content []byte) error {
	if s.program != nil {
		return s.program.write(file, content)
	}
	octal := ""
	for _, b := range content {
		octal += fmt.Sprintf(`\%03o`, b)
	}
	// does not truncate
	shell := fmt.Sprintf("printf '%s' 1<>%s", octal, path.Join(containerDir, file))
	code, out, err := s.container.Exec(ctx, []string{"sh", "-c", shell}, exec.Multiplexed())
	if err != nil || code == 0 {
		return err
	}
	text, _ := io.ReadAll(out)
	return fmt.Errorf("write %s: exit code %d: %s", file, code, bytes.TrimSpace(text))
}

func (s *Server) fault(t testing.TB, what string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), FaultTimeout)
	defer cancel()
	if err := f(ctx); err != nil {
		t.Fatalf("%s %s: %v", what, s.Image, err)
	}
}

func withDocker(ctx context.Context, f func(*testcontainers.DockerClient) error) error {
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return err
	}
	defer docker.Close()
	return f(docker)
}

// sweep removes containers and networks of these tests that are older than an hour. Younger ones
// may belong to another run.
func sweep(ctx context.Context) error {
	return withDocker(ctx, func(docker *testcontainers.DockerClient) error {
		ours := make(client.Filters).Add("label", Label)
		list, err := docker.ContainerList(ctx,
			client.ContainerListOptions{All: true, Filters: ours})
		if err != nil {
			return err
		}
		for _, c := range list.Items {
			if time.Since(time.Unix(c.Created, 0)) < time.Hour {
				continue
			}
			opts := client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}
			if _, err := docker.ContainerRemove(ctx, c.ID, opts); err != nil {
				return err
			}
		}
		_, err = docker.NetworkPrune(ctx,
			client.NetworkPruneOptions{Filters: ours.Clone().Add("until", "1h")})
		return err
	})
}

// address gives a container the fixed address ip in its only network.
func address(ip netip.Addr) testcontainers.CustomizeRequestOption {
	return testcontainers.WithEndpointSettingsModifier(func(
		settings map[string]*network.EndpointSettings,
	) {
		for _, s := range settings {
			s.IPAMConfig = &network.EndpointIPAMConfig{IPv4Address: ip}
		}
	})
}
