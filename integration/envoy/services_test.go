package envoy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// A service is a process of one of both services.
type service struct {
	rls.RateLimitServiceClient
	conn *grpc.ClientConn
	addr string
	pid  int
}

// Arguments with which the service charges and looks as envoyproxy/ratelimit does.
var alike = []string{"--envoy-charge=always", "--envoy-look=reached"}

// setEnvironment sets what both services read: the files, by name, and the server.
func setEnvironment(t testing.TB, redis string, files map[string]string) {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "ratelimit", "config")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{
		"RUNTIME_ROOT": root, "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_WATCH_ROOT": "false",
		"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": redis, "REDIS_TIMEOUT": "5s",
		"USE_STATSD": "false", "DISABLE_STATS": "true", "HOST": "127.0.0.1",
		"GRPC_HOST": "127.0.0.1", "DEBUG_HOST": "127.0.0.1",
	} {
		t.Setenv(name, value)
	}
}

// setPort sets a variable to a free port, and returns it.
func setPort(t testing.TB, name string) string {
	t.Helper()
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(name, fmt.Sprint(port))
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// startTheirs starts envoyproxy/ratelimit in the environment.
func startTheirs(t testing.TB) *service {
	t.Helper()
	t.Setenv("CACHE_KEY_PREFIX", "theirs:")
	setPort(t, "PORT")
	setPort(t, "DEBUG_PORT")
	addr := setPort(t, "GRPC_PORT")
	return dial(t, addr, startReference(t))
}

// startOurs starts this module's service in the same environment.
func startOurs(t testing.TB, args ...string) *service {
	t.Helper()
	t.Setenv("CACHE_KEY_PREFIX", "ours:")
	addr := setPort(t, "GRPC_PORT")
	d := daemon.Start(t, daemon.Build(t), args...)
	return dial(t, addr, d.PID())
}

// dial returns a service when it answers.
func dial(t testing.TB, addr string, pid int) *service {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s := &service{rls.NewRateLimitServiceClient(conn), conn, addr, pid}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		_, err := s.ShouldRateLimit(ctx, call("none", of("a", "b")), grpc.WaitForReady(true))
		switch {
		case err == nil:
			return s
		case ctx.Err() != nil || os.Getenv("CONFIG_TYPE") == "": // else none came yet by xDS
			t.Fatalf("the service does not answer: %v", err)
		}
		time.Sleep(time.Millisecond)
	}
}

// call returns a request.
func call(domain string, descriptors ...*ratelimitv3.RateLimitDescriptor) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: domain, Descriptors: descriptors}
}

// of returns a descriptor of keys and values.
func of(pairs ...string) *ratelimitv3.RateLimitDescriptor {
	d := new(ratelimitv3.RateLimitDescriptor)
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries,
			&ratelimitv3.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// ask returns the answer of a service.
func (s *service) ask(t testing.TB, req *rls.RateLimitRequest) *rls.RateLimitResponse {
	t.Helper()
	resp, err := s.ShouldRateLimit(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}
