package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alecthomas/kong"

	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"

	_ "github.com/truewindow/ratelimit/backend/redis"
)

// parseServe returns what kong makes of the arguments of a command.
func parseServe(t *testing.T, args []string) *Serve {
	t.Helper()
	var line struct {
		Serve Serve `cmd:"" envprefix:"RATELIMIT_"`
	}
	parser, err := kong.New(&line)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &line.Serve
}

// testServer returns a server whose log and counts nobody reads.
func testServer(handler http.Handler) *http.Server {
	return newServer(handler, new(failedConnections), apitest.Discard)
}

// pipeListener accepts connections that stay in the process.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// get sends a request and returns the answer.
func (l *pipeListener) get() (string, error) {
	client, server := net.Pipe()
	l.conns <- server
	if _, err := fmt.Fprint(client,
		"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(client)
	return string(answer), err
}

func TestShutdown(t *testing.T) {
	for name, tt := range map[string]struct {
		handler time.Duration // how long the handler goes on after the signal
		err     error
		after   time.Duration // how long after the signal serve returns
		answer  string
	}{
		"in time": {handler: shutdownTimeout - time.Second, after: shutdownTimeout - time.Second,
			answer: "HTTP/1.1 200 OK"},
		"too late": {handler: shutdownTimeout + time.Second, after: shutdownTimeout,
			err: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := newPipeListener()
				began, ended := make(chan struct{}), make(chan struct{})
				handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					defer close(ended)
					close(began)
					time.Sleep(tt.handler)
				})
				ctx, cancel := context.WithCancel(t.Context())
				answer := make(chan string, 1)
				go func() {
					got, _ := listener.get()
					answer <- got
				}()
				go func() {
					<-began
					cancel()
				}()
				signal := time.Now()
				err := serve(ctx, []server{{testServer(handler), listener}},
					httpapi.NewReadiness(nil), 0, apitest.Discard)
				if !errors.Is(err, tt.err) || (err != nil) != (tt.err != nil) {
					t.Errorf("error %v, want %v", err, tt.err)
				}
				// Shutdown polls, at intervals of up to half a second.
				if took := time.Since(signal); took < tt.after || took > tt.after+time.Second {
					t.Errorf("serve returned after %v, want %v", took, tt.after)
				}
				if got := <-answer; !strings.HasPrefix(got, tt.answer) ||
					tt.answer == "" && got != "" {
					t.Errorf("answer %q, want %q", got, tt.answer)
				}
				<-ended
			})
		})
	}
}

// TestSettleWithinHoldVariable: the variable has the meaning of the flag.
func TestSettleWithinHoldVariable(t *testing.T) {
	t.Setenv("RATELIMIT_SETTLE_WITHIN_HOLD", "true")
	t.Setenv("RATELIMIT_WRITE_TOKEN_FILE", filepath.Join(t.TempDir(), "none"))
	if c := parseServe(t, []string{"serve"}); !c.SettleWithinHold {
		t.Error("the variable does not set it")
	}
}
