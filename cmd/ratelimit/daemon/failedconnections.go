package daemon

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
)

// failedConnections counts connections that end before a handler gets a request of them.
type failedConnections struct {
	httpTLS, httpHead atomic.Int64 // in the handshake, in the head of a request
	grpcTLS           atomic.Int64
}

func (f *failedConnections) read(add addFunc) {
	const name = "ratelimit.connections.failed"
	for _, c := range []struct {
		protocol, cause string
		count           *atomic.Int64
	}{
		{"http", "tls", &f.httpTLS}, {"http", "request", &f.httpHead}, {"grpc", "tls", &f.grpcTLS},
	} {
		add(name, c.count.Load(), attribute.String("network.protocol.name", c.protocol),
			attribute.String("error.type", c.cause))
	}
}

// A connection is the state of a connection of HTTP.
type connection struct {
	state   atomic.Int32 // the last http.ConnState
	request atomic.Bool  // whether a handler got one since the last http.StateActive
}

type connectionKey struct{}

// noteRequest notes that a handler got r of its connection.
func noteRequest(r *http.Request) {
	if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
		c.request.Store(true)
	}
}

// watch counts connections of s that end without a request: net/http itself refuses a head that is
// malformed or too large.
func (f *failedConnections) watch(s *http.Server) {
	var open sync.Map // of *connection by net.Conn
	within, changed := s.ConnContext, s.ConnState
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if within != nil {
			ctx = within(ctx, conn)
		}
		c := new(connection)
		open.Store(conn, c)
		return context.WithValue(ctx, connectionKey{}, c)
	}
	s.ConnState = func(conn net.Conn, state http.ConnState) {
		if changed != nil {
			changed(conn, state)
		}
		found, ok := open.Load(conn)
		if !ok {
			return
		}
		c := found.(*connection)
		before := http.ConnState(c.state.Swap(int32(state)))
		switch state {
		case http.StateActive:
			c.request.Store(false)
		case http.StateClosed, http.StateHijacked:
			open.Delete(conn)
			if before == http.StateNew && !handshakeDone(conn) {
				f.httpTLS.Add(1)
			} else if before == http.StateActive && !c.request.Load() {
				f.httpHead.Add(1)
			}
		}
	}
}

// handshakeDone reports whether the handshake of TLS on conn is done, or conn has no TLS.
func handshakeDone(conn net.Conn) bool {
	secure, ok := conn.(*tls.Conn)
	return !ok || secure.ConnectionState().HandshakeComplete
}
