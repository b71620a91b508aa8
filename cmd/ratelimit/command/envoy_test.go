package command

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

const envoyLimits = `
domain: api
descriptors:
  - key: tenant
    rate_limit: {unit: minute, requests_per_unit: 2}
    detailed_metric: true
`

// envoyDirectory returns a directory as RUNTIME_ROOT names one, with the files in config.
func envoyDirectory(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "ratelimit", "config")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	apitest.WriteFile(t, filepath.Join(dir, "api.yaml"), envoyLimits)
	return root
}

var othersLogged = regexp.MustCompile(`"others":\["([^"]*)"`)

// dialEnvoy returns a connection to the second address that a daemon has logged.
func dialEnvoy(t *testing.T, log *apitest.Log) *grpc.ClientConn {
	t.Helper()
	addr := othersLogged.FindStringSubmatch(log.String())
	if addr == nil {
		t.Fatalf("no other address in %s", log)
	}
	conn, err := grpc.NewClient(addr[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func shouldRateLimit(
	t *testing.T, conn *grpc.ClientConn, tenant string,
) rls.RateLimitResponse_Code {
	t.Helper()
	resp, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(),
		&rls.RateLimitRequest{Domain: "api", Descriptors: []*ratelimitv3.RateLimitDescriptor{{
			Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "tenant", Value: tenant}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetOverallCode()
}

// TestEnvoyVariables: with the environment of envoyproxy/ratelimit and no argument the command
// serves its files on its addresses, over gRPC and, whatever the host name, as JSON.
func TestEnvoyVariables(t *testing.T) {
	t.Setenv("RUNTIME_ROOT", envoyDirectory(t))
	t.Setenv("RUNTIME_SUBDIRECTORY", "ratelimit")
	t.Setenv("RUNTIME_WATCH_ROOT", "false")
	t.Setenv("USE_STATSD", "true")
	t.Setenv("RATELIMIT_STORE", "memory")
	t.Setenv("LOG_FORMAT", "json")
	_, port, _ := strings.Cut(unusedAddr(t), ":")
	t.Setenv("GRPC_PORT", port)
	url, log, stop := start(t) // --addr overrides PORT
	conn := dialEnvoy(t, log)
	for i, want := range []rls.RateLimitResponse_Code{1, 1, 2} {
		if got := shouldRateLimit(t, conn, "acme"); got != want {
			t.Errorf("call %d: %v, want %v", i, got, want)
		}
	}
	call := func(method, path, body string) int {
		req, err := http.NewRequestWithContext(
			t.Context(), method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "ratelimit.internal:8080"
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	const body = `{"domain":"api","descriptors":[{"entries":[{"key":"tenant","value":"acme"}]}]}`
	for _, tt := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", "/json", body, 429}, {"POST", "/json", strings.Replace(body, "acme", "o", 1), 200},
		{"POST", "/json", "{", 400}, {"GET", "/healthcheck", "", 200},
		{"GET", "/metrics", "", 421}, // a web page may have chosen the name
	} {
		if got := call(tt.method, tt.path, tt.body); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.path, got, tt.want)
		}
	}
	health, err := healthpb.NewHealthClient(conn).Check(t.Context(),
		&healthpb.HealthCheckRequest{Service: "ratelimit"})
	if err != nil || health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v %v", health, err)
	}
	for _, want := range []string{`"USE_STATSD"`, "detailed_metric"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s: %s", want, log)
		}
	}
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// TestEnvoyFiles: a file of envoyproxy/ratelimit, or a directory, is a --config; a changed file
// takes effect.
func TestEnvoyFiles(t *testing.T) {
	dir := filepath.Join(envoyDirectory(t), "ratelimit", "config")
	for _, path := range []string{dir, filepath.Join(dir, "api.yaml")} {
		_, log, stop := start(t, "--config="+path, "--grpc-addr=127.0.0.1:0",
			"--envoy-charge=each,other=always")
		conn := dialEnvoy(t, log)
		var got []rls.RateLimitResponse_Code
		for range 3 {
			got = append(got, shouldRateLimit(t, conn, "acme"))
		}
		if !slices.Equal(got, []rls.RateLimitResponse_Code{1, 1, 2}) {
			t.Errorf("%s: %v", path, got)
		}
		apitest.WriteFile(t, filepath.Join(dir, "api.yaml"),
			strings.Replace(envoyLimits, "requests_per_unit: 2", "requests_per_unit: 0", 1))
		for shouldRateLimit(t, conn, "other") == rls.RateLimitResponse_OK {
		}
		apitest.WriteFile(t, filepath.Join(dir, "api.yaml"), envoyLimits)
		stop()
	}
}

// TestGRPCMaxConnectionAge: a connection ends after its age, and the next call makes another one.
func TestGRPCMaxConnectionAge(t *testing.T) {
	_, log, _ := start(t, "--config="+filepath.Join(envoyDirectory(t), "ratelimit", "config"),
		"--grpc-addr=127.0.0.1:0", "--grpc-max-connection-age=100ms")
	conn := dialEnvoy(t, log)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 2 {
		shouldRateLimit(t, conn, "acme")
		if !conn.WaitForStateChange(ctx, connectivity.Ready) {
			t.Fatal("the connection lasts")
		}
	}
}

// TestNoCommand: without a command and without variables of envoyproxy/ratelimit, nothing starts,
// nor with those that name no server and no memory.
func TestNoCommand(t *testing.T) {
	log := new(apitest.Log)
	if code := run(t.Context(), nil, log, log); code != exitUsage {
		t.Errorf("exit code %d: %s", code, log)
	}
	t.Setenv("RUNTIME_ROOT", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, want := range []string{"RATELIMIT_STORE=memory", "no files"} {
		code := run(ctx, nil, log, log)
		if code != exitUsage || !strings.Contains(log.String(), want) {
			t.Errorf("exit code %d: %s, want %s", code, log, want)
		}
		t.Setenv("RATELIMIT_STORE", "memory")
	}
}

// TestForceStart: with FORCE_START_WITHOUT_INITIAL_CONFIG the service starts without files that can
// be loaded, answers calls with an error, so that Envoy decides, and waits for the files.
func TestForceStart(t *testing.T) {
	for name, text := range map[string]string{"none": "", "bad": "domain: api\nlimits: 1\n"} {
		t.Run(name, func(t *testing.T) {
			root := envoyDirectory(t)
			file := filepath.Join(root, "ratelimit", "config", "api.yaml")
			if text != "" {
				apitest.WriteFile(t, file, text)
			} else if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			for name, value := range map[string]string{
				"RUNTIME_ROOT": root, "RUNTIME_SUBDIRECTORY": "ratelimit",
				"RUNTIME_WATCH_ROOT": "false", "RATELIMIT_STORE": "memory\n",
				"FORCE_START_WITHOUT_INITIAL_CONFIG": "true\n",
			} {
				t.Setenv(name, value)
			}
			_, port, _ := strings.Cut(unusedAddr(t), ":")
			t.Setenv("GRPC_PORT", port)
			url, log, stop := start(t)
			client := rls.NewRateLimitServiceClient(dialEnvoy(t, log))
			ask := func() (*rls.RateLimitResponse, error) {
				return client.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{
					Domain: "api", Descriptors: []*ratelimitv3.RateLimitDescriptor{{
						Entries: []*ratelimitv3.RateLimitDescriptor_Entry{
							{Key: "tenant", Value: "acme"}}}}})
			}
			if _, err := ask(); status.Code(err) != codes.Unavailable {
				t.Errorf("%v without limits", err)
			}
			apitest.WantSeries(t, apitest.Scrape(t, url), map[string]string{
				`ratelimit_config_valid`: "0", `ratelimit_config_limits`: "0"})
			apitest.WriteFile(t, file, envoyLimits)
			for range 3 {
				resp, err := ask()
				for ; status.Code(err) == codes.Unavailable; resp, err = ask() {
					runtime.Gosched()
				}
				if err != nil {
					t.Fatal(err)
				}
				if resp.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT {
					break
				}
			}
			if resp, err := ask(); err != nil ||
				resp.GetOverallCode() != rls.RateLimitResponse_OVER_LIMIT {
				t.Errorf("%v %v", resp, err)
			}
			if code := stop(); code != exitOK {
				t.Errorf("exit code %d: %s", code, log)
			}
		})
	}
}
