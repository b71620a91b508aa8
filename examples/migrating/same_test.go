// Package migrating has code before and after a move from another library, and tests that both
// admit the same.
package migrating

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

// An allowFunc reports whether a request of a key is admitted now.
type allowFunc func(ctx context.Context, key string) (bool, error)

// A burst is calls that one key makes at one instant.
type burst struct {
	pause time.Duration // since the burst before
	calls int
	want  int // how many of them are admitted
}

// check makes the same calls before and after a move, in a bubble of testing/synctest.
func check(t *testing.T, bursts []burst, allows ...allowFunc) {
	t.Helper()
	for i, b := range bursts {
		time.Sleep(b.pause)
		for j, allow := range allows {
			if got := admitted(t, allow, "192.0.2.1", b.calls); got != b.want {
				t.Errorf("burst %d, limiter %d: admitted %d of %d calls, want %d",
					i, j, got, b.calls, b.want)
			}
		}
	}
	for j, allow := range allows {
		if admitted(t, allow, "192.0.2.2", 1) != 1 {
			t.Errorf("limiter %d: another key shares the limit", j)
		}
	}
}

func admitted(t *testing.T, allow allowFunc, key string, calls int) (n int) {
	t.Helper()
	for range calls {
		ok, err := allow(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			n++
		}
	}
	return n
}

// requests returns an allowFunc that sends requests to a handler. The key is both the address and
// the user of a request.
func requests(handler http.Handler) allowFunc {
	return func(ctx context.Context, key string) (bool, error) {
		switch w := serve(ctx, handler, key); w.Code {
		case http.StatusOK:
			return true, nil
		case http.StatusTooManyRequests:
			return false, nil
		default:
			return false, fmt.Errorf("answered with %d", w.Code)
		}
	}
}

func serve(ctx context.Context, handler http.Handler, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	r.RemoteAddr = net.JoinHostPort(key, "1234")
	r.Header.Set("X-User", key)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

var ok = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func newStore(t *testing.T, opts *memorystore.Options) ratelimit.Store {
	t.Helper()
	store, err := memorystore.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}
