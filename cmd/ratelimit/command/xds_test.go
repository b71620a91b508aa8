package command

import (
	"context"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/xdstest"
)

// tenants returns a resource of the domain api with so many requests a minute for each tenant.
func tenants(requests uint32) *config.RateLimitConfig {
	return &config.RateLimitConfig{Name: "api", Domain: "api",
		Descriptors: []*config.RateLimitDescriptor{{Key: "tenant",
			RateLimit: &config.RateLimitPolicy{Unit: config.RateLimitUnit_MINUTE,
				RequestsPerUnit: requests}}}}
}

// setXDS sets the environment of a gateway whose server of xDS is s.
func setXDS(t *testing.T, s *xdstest.Server) {
	t.Helper()
	_, port, _ := strings.Cut(unusedAddr(t), ":")
	for name, value := range map[string]string{
		"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": s.Addr,
		"CONFIG_GRPC_XDS_NODE_ID": "me", "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "10ms",
		"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL": "10ms", "RATELIMIT_STORE": "memory",
		"USE_STATSD": "false", "GRPC_PORT": port,
	} {
		t.Setenv(name, value)
	}
}

// TestXDS: limits that come by xDS decide, and what is wrong with others is said and changes
// nothing, as of files. The page, explain and the metrics show them.
func TestXDS(t *testing.T) {
	s := xdstest.New(t, nil)
	setXDS(t, s)
	metrics := unusedAddr(t)
	for name, value := range map[string]string{"FORCE_START_WITHOUT_INITIAL_CONFIG": "true",
		"USE_PROMETHEUS": "true", "PROMETHEUS_ADDR": metrics} {
		t.Setenv(name, value)
	}
	url, log, stop := start(t)
	s.Next()
	conn := dialEnvoy(t, log)
	_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(),
		&rls.RateLimitRequest{Domain: "api", Descriptors: []*ratelimitv3.RateLimitDescriptor{{
			Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "tenant", Value: "a"}}}}})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("%v without limits", err)
	}
	page := func(texts ...string) {
		t.Helper()
		_, body := get(t, url+"/dashboard/")
		for _, text := range texts {
			if !strings.Contains(body, text) {
				t.Errorf("the page has no %q", text)
			}
		}
	}
	page("not loaded yet", "connected")
	apitest.WantSeries(t, apitest.Scrape(t, url), map[string]string{
		"ratelimit_config_connected": "1", "ratelimit_config_limits": "0"})

	if r := s.Send(xdstest.Response(t, "1", tenants(2))); r.GetErrorDetail() != nil {
		t.Fatal(r)
	}
	for i, want := range []rls.RateLimitResponse_Code{1, 1, 2} {
		if got := shouldRateLimit(t, conn, "acme"); got != want {
			t.Errorf("call %d: %v, want %v", i, got, want)
		}
	}
	wrong := tenants(0)
	wrong.Descriptors[0].RateLimit.Unit = 0
	r := s.Send(xdstest.Response(t, "2", wrong))
	const reason = "xds:api:5:5: rate_limit has no unit"
	if text := r.GetErrorDetail().GetMessage(); !strings.Contains(text, reason) ||
		!strings.HasSuffix(text, ` (under the key "tenant")`) || r.GetVersionInfo() != "1" {
		t.Error(r)
	}
	page("1 of xds:"+s.Addr, "version &#34;1&#34; is in force", reason)
	if shouldRateLimit(t, conn, "acme") != rls.RateLimitResponse_OVER_LIMIT ||
		shouldRateLimit(t, conn, "other") != rls.RateLimitResponse_OK {
		t.Error("the limits of before are not in force")
	}
	apitest.WantSeries(t, apitest.Scrape(t, "http://"+metrics), map[string]string{
		"ratelimit_config_valid": "0", "ratelimit_config_failures_total": "1",
		"ratelimit_config_limits": "1"})
	if code, _ := get(t, "http://"+metrics+"/dashboard/"); code != 404 {
		t.Errorf("the address of the metrics answers %d", code)
	}
	out, _ := runOutput(t, "explain", url, "--domain=api", "tenant=acme")
	if !strings.Contains(out, "api|tenant") || !strings.Contains(out, "2/1m0s") {
		t.Errorf("explain: %s", out)
	}

	// The last good limits outlive the server, and those that vanish are gone.
	s.Stop()
	began := time.Now()
	for !strings.Contains(apitest.Scrape(t, url), "\nratelimit_config_connected 0\n") {
		if time.Since(began) > xdstest.Patience {
			t.Fatal("the metrics do not say that the server is away")
		}
		time.Sleep(time.Millisecond)
	}
	if shouldRateLimit(t, conn, "acme") != rls.RateLimitResponse_OVER_LIMIT {
		t.Error("no limit while the server is away")
	}
	s.Start(nil)
	s.Next()
	s.Send(xdstest.Response(t, "1"))
	if shouldRateLimit(t, conn, "acme") != rls.RateLimitResponse_OK {
		t.Error("a limit that is gone refuses")
	}
	if !strings.Contains(log.String(), "there are no limits: every request is admitted") {
		t.Error("the log does not say that there are no limits")
	}
	apitest.WantSeries(t, apitest.Scrape(t, url), map[string]string{
		"ratelimit_config_valid": "1", "ratelimit_config_limits": "0"})
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// TestXDSWaits: without FORCE_START_WITHOUT_INITIAL_CONFIG the service listens when it has a first
// configuration, and ends before if it is told to. Flags of envoyproxy/ratelimit's command change
// nothing.
func TestXDSWaits(t *testing.T) {
	s := xdstest.New(t, nil)
	setXDS(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	log := new(apitest.Log)
	code := make(chan int, 1)
	go func() { code <- run(ctx, []string{"--quotaRateLimitServiceAddr=a"}, log, log) }()
	s.Next()
	if strings.Contains(log.String(), "listening") {
		t.Errorf("it listens without limits: %s", log)
	}
	cancel()
	if got := <-code; got != exitOK || !strings.Contains(log.String(), "arguments are ignored") {
		t.Errorf("exit code %d: %s", got, log)
	}
	go func() { s.Next(); s.Send(xdstest.Response(t, "1", tenants(1))) }()
	_, log, _ = start(t)
	conn := dialEnvoy(t, log)
	for i, want := range []rls.RateLimitResponse_Code{1, 2} {
		if got := shouldRateLimit(t, conn, "acme"); got != want {
			t.Errorf("call %d: %v, want %v", i, got, want)
		}
	}
}

// TestValidateXDS: without a file, validate reads what the server of xDS has.
func TestValidateXDS(t *testing.T) {
	if out, code := runOutput(t, "validate"); code != exitError ||
		!strings.Contains(out, "name a file") {
		t.Errorf("%d %s", code, out)
	}
	s := xdstest.New(t, nil)
	setXDS(t, s)
	wrong := tenants(1)
	wrong.Descriptors[0].Key = ""
	for _, tt := range []struct {
		resources []*config.RateLimitConfig
		code      int
		want      string
	}{
		{[]*config.RateLimitConfig{tenants(1)}, exitOK, "xds:" + s.Addr + ": 1 limit\n"},
		{[]*config.RateLimitConfig{wrong}, exitError, "xds:api:3:3: the descriptor has no key"},
		{nil, exitOK, "there are no limits: every request is admitted"},
	} {
		go func() { s.Next(); s.Responses <- xdstest.Response(t, "1", tt.resources...) }()
		if out, code := runOutput(t, "validate"); code != tt.code ||
			!strings.Contains(out, tt.want) {
			t.Errorf("%d %s, want %s", code, out, tt.want)
		}
	}
	s.Stop()
	if out, code := runOutput(t, "validate"); code != exitError ||
		!strings.Contains(out, "connection refused") {
		t.Errorf("%d %s", code, out)
	}
}

// runOutput runs a command and returns all that it prints, and its exit code.
func runOutput(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	code, stdout, stderr := command(t, args...)
	return stdout + stderr, code
}
