package envoy

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/truewindow/ratelimit/cmd/ratelimit/kuadrant"
)

// maxStreams is how many calls a connection may have in flight.
const maxStreams = 10_000

// healthNames are the services whose health the server reports: itself, the name under which
// envoyproxy/ratelimit does, and both protocols.
var healthNames = []string{"", "ratelimit", rls.RateLimitService_ServiceDesc.ServiceName,
	kuadrant.RateLimitService_ServiceDesc.ServiceName}

// ServerOptions are the options of a [Server]. The zero ServerOptions are the defaults.
type ServerOptions struct {
	TLS *tls.Config // nil: without TLS
	// HandshakeFailed, if not nil, is called for each connection whose TLS handshake fails. It must
	// be safe for concurrent use.
	HandshakeFailed func()

	// MaxConnectionAge is after how long, give or take a tenth, a connection is closed, so that
	// clients find new servers. Its calls may take MaxConnectionAgeGrace longer. Zero means 24h and
	// 1h.
	MaxConnectionAge, MaxConnectionAgeGrace time.Duration
}

// A Server serves a [Service] over gRPC, with the health and reflection services. Create one with
// [NewServer].
type Server struct {
	grpc   *grpc.Server
	health *health.Server
}

// NewServer returns a server whose health is NOT_SERVING until SetServing.
func NewServer(s *Service, o ServerOptions) *Server {
	if o.MaxConnectionAge == 0 {
		o.MaxConnectionAge = 24 * time.Hour
	}
	if o.MaxConnectionAgeGrace == 0 {
		o.MaxConnectionAgeGrace = time.Hour
	}
	options := []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: o.MaxConnectionAge, MaxConnectionAgeGrace: o.MaxConnectionAgeGrace,
		}),
		// Envoy may be configured to send pings more often than a server of gRPC lets it.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: 5 * time.Second, PermitWithoutStream: true,
		}),
		grpc.MaxConcurrentStreams(maxStreams),
	}
	if o.TLS != nil {
		options = append(options, grpc.Creds(
			watchedCredentials{credentials.NewTLS(o.TLS), o.HandshakeFailed}))
	}
	options = append(options, codecOptions(s)...)
	server := &Server{grpc: grpc.NewServer(options...), health: health.NewServer()}
	server.SetServing(false)
	rls.RegisterRateLimitServiceServer(server.grpc, s)
	kuadrant.RegisterRateLimitServiceServer(server.grpc, &kuadrantService{Service: s})
	healthpb.RegisterHealthServer(server.grpc, server.health)
	reflection.Register(server.grpc)
	return server
}

// watchedCredentials tell of handshakes that fail.
type watchedCredentials struct {
	credentials.TransportCredentials
	failed func() // or nil
}

func (c watchedCredentials) ServerHandshake(
	conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := c.TransportCredentials.ServerHandshake(conn)
	if err != nil && c.failed != nil {
		c.failed()
	}
	return secure, info, err
}

// SetServing says whether the server is healthy. A server that drains is not, and still answers.
func (s *Server) SetServing(serving bool) {
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		state = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range healthNames {
		s.health.SetServingStatus(name, state)
	}
}

// Serve answers on a listener until Stop, and closes it.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// Stop takes no more calls, and returns when those in flight have ended. When ctx ends, it cuts
// them off, and returns the context's error.
func (s *Server) Stop(ctx context.Context) error {
	s.SetServing(false)
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
		return ctx.Err()
	}
}
