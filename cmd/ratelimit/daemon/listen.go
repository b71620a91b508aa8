package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/conns"
	"github.com/truewindow/ratelimit/cmd/ratelimit/envoy"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/lograte"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// UnixPrefix begins an address that is the path of a Unix socket.
const UnixPrefix = "unix:"

// listen listens on a TCP address, or on the socket of a path after "unix:". A socket that a
// process has left behind is replaced.
func listen(addr string) (net.Listener, error) {
	path, ok := strings.CutPrefix(addr, UnixPrefix)
	if !ok {
		return net.Listen("tcp", addr)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}

// removeStale removes the socket at path if no process listens on it.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is a file and not a socket", path)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close()
		return fmt.Errorf("another process listens on %s", path)
	}
	return os.Remove(path)
}

// A server answers on one listener.
type server struct {
	answering
	listener net.Listener
}

// answering is a server of HTTP or gRPC.
type answering interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
	Close() error
}

func (s server) addr() string { return s.listener.Addr().String() }

// listeners have what the servers of all addresses need.
type listeners struct {
	cmd         *Serve
	credentials *credentials
	counts      *metrics
	failed      *failedConnections
	ready       *httpapi.Readiness
	bounds      *bounds
	log         *slog.Logger
}

// all returns the servers that answer with handler and e: that of --addr and, if there are, those
// of --admin-addr, which is the only one then to answer requests that read or write, of
// --grpc-addr, and of metrics alone. They listen, and have not accepted a connection yet.
func (l *listeners) all(handler http.Handler, e *envoy.Service) (servers []server, err error) {
	defer func() {
		if err != nil {
			for _, s := range servers {
				_ = s.listener.Close()
			}
		}
	}()
	admin := handler
	if l.cmd.AdminAddr != "" {
		handler = onlyDecisions(handler)
	}
	s, err := l.http(l.cmd.Addr, l.bounds.http, handler)
	if err != nil {
		return nil, err
	}
	servers = append(servers, s)
	if l.cmd.AdminAddr != "" {
		if s, err = l.http(l.cmd.AdminAddr, l.bounds.admin, admin); err != nil {
			return servers, err
		}
		servers = append(servers, s)
	}
	if e != nil {
		if s, err = l.grpc(e); err != nil {
			return servers, err
		}
		servers = append(servers, s)
	}
	if addr := l.cmd.envoy.MetricsAddr; addr != "" {
		if s, err = l.http(addr, l.bounds.admin, l.onlyMetrics(admin)); err != nil {
			return servers, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// http returns a server on an address with at most so many connections.
func (l *listeners) http(addr string, most int, handler http.Handler) (server, error) {
	listener, err := listen(addr)
	if err != nil {
		return server{}, err
	}
	bounded := conns.Listen(listener, l.bounds.of(most))
	listener = bounded
	if certs := l.credentials.certificates; certs != nil && listener.Addr().Network() == "tcp" {
		listener = tls.NewListener(listener, certs.config())
	}
	handler = l.counts.measure(httpapi.WithRetryAfter(
		l.cmd.BreakerPause, l.cmd.RetryJitter, countBytes(handler)))
	return server{httpServer{newServer(handler, l.failed, l.log), bounded}, listener}, nil
}

// onlyDecisions answers requests that read or write with 404, and passes the rest on.
func onlyDecisions(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if httpapi.Needs(r.URL.Path)&(access.ToRead|access.ToWrite) != 0 {
			problem.Problem{Status: http.StatusNotFound,
				Detail: "This path is answered on the address of --admin-addr."}.Write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// onlyMetrics answers requests of metrics, at their path of envoyproxy/ratelimit.
func (l *listeners) onlyMetrics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != l.cmd.envoy.MetricsPath {
			http.NotFound(w, r)
			return
		}
		there := r.Clone(r.Context())
		there.URL.Path = httpapi.MetricsPath
		next.ServeHTTP(w, there)
	})
}

// patientContext is the context of requests over HTTP, whose clients may wait longer than Envoy.
var patientContext = envoy.Patient(context.Background())

// newServer returns a server with bounds on what a client can make it wait for.
func newServer(handler http.Handler, failed *failedConnections, log *slog.Logger) *http.Server {
	s := &http.Server{
		Handler:           handler,
		BaseContext:       func(net.Listener) context.Context { return patientContext },
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       readTimeout,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerConnection: 64 << 10, // the least that there may be
			MaxReceiveBufferPerStream:     streamBuffer,
		},
		ErrorLog: stdlog.New(&serverErrors{log: log}, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conns.Of(c))
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			own := conns.Of(c)
			switch {
			case own == nil:
			case state == http.StateActive:
				own.Busy()
			case state == http.StateIdle:
				own.Idle()
			}
		},
	}
	failed.watch(s)
	return s
}

const (
	// maxStreams is how many requests of HTTP/2 a connection may have in flight. Clients open
	// another one for more.
	maxStreams = 16
	// streamBuffer is what comes of a body before the service reads it.
	streamBuffer = 16 << 10
)

// readTimeout is how long a request may take to arrive: less than shutdownTimeout, so that one that
// never does is over by then.
const readTimeout = shutdownTimeout - time.Second

// serverErrors logs what servers of net/http report, at most one line a second of what clients can
// cause as often as they like, such as handshakes of TLS that fail.
type serverErrors struct {
	log   *slog.Logger
	lines lograte.Limit
}

func (s *serverErrors) Write(line []byte) (int, error) {
	text := strings.TrimSuffix(string(line), "\n")
	if strings.HasPrefix(text, "http: panic") || strings.HasPrefix(text, "http: Accept") {
		s.log.Warn(text)
	} else if ok, suppressed := s.lines.Pass(time.Now()); ok {
		s.log.Warn(text, "suppressed", suppressed)
	}
	return len(line), nil
}

// httpServer is a server that does not wait for connections without a request when it stops.
type httpServer struct {
	*http.Server
	conns *conns.Listener
}

// unusedTime is how long a connection may be silent when the server stops: a request may be on its
// way.
const unusedTime = time.Second / 2

// cutTime is how long before the end of its time the server cuts off the connections that are left:
// their clients may not read the answers.
const cutTime = time.Second / 2

func (s httpServer) Shutdown(ctx context.Context) error {
	done := make(chan error, 2)
	shutdown := func() { done <- s.Server.Shutdown(ctx) }
	go shutdown()
	tick := time.NewTicker(unusedTime)
	defer tick.Stop()
	var late <-chan time.Time // nil without a deadline
	if end, ok := ctx.Deadline(); ok {
		late = time.After(time.Until(end) - cutTime)
	}
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C: // net/http waits for new connections, and for idle ones of HTTP/2
			s.conns.CloseUnused()
		case <-late:
			s.conns.CutAll()
			go shutdown() // looks at once, where the first one does twice a second by then
		}
	}
}
