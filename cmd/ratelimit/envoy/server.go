package envoy

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/truewindow/ratelimit/cmd/ratelimit/conns"
	"github.com/truewindow/ratelimit/cmd/ratelimit/kuadrant"
)

const (
	// maxStreams is how many calls a connection may have in flight. Envoy opens another one for
	// more.
	maxStreams = 1000
	// maxHeader is the largest size of the header of a call in bytes.
	maxHeader = 16 << 10
	// setupTime is how long a client may take for the handshake of TLS and the preface of HTTP/2.
	setupTime = 5 * time.Second
	// quietTime is for how long no call is in flight before Stop cuts off the clients that are
	// left.
	quietTime = time.Second
)

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

	// MaxConnectionAge is the age, give or take a tenth, at which a connection is closed, so that
	// clients find new servers. Its calls may take MaxConnectionAgeGrace longer. Zero means 24h and
	// 1h.
	MaxConnectionAge, MaxConnectionAgeGrace time.Duration

	Bounds conns.Bounds // of each listener
}

// A Server serves a [Service] over gRPC, with the health and reflection services. Create one with
// [NewServer].
type Server struct {
	grpc    *grpc.Server
	health  *health.Server
	options ServerOptions
	calls   atomic.Int64 // in flight
	watches watches

	mu        sync.Mutex
	listeners []*conns.Listener
}

// NewServer returns a server whose health is NOT_SERVING until SetServing.
func NewServer(s *Service, o ServerOptions) *Server {
	if o.MaxConnectionAge == 0 {
		o.MaxConnectionAge = 24 * time.Hour
	}
	if o.MaxConnectionAgeGrace == 0 {
		o.MaxConnectionAgeGrace = time.Hour
	}
	server := &Server{health: health.NewServer(), options: o}
	secure := insecure.NewCredentials()
	if o.TLS != nil {
		secure = watchedCredentials{credentials.NewTLS(o.TLS), o.HandshakeFailed}
	}
	server.grpc = grpc.NewServer(append([]grpc.ServerOption{
		grpc.Creds(counting{secure}),
		grpc.ChainUnaryInterceptor(server.count, s.intercept),
		grpc.StreamInterceptor(server.watches.intercept),
		grpc.ConnectionTimeout(setupTime),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.ReadBufferSize(16 << 10), // of each connection
		// Windows that grow would let a stream hold more before its message is known to fit.
		grpc.StaticStreamWindowSize(64 << 10),
		grpc.StaticConnWindowSize(1 << 20),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: o.MaxConnectionAge, MaxConnectionAgeGrace: o.MaxConnectionAgeGrace,
		}),
		// Envoy may be configured to send pings more often than a server of gRPC lets it.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: 5 * time.Second, PermitWithoutStream: true,
		}),
		grpc.MaxConcurrentStreams(maxStreams),
	}, codecOptions(s)...)...)
	server.SetServing(false)
	rls.RegisterRateLimitServiceServer(server.grpc, s)
	kuadrant.RegisterRateLimitServiceServer(server.grpc, &kuadrantService{Service: s})
	healthpb.RegisterHealthServer(server.grpc, server.health)
	reflection.Register(server.grpc)
	return server
}

// watchedCredentials call failed after each handshake that fails.
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

// count counts the calls in flight.
func (s *Server) count(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	s.calls.Add(1)
	defer s.calls.Add(-1)
	return handle(ctx, req)
}

// Serve answers on a listener until Stop, and closes it.
func (s *Server) Serve(l net.Listener) error {
	bounded := conns.Listen(l, s.options.Bounds)
	s.mu.Lock()
	s.listeners = append(s.listeners, bounded)
	s.mu.Unlock()
	return s.grpc.Serve(bounded)
}

// Stop takes no more calls, ends streams such as those of Watch, and returns when the calls in
// flight have ended. When ctx ends, it cuts them off, and returns the context's error.
func (s *Server) Stop(ctx context.Context) error {
	s.SetServing(false)
	s.watches.end()
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	const ticks = 10
	ticker := time.NewTicker(quietTime / ticks)
	defer ticker.Stop()
	for tick, quiet := 1, 0; ; tick++ {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			s.grpc.Stop()
			<-done
			return ctx.Err()
		case <-ticker.C:
		}
		if tick >= ticks/2 { // GracefulStop sends no GOAWAY while another client connects
			s.closeUnused()
		}
		if quiet++; s.calls.Load() > 0 {
			quiet = 0
		}
		if quiet > ticks { // clients are left that do not close, or send messages without an end
			s.grpc.Stop()
			<-done
			return nil
		}
	}
}

func (s *Server) closeUnused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		l.CloseUnused()
	}
}
