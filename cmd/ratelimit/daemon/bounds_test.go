package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/truewindow/ratelimit/cmd/ratelimit/conns"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestHeadersAreBounded sends a header that is far too long, and one of usual length.
func TestHeadersAreBounded(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, []server{{testServer(http.NotFoundHandler()), listener}},
			httpapi.NewReadiness(nil), 0, apitest.Discard)
	}()
	for size, want := range map[int]int{1 << 10: http.StatusNotFound,
		64 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://"+listener.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Close = true
		req.Header.Set("X-Large", strings.Repeat("x", size))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%d bytes of headers: status %d, want %d", size, res.StatusCode, want)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestBoundsFitMemory: the bounds follow the memory that Go may have, and are large without a
// limit.
func TestBoundsFitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(192 << 20)
	defer debug.SetMemoryLimit(before)
	small := newBounds(apitest.Discard)
	if most := min(2048, int(maxFiles()/2)); small.http != most || small.grpc != most/4 ||
		small.admin != most/8 {
		t.Errorf("%+v in 192 MiB", small)
	}
	if got := debug.SetMemoryLimit(-1); got != 192<<20 {
		t.Errorf("the memory limit is %d", got)
	}
	debug.SetMemoryLimit(math.MaxInt64)
	if large := newBounds(apitest.Discard); large.http < small.http && cgroupMemory() == 0 {
		t.Errorf("%+v without a limit", large)
	}
	var log apitest.Log
	b := newBounds(slog.New(slog.NewTextHandler(&log, nil)))
	for range 100 {
		b.onCut("too many connections")
	}
	for !strings.Contains(log.String(), "too many connections") {
		runtime.Gosched()
	}
	if n := strings.Count(log.String(), "a connection was cut off"); n != 1 {
		t.Errorf("%d lines", n)
	}
}

// TestBodiesOfManyWait: requests with large bodies that come at once are all answered, though they
// hold more together than there is room.
func TestBodiesOfManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, requests = 60_000, 250
		budget := conns.NewBudget(16 << 20) // three quarters of it for such bodies
		pipes := newPipeListener()
		listener := conns.Listen(pipes, conns.Bounds{Budget: budget, OnCut: func(why string) {
			t.Errorf("a connection was cut off: %s", why)
		}})
		handler := countBytes(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if body, err := io.ReadAll(r.Body); err != nil || len(body) != size {
				t.Errorf("a body of %d bytes: %v", len(body), err)
			}
		}))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- serve(ctx, []server{{httpServer{testServer(handler), listener},
				listener}}, httpapi.NewReadiness(nil), 0, apitest.Discard)
		}()
		rest := make(chan struct{})
		var group sync.WaitGroup
		for range requests {
			group.Go(func() {
				client, served := net.Pipe()
				pipes.conns <- served
				_, _ = fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"+
					"Content-Length: %d\r\n\r\n", size)
				<-rest
				_, _ = client.Write(make([]byte, size))
				answer, _ := io.ReadAll(client)
				if !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
					t.Errorf("%q", answer)
				}
			})
		}
		synctest.Wait()
		if held := budget.Held(); held < 12<<20 || held > 16<<20 {
			t.Errorf("%d bytes are held", held)
		}
		close(rest) // in less time than those that wait for room are patient
		group.Wait()
		stop()
		if err := <-ended; err != nil || budget.Held() != 0 {
			t.Errorf("%v; %d bytes are held", err, budget.Held())
		}
	})
}

// TestStreamsAreBounded: each request of HTTP/2 counts what its stream needs, and a connection has
// few of them.
func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := conns.NewBudget(1 << 30)
		pipes := newPipeListener()
		listener := conns.Listen(pipes, conns.Bounds{Budget: budget})
		ctx, stop := context.WithCancel(t.Context())
		s := testServer(countBytes(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		})))
		s.Protocols = new(http.Protocols)
		s.Protocols.SetUnencryptedHTTP2(true)
		ended := make(chan error, 1)
		go func() {
			ended <- serve(ctx, []server{{httpServer{s, listener}, listener}},
				httpapi.NewReadiness(nil), 0,
				apitest.Discard)
		}()
		client, served := net.Pipe()
		pipes.conns <- served
		go func() { _, _ = io.Copy(io.Discard, client) }()
		_, _ = io.WriteString(client, apitest.HTTP2Preface+apitest.HTTP2Settings+
			"\x00\x00\x00\x04\x01\x00\x00\x00\x00")
		for id := 1; id < 200; id += 2 { // a POST whose body does not come
			_, _ = io.WriteString(client, "\x00\x00\x06\x01\x04\x00\x00\x00"+
				string([]byte{byte(id)})+"\x83\x87\x84\x41\x01a")
		}
		synctest.Wait()
		const each = requestBytes + streamBytes + 2*httpapi.MaxBody
		if held := budget.Held(); held < maxStreams*each || held > maxStreams*(each+100) {
			t.Errorf("100 requests hold %d bytes", held)
		}
		_ = client.Close()
		stop()
		err := <-ended
		synctest.Wait() // until the handlers notice that the connection is closed
		if held := budget.Held(); err != nil || held != 0 {
			t.Errorf("%v; %d bytes are held", err, held)
		}
	})
}
