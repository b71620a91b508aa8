package envoy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
)

func TestHealth(t *testing.T) {
	f := start(t, Config{})
	client := healthpb.NewHealthClient(f.conn)
	check := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for _, name := range []string{
			"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService",
			"kuadrant.service.ratelimit.v1.RateLimitService",
		} {
			resp, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
			if err != nil || resp.GetStatus() != want {
				t.Errorf("%q: %v %v, want %v", name, resp, err, want)
			}
		}
	}
	check(healthpb.HealthCheckResponse_NOT_SERVING)
	f.server.SetServing(true)
	check(healthpb.HealthCheckResponse_SERVING)
	f.server.SetServing(false)
	check(healthpb.HealthCheckResponse_NOT_SERVING)
	f.call(ok, "user=42") // it still answers
}

// A client without the protocols' files finds the services and their messages.
func TestReflection(t *testing.T) {
	f := start(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := reflectionpb.NewServerReflectionClient(f.conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(req *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(req); err != nil {
			t.Fatal(err)
		}
		resp, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	methods := map[string]string{
		"envoy.service.ratelimit.v3": "ShouldRateLimit", "kuadrant.service.ratelimit.v1": "Commit",
		"grpc.health.v1": "Check",
	}
	var names []string
	for _, s := range ask(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{},
	}).GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	for _, name := range names {
		files := ask(&reflectionpb.ServerReflectionRequest{
			MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{
				FileContainingSymbol: name,
			},
		}).GetFileDescriptorResponse().GetFileDescriptorProto()
		var file descriptorpb.FileDescriptorProto
		if len(files) == 0 || proto.Unmarshal(files[0], &file) != nil {
			t.Fatalf("%s: %d files", name, len(files))
		}
		method := methods[file.GetPackage()]
		delete(methods, file.GetPackage())
		if method != "" && !slices.ContainsFunc(file.GetService()[0].GetMethod(),
			func(m *descriptorpb.MethodDescriptorProto) bool { return m.GetName() == method }) {
			t.Errorf("%s has no method %s", name, method)
		}
	}
	if len(methods) > 0 {
		t.Errorf("the services are %q", names)
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
}

// serveTLS serves on loopback with the options, and returns a client with its own.
func serveTLS(t *testing.T, server, client *tls.Config) rls.RateLimitServiceClient {
	t.Helper()
	service := newService(t, down{}, Config{}, new(strings.Builder))
	s := NewServer(service, ServerOptions{TLS: server})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(credentials.NewTLS(client)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		_ = s.Stop(context.Background())
		<-served
	})
	return rls.NewRateLimitServiceClient(conn)
}

func TestTLS(t *testing.T) {
	// The certificate of httptest is for example.com, and is its own authority.
	issuer := httptest.NewTLSServer(nil)
	defer issuer.Close()
	certificates := issuer.TLS.Certificates
	pool := x509.NewCertPool()
	pool.AddCert(issuer.Certificate())
	for name, c := range map[string]struct {
		server, client *tls.Config
		want           codes.Code
	}{
		"tls": {&tls.Config{Certificates: certificates},
			&tls.Config{RootCAs: pool, ServerName: "example.com"}, codes.OK},
		"another authority": {&tls.Config{Certificates: certificates},
			&tls.Config{RootCAs: x509.NewCertPool(), ServerName: "example.com"}, codes.Unavailable},
		"no certificate of the client": {
			&tls.Config{Certificates: certificates, ClientAuth: tls.RequireAnyClientCert},
			&tls.Config{RootCAs: pool, ServerName: "example.com"}, codes.Unavailable},
		"mutual": {
			&tls.Config{Certificates: certificates, ClientAuth: tls.RequireAnyClientCert},
			&tls.Config{RootCAs: pool, ServerName: "example.com", Certificates: certificates},
			codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			client := serveTLS(t, c.server, c.client)
			_, err := client.ShouldRateLimit(t.Context(), request("user=banned"))
			if status.Code(err) != c.want {
				t.Errorf("the error is %v, want %v", err, c.want)
			}
		})
	}
}

// A connection ends after its age, so that clients find new servers.
func TestMaxConnectionAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(newService(t, down{}, Config{}, new(strings.Builder)),
			ServerOptions{MaxConnectionAge: time.Hour})
		listener := bufconn.Listen(1 << 16)
		served := make(chan error, 1)
		go func() { served <- s.Serve(listener) }()
		conn := dial(t, listener)
		client := rls.NewRateLimitServiceClient(conn)
		if _, err := client.ShouldRateLimit(t.Context(), request("user=root")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Minute)
		synctest.Wait()
		if got := conn.GetState(); got != connectivity.Ready {
			t.Errorf("after 50 minutes the connection is %v", got)
		}
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if got := conn.GetState(); got != connectivity.Idle {
			t.Errorf("after 70 minutes the connection is %v", got)
		}
		if _, err := client.ShouldRateLimit(t.Context(), request("user=root")); err != nil {
			t.Error(err)
		}
		conn.Close()
		_ = s.Stop(context.Background())
		<-served
	})
}

// Stop waits for calls in flight, and cuts them off when its context ends.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service, err := New(Config{Decider: hang{}})
		if err != nil {
			t.Fatal(err)
		}
		s := NewServer(service, ServerOptions{})
		s.SetServing(true)
		listener := bufconn.Listen(1 << 16)
		served := make(chan error, 1)
		go func() { served <- s.Serve(listener) }()
		conn := dial(t, listener)
		called := make(chan error, 1)
		go func() {
			_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(
				context.Background(), request("user=1"))
			called <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stop: %v", err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v", took)
		}
		if err := <-called; status.Code(err) != codes.Unavailable {
			t.Errorf("the call: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		conn.Close()
	})
}

func TestLargeMessage(t *testing.T) {
	f := start(t, Config{})
	large := request("user=" + strings.Repeat("v", maxReceived))
	_, err := f.client.ShouldRateLimit(t.Context(), large)
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the error is %v", err)
	}
}
