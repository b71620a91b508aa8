// Package xdstest has a server of xDS for tests, which sends what they want.
package xdstest

import (
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"
)

// Type is the type of the resources.
const Type = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// A Server sends what a test wants, and passes on what it is asked. Its address stays when it
// starts again.
type Server struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	testing.TB
	Requests  chan *discovery.DiscoveryRequest
	Headers   chan metadata.MD
	Responses chan *discovery.DiscoveryResponse
	Addr      string

	mu    sync.Mutex
	newer chan struct{} // closed when there is a newer stream, which gets the responses
	grpc  *grpc.Server
	done  sync.WaitGroup
}

// New starts a server, which ends with the test. c is nil without TLS.
func New(t testing.TB, c *tls.Config) *Server {
	t.Helper()
	s := &Server{TB: t, Addr: "127.0.0.1:0", Headers: make(chan metadata.MD, 100),
		Requests:  make(chan *discovery.DiscoveryRequest, 1000),
		Responses: make(chan *discovery.DiscoveryResponse)}
	s.Start(c)
	t.Cleanup(s.Stop)
	return s
}

// Start starts the server again, on its address.
func (s *Server) Start(c *tls.Config) {
	s.Helper()
	listener, err := net.Listen("tcp", s.Addr)
	if err != nil {
		s.Fatal(err)
	}
	s.Addr = listener.Addr().String()
	secure := insecure.NewCredentials()
	if c != nil {
		secure = credentials.NewTLS(c)
	}
	s.grpc = grpc.NewServer(grpc.Creds(secure))
	discovery.RegisterAggregatedDiscoveryServiceServer(s.grpc, s)
	server := s.grpc
	s.done.Go(func() { _ = server.Serve(listener) })
}

// Stop ends the server and its streams.
func (s *Server) Stop() {
	s.grpc.Stop()
	s.done.Wait()
}

// StreamAggregatedResources serves a stream.
func (s *Server) StreamAggregatedResources(
	stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer,
) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	s.Headers <- md
	newer := make(chan struct{})
	s.mu.Lock()
	if s.newer != nil {
		close(s.newer)
	}
	s.newer = newer
	s.mu.Unlock()
	ended := make(chan error, 1)
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			s.Requests <- r
		}
	}()
	for {
		select {
		case err := <-ended:
			return err
		case <-newer:
			return nil
		case r := <-s.Responses:
			if err := stream.Send(r); err != nil {
				return err
			}
		}
	}
}

// Patience is how long a test waits for what has to come.
const Patience = 20 * time.Second

// Next returns the next request.
func (s *Server) Next() *discovery.DiscoveryRequest {
	s.Helper()
	select {
	case r := <-s.Requests:
		return r
	case <-time.After(Patience):
		s.Fatal("no request")
		return nil
	}
}

// Send sends a response, and returns what is said of it.
func (s *Server) Send(r *discovery.DiscoveryResponse) *discovery.DiscoveryRequest {
	s.Helper()
	select {
	case s.Responses <- r:
	case <-time.After(Patience):
		s.Fatal("no stream")
	}
	return s.Next()
}

// Response returns one with a version, which is the nonce too after "n".
func Response(
	t testing.TB, version string, resources ...*config.RateLimitConfig,
) *discovery.DiscoveryResponse {
	t.Helper()
	r := &discovery.DiscoveryResponse{VersionInfo: version, Nonce: "n" + version, TypeUrl: Type}
	for _, c := range resources {
		packed, err := anypb.New(c)
		if err != nil {
			t.Fatal(err)
		}
		r.Resources = append(r.Resources, packed)
	}
	return r
}

// Domain returns a resource without limits.
func Domain(name string) *config.RateLimitConfig {
	return &config.RateLimitConfig{Name: name, Domain: name}
}
