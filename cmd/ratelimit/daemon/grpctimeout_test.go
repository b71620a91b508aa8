package daemon

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/envoy"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// busy is a store that answers after a time, if that is within its own timeout, as one on a server.
type busy struct {
	ratelimit.Store
	latency time.Duration
}

const ownTimeout = 100 * time.Millisecond

func (s *busy) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ownTimeout)
	defer cancel()
	select {
	case <-time.After(s.latency):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", driver.ErrOutcomeUnknown, ctx.Err())
	}
}

func (s *busy) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	if err := s.wait(ctx); err != nil {
		return driver.Result{}, err
	}
	return s.Store.Take(ctx, d)
}

func (s *busy) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.Store.TakeAll(ctx, ds, out)
}

// A busyScene is a service with --grpc-addr on a busy store.
type busyScene struct {
	*testing.T
	api     *httpapi.API
	store   *busy
	breaker *layer.Breaker
	envoy   *envoy.Service
	log     *strings.Builder
}

func newBusyScene(t *testing.T, policy onFailure) *busyScene {
	t.Helper()
	memory, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &busyScene{T: t, store: &busy{Store: memory, latency: 40 * time.Millisecond},
		log: new(strings.Builder)}
	c := &Serve{
		Flags:     config.Flags{Limit: config.LimitFlags(ratelimit.PerMinute("requests", 1000))},
		OnFailure: policy, Instances: 1, Store: "redis://server", GRPCAddr: "127.0.0.1:0",
		EnvoyLook: "free", BreakerFailures: 20,
	}
	if err := c.prepareGRPC(); err != nil {
		t.Fatal(err)
	}
	s := &backend.Store{Store: b.store, Close: memory.Close}
	guarded, err := c.guard(s, apitest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	b.breaker = guarded.breaker
	t.Cleanup(func() { _ = guarded.Close() })
	log := c.logger(b.log)
	l, err := c.newLimits(t.Context(), c.newDecider(s.Store, nil), nil, log)
	if err != nil {
		t.Fatal(err)
	}
	if b.envoy, err = c.newEnvoy(l, nil, nil, log); err != nil {
		t.Fatal(err)
	}
	b.api = httpapi.New(httpapi.Options{
		Decider: l.decider, Config: l.config.Load, Log: log, Envoy: b.envoy.JSON()})
	return b
}

// grpc asks for a unit over gRPC, and http asks /v1/decide and /json.
func (b *busyScene) grpc() (*rls.RateLimitResponse, error) {
	return b.envoy.ShouldRateLimit(b.Context(), &rls.RateLimitRequest{
		Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{{
			Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "key", Value: "a"}}}}})
}

// post sends a request, with the context of the service's servers.
func (b *busyScene) post(path, body string) (status int) {
	b.Helper()
	r := apitest.Request(http.MethodPost, path, body)
	status, _, _ = apitest.Call(b.T, b.api, r.WithContext(testServer(nil).BaseContext(nil)))
	return status
}

func (b *busyScene) http(want int) {
	b.Helper()
	for path, body := range map[string]string{
		"/v1/decide": `{"key":"a"}`,
		"/json":      `{"domain":"d","descriptors":[{"entries":[{"key":"key","value":"a"}]}]}`,
	} {
		if status := b.post(path, body); status != want {
			b.Errorf("%s: %d, want %d", path, status, want)
		}
	}
}

// TestGRPCTimeout: on a busy server calls over gRPC end within Envoy's time, and --on-failure
// decides for them. Calls over HTTP have the store's time, and no breaker opens for them.
func TestGRPCTimeout(t *testing.T) {
	for policy, admitted := range map[onFailure]bool{
		failClosed: false, failOpen: true, failLocal: true,
	} {
		t.Run(string(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBusyScene(t, policy)
				for range 100 {
					began := time.Now()
					resp, err := b.grpc()
					if time.Since(began) > 15*time.Millisecond || (err == nil) != admitted ||
						admitted && resp.GetOverallCode() != rls.RateLimitResponse_OK {
						t.Fatalf("%v %v after %v", resp, err, time.Since(began))
					}
				}
				b.http(200)
				if s := b.breaker.Stats(); s.Failures > 0 || s.Opened > 0 {
					t.Errorf("the breaker: %+v", s)
				}
				if log := b.log.String(); !admitted &&
					(!strings.Contains(log, "15ms") || !strings.Contains(log, "REDIS_TIMEOUT")) {
					t.Errorf("the log does not name the timeout and its setting: %s", log)
				}
			})
		})
	}
}

// TestGRPCTimeoutServerDown: a server that does not answer at all opens the breaker, also if only
// calls over gRPC reach it.
func TestGRPCTimeoutServerDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBusyScene(t, failOpen)
		b.store.latency = time.Hour
		began := time.Now()
		for b.breaker.Stats().Opened == 0 && time.Since(began) < time.Minute {
			if _, err := b.grpc(); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the breaker opened after %v", took)
		}
		if resp, err := b.grpc(); err != nil {
			t.Errorf("%v %v", resp, err)
		}
	})
}

// TestStoreTimeoutSetting: the log of a call over HTTP without an answer names the setting too.
func TestStoreTimeoutSetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBusyScene(t, failClosed)
		b.store.latency = time.Hour
		if status := b.post("/v1/decide", `{"key":"a"}`); status != 503 {
			t.Errorf("status %d", status)
		}
		if log := b.log.String(); !strings.Contains(log, "timeout in the URL of --store") {
			t.Errorf("the log is %s", log)
		}
	})
}
