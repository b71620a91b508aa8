package daemon

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/conns"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestStopWithHalfRequests: a request whose body never comes ends in time, so that the code is 0.
func TestStopWithHalfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := newPipeListener()
		ctx, cancel := context.WithCancel(t.Context())
		handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			_, _ = io.Copy(io.Discard, r.Body)
		})
		go func() {
			conn, served := net.Pipe()
			listener.conns <- served
			_, _ = io.WriteString(conn,
				"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
			_, _ = io.Copy(io.Discard, conn)
		}()
		err := serve(ctx, []server{{testServer(handler), listener}}, httpapi.NewReadiness(nil), 0,
			apitest.Discard)
		if err != nil {
			t.Error(err)
		}
	})
}

// TestStopWithUnreadAnswers: a client that does not read its answers, or says that it has no room
// for them, does not keep the service from ending with code 0.
func TestStopWithUnreadAnswers(t *testing.T) {
	get := strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 100)
	// SETTINGS_INITIAL_WINDOW_SIZE is 0, and :method, :scheme, :path are those of GET /.
	noRoom := apitest.HTTP2Preface +
		"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00" +
		"\x00\x00\x06\x01\x05\x00\x00\x00\x01\x82\x87\x84\x41\x01a"
	for name, text := range map[string]string{"HTTP": get, "HTTP2": noRoom} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pipes := newPipeListener()
				listener := conns.Listen(pipes, conns.Bounds{})
				ctx, stop := context.WithCancel(t.Context())
				handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					time.AfterFunc(time.Second, stop)
					_, _ = w.Write(make([]byte, 100_000))
				})
				s := testServer(handler)
				s.Protocols = new(http.Protocols)
				s.Protocols.SetHTTP1(true)
				s.Protocols.SetUnencryptedHTTP2(name == "HTTP2")
				go func() {
					client, served := net.Pipe()
					pipes.conns <- served
					if name == "HTTP2" {
						go func() { _, _ = io.Copy(io.Discard, client) }()
					}
					_, _ = io.WriteString(client, text)
				}()
				began := time.Now()
				err := serve(ctx, []server{{httpServer{s, listener}, listener}},
					httpapi.NewReadiness(nil), 0, apitest.Discard)
				if err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took < shutdownTimeout/2 {
					t.Errorf("it ended after %v, before the client might have read", took)
				}
			})
		})
	}
}
