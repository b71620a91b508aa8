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

// A server is the Redis or Valkey under measurement.
type server struct {
	addr      string
	origin    string // how it was started
	control   *redis.Client
	stop      func()
	benchmark []string          // the command that runs redis-benchmark, nil if there is none
	settings  map[string]string // what configure has changed, as it was
}

// A source says where the server comes from. The first that is set counts; none means a
// redis-server binary, or else a container of defaultImage.
type source struct {
	addr, binary, image string
}

const (
	defaultImage = "redis:8"
	startTimeout = 30 * time.Second
)

// startServer starts a server that keeps everything in memory, and connects to it. The caller stops
// it.
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

// connect waits until the server answers. A server that was not started by us must be empty, since
// it is flushed.
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
			return fmt.Errorf("the server at %s holds %d keys; it must be empty, since the "+
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

// configure changes a setting. A server that goes on after the run gets back what it had.
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
		_ = cmd.Wait() // says that it was killed
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
		_ = exec.CommandContext(ctx, "docker", "rm", "-f", "-v", name).Run() // it may not be there
	}
	if _, err := docker(ctx, "run", "-d", "--rm", "--name", name, "-p", "127.0.0.1::6379",
		image, "--save", "", "--appendonly", "no"); err != nil {
		remove() // the client may have been stopped after the container had started
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

// containerAddr prefers the container's own address, where it can be reached, to the published port
// with its proxy.
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

// docker runs the command line client and returns what it prints.
func docker(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// version tells the server's name and version.
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

// limits asks redis-benchmark how fast the server is at the least that a decision could be.
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
