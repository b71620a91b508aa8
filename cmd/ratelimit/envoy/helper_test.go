package envoy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/envoyfile"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// file has the limits of most tests.
const file = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 10}
    descriptors: [{key: path, rate_limit: {unit: second, requests_per_unit: 3}}]
  - key: user
    value: banned
    rate_limit: {unit: day, requests_per_unit: 0}
  - key: user
    value: root
    rate_limit: {unlimited: true}
    metadata: {unlimited: true}
  - key: plan
    rate_limit: {unit: hour, requests_per_unit: 2, name: plans}
    metadata: {plan: {kind: paid}, list: [1]}
  - key: tried
    rate_limit: {unit: minute, requests_per_unit: 1}
    shadow_mode: true
    metadata: {plan: {kind: other, tried: true}}
  - key: special
    rate_limit: {unit: week, requests_per_unit: 5, replaces: [{name: plans}]}
  - key: primary
    rate_limit: {unit: hour, requests_per_unit: 2}
    quota_mode: true
    metadata: {has: {primary: true}}
  - key: secondary
    rate_limit: {unit: hour, requests_per_unit: 5, name: second}
    quota_mode: true
    metadata: {has: {secondary: true}}
  - {key: monthly, rate_limit: {unit: month, requests_per_unit: 1}}
  - {key: yearly, rate_limit: {unit: year, requests_per_unit: 4294967295}}
`

// A fixture is a service with the limits of file, and a client of it over gRPC.
type fixture struct {
	testing.TB
	service *Service
	server  *Server
	conn    *grpc.ClientConn
	client  rls.RateLimitServiceClient
	log     *strings.Builder
}

// start starts a service on a store in memory. more are limits besides those of file.
func start(t testing.TB, c Config, more ...*rules.Limit) *fixture {
	t.Helper()
	store, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return startOn(t, store, c, more...)
}

func startOn(
	t testing.TB, store ratelimit.Store, c Config, more ...*rules.Limit,
) *fixture {
	t.Helper()
	f := &fixture{TB: t, log: new(strings.Builder)}
	f.service = newService(t, store, c, f.log, more...)
	f.server = NewServer(f.service, ServerOptions{})
	listener := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- f.server.Serve(listener) }()
	f.conn = dial(t, listener)
	f.client = rls.NewRateLimitServiceClient(f.conn)
	t.Cleanup(func() {
		f.conn.Close()
		if err := f.server.Stop(context.Background()); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return f
}

// dial returns a client of a listener, whose connection does not end when it is idle.
func dial(t testing.TB, listener *bufconn.Listener) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:service",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(0),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func newService(
	t testing.TB, store ratelimit.Store, c Config, log *strings.Builder, more ...*rules.Limit,
) *Service {
	t.Helper()
	domains, err := envoyfile.Read([]envoyfile.File{{Name: "f", Text: []byte(file)}},
		envoyfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(append(domains.Limits(), more...), domains)
	if err != nil {
		t.Fatal(err)
	}
	decider := decision.New(store)
	if err := decider.Use(set); err != nil {
		t.Fatal(err)
	}
	c.Decider, c.Log = decider, slog.New(slog.NewTextHandler(log, nil))
	c.Domains = func() *envoyfile.Domains { return domains }
	service, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return service
}

func (f *fixture) ask(req *rls.RateLimitRequest) *rls.RateLimitResponse {
	f.Helper()
	resp, err := f.client.ShouldRateLimit(context.Background(), req)
	if err != nil {
		f.Fatal(err)
	}
	if len(resp.GetStatuses()) != len(req.GetDescriptors()) {
		f.Fatalf("%d statuses of %d descriptors", len(resp.GetStatuses()),
			len(req.GetDescriptors()))
	}
	return resp
}

// call asks for one unit of each descriptor, and expects an answer.
func (f *fixture) call(want rls.RateLimitResponse_Code, texts ...string) *rls.RateLimitResponse {
	f.Helper()
	return f.expect(want, request(texts...))
}

func (f *fixture) expect(
	want rls.RateLimitResponse_Code, req *rls.RateLimitRequest,
) *rls.RateLimitResponse {
	f.Helper()
	resp := f.ask(req)
	if resp.GetOverallCode() != want {
		f.Fatalf("%v, want %v: %v", resp.GetOverallCode(), want, resp)
	}
	return resp
}

// remaining expects so many units to be left of a descriptor.
func (f *fixture) remaining(want uint32, text string) {
	f.Helper()
	req := request(text)
	req.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	if got := f.ask(req).GetStatuses()[0].GetLimitRemaining(); got != want {
		f.Errorf("%d units of %s are left, want %d", got, text, want)
	}
}

const (
	ok   = rls.RateLimitResponse_OK
	over = rls.RateLimitResponse_OVER_LIMIT
)

// request makes a request of descriptors such as "user=42,path=/".
func request(texts ...string) *rls.RateLimitRequest {
	req := &rls.RateLimitRequest{Domain: "shop"}
	for _, text := range texts {
		req.Descriptors = append(req.Descriptors, descriptor(text))
	}
	return req
}

func descriptor(text string) *limitv3.RateLimitDescriptor {
	d := &limitv3.RateLimitDescriptor{}
	for entry := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(entry, "=")
		d.Entries = append(d.Entries, &limitv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

// down is a store that fails.
type down struct{ err error }

func (d down) Take(context.Context, driver.Demand) (driver.Result, error) {
	return driver.Result{}, d.err
}

func (d down) TakeAll(context.Context, []driver.Demand, []driver.Result) error { return d.err }

// apart is a store that decides keys together only if they are equal, as a cluster does.
type apart struct{ ratelimit.Store }

func (s apart) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	for _, d := range ds {
		if d.Key != ds[0].Key {
			return errors.ErrUnsupported
		}
	}
	return s.Store.TakeAll(ctx, ds, out)
}
