package daemon

import (
	"cmp"
	"context"

	"github.com/truewindow/ratelimit/cmd/ratelimit/envoy"
)

// grpcServer is an envoy.Server with the methods of an http.Server.
type grpcServer struct{ *envoy.Server }

func (s grpcServer) Shutdown(ctx context.Context) error { return s.Stop(ctx) }

func (s grpcServer) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Stop(ctx) // it has been cut off
	return nil
}

// grpc returns the server of --grpc-addr.
func (l *listeners) grpc(e *envoy.Service) (server, error) {
	listener, err := listen(l.cmd.GRPCAddr)
	if err != nil {
		return server{}, err
	}
	options := l.cmd.envoy.ServerOptions
	options.MaxConnectionAge = cmp.Or(l.cmd.GRPCMaxConnectionAge, options.MaxConnectionAge)
	options.Bounds = l.bounds.of(l.bounds.grpc)
	if certs := l.credentials.grpc; certs != nil && listener.Addr().Network() == "tcp" {
		options.TLS = certs.config()
		options.HandshakeFailed = func() { l.failed.grpcTLS.Add(1) }
	}
	s := envoy.NewServer(e, options)
	s.SetServing(true)
	context.AfterFunc(l.ready.Draining(), func() { s.SetServing(false) })
	return server{grpcServer{s}, listener}, nil
}
