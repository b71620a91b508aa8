package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is the measured Redis or Valkey.
type server struct {
	addr      string
	origin    string // how it was started
	control   *redis.Client
	stop      func()
	benchmark []string          // command that runs redis-benchmark, nil if not installed
	settings  map[string]string // original values of changed settings
}

// A source says where the server comes from. The first field that is set counts. None means an
// installed redis-server, or else a container of defaultImage.
type source struct {
	addr, binary, image string
}

const (
	defaultImage = "redis:8"
	startTimeout = 30 * time.Second
)

// startServer starts a server without persistence and connects to it. The caller must call stop.
func startServer(ctx context.Context, from source) (*server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var (
		s   *server
		err error
	)
	switch {
	case from.addr != "":
		s, err = &server{addr: from.addr, origin: "given address", stop: func() {}}, nil
	case from.binary != "":
		s, err = startBinary(from.binary)
	case from.image != "":
		s, err = startContainer(ctx, from.image)
	default:
		if path, lookErr := exec.LookPath("redis-server"); lookErr == nil {
			s, err = startBinary(path)
		} else {
			s, err = startContainer(ctx, defaultImage)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := s.connect(ctx, from.addr != ""); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// connect waits until the server answers. A foreign server, one that this program has not started,
// must be empty, because the measurements delete all keys.
func (s *server) connect(ctx context.Context, foreign bool) error {
	s.control = newGoRedis(s.addr)
	for {
		err := s.control.Ping(ctx).Err()
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server at %s does not answer: %w", s.addr, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	if foreign {
		keys, err := s.control.DBSize(ctx).Result()
		if err != nil {
			return err
		}
		if keys > 0 {
			return fmt.Errorf("the server at %s holds %d keys; it must be empty, because the "+
				"measurements delete all keys", s.addr, keys)
		}
	}
	stop := s.stop
	s.stop = func() {
		if foreign {
			s.control.FlushAll(context.Background())
			for name, value := range s.settings {
				s.control.ConfigSet(context.Background(), name, value)
			}
		}
		s.control.Close()
		stop()
	}
	return nil
}

// configure changes a setting, which stop restores on a foreign server.
func (s *server) configure(ctx context.Context, name, value string) error {
	if _, ok := s.settings[name]; !ok {
		before, err := s.control.ConfigGet(ctx, name).Result()
		if err != nil {
			return err
		}
		if s.settings == nil {
			s.settings = make(map[string]string)
		}
		s.settings[name] = before[name]
	}
	return s.control.ConfigSet(ctx, name, value).Err()
}

func startBinary(path string) (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	listener.Close()
	dir, err := os.MkdirTemp("", "ratelimit-benchmarks-")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly",
		"no", "--dir", dir)
	if err := cmd.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	s := &server{addr: "127.0.0.1:" + port, origin: path, stop: func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // returns that it was killed
		os.RemoveAll(dir)
	}}
	for _, name := range []string{"redis-benchmark", "valkey-benchmark"} {
		if path, err := exec.LookPath(name); err == nil {
			s.benchmark = []string{path, "-p", port}
			break
		}
	}
	return s, nil
}

func startContainer(ctx context.Context, image string) (*server, error) {
	name := "ratelimit-benchmarks-" + strings.ToLower(rand.Text()[:10])
	remove := func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		// the container may not exist
		_ = exec.CommandContext(ctx, "docker", "rm", "-f", "-v", name).Run()
	}
	if _, err := docker(ctx, "run", "-d", "--rm", "--name", name, "-p", "127.0.0.1::6379",
		image, "--save", "", "--appendonly", "no"); err != nil {
		remove() // the container may have started although the client failed
		return nil, err
	}
	addr, err := containerAddr(ctx, name)
	if err != nil {
		remove()
		return nil, err
	}
	s := &server{addr: addr, origin: "container of " + image, stop: remove}
	for _, tool := range []string{"redis-benchmark", "valkey-benchmark"} {
		if _, err := docker(ctx, "exec", name, tool, "--version"); err == nil {
			s.benchmark = []string{"docker", "exec", name, tool}
			break
		}
	}
	return s, nil
}

// containerAddr returns the container's own address if it can be reached, and otherwise the
// published port, which has a proxy.
func containerAddr(ctx context.Context, name string) (string, error) {
	ip, err := docker(ctx, "inspect", "-f",
		"{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", name)
	if err == nil && ip != "" {
		addr := net.JoinHostPort(ip, "6379")
		for range 20 {
			if conn, err := net.DialTimeout("tcp", addr, 200*time.Millisecond); err == nil {
				conn.Close()
				return addr, nil
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	ports, err := docker(ctx, "port", name, "6379/tcp")
	if err != nil {
		return "", err
	}
	addr, _, _ := strings.Cut(ports, "\n")
	return addr, nil
}

// docker runs the docker command and returns its output.
func docker(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// version returns the server's name and version.
func (s *server) version(ctx context.Context) string {
	info, err := s.info(ctx, "server")
	if err != nil {
		return "unknown"
	}
	if v := info["valkey_version"]; v != "" {
		return "Valkey " + v
	}
	return "Redis " + info["redis_version"]
}

// limits measures with redis-benchmark the rate of the cheapest commands that a decision could use.
func (s *server) limits(ctx context.Context, quick bool) ([]fact, error) {
	if s.benchmark == nil {
		return nil, nil
	}
	sha, err := s.control.ScriptLoad(ctx, "return 1").Result()
	if err != nil {
		return nil, err
	}
	requests := "100000"
	if quick {
		requests = "20000"
	}
	var (
		facts []fact
		errs  []error
	)
	for _, command := range [][]string{{"incr", "counter"}, {"evalsha", sha, "0"}} {
		args := append(s.benchmark[1:len(s.benchmark):len(s.benchmark)], "-q", "-n", requests, "-c",
			strconv.Itoa(connections))
		out, err := exec.CommandContext(ctx, s.benchmark[0], append(args, command...)...).Output()
		if err != nil {
			errs = append(errs, fmt.Errorf("redis-benchmark %s: %w", command[0], err))
			continue
		}
		lines := strings.FieldsFunc(string(out), func(r rune) bool {
			return r == '\r' || r == '\n'
		})
		for _, line := range lines {
			if _, result, ok := strings.Cut(line, ": "); ok &&
				strings.Contains(result, "requests per second") {
				facts = append(facts,
					fact{fmt.Sprintf("%s, c=%d", strings.ToUpper(command[0]), connections),
						strings.TrimSpace(result)})
			}
		}
	}
	return facts, errors.Join(errs...)
}
