package daemon

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
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
		ended <- serve(ctx, []server{{newServer(http.NotFoundHandler(), discard), listener}},
			new(readiness), 0, discard)
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
