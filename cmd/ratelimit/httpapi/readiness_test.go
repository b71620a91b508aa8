package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestRelease: while the service drains, clients are to close their connections.
func TestRelease(t *testing.T) {
	ready := NewReadiness(nil)
	h := ready.CloseWhileDraining(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { writeOK(w) }))
	for _, want := range []string{"", "close"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		if got := w.Header().Get("Connection"); got != want || w.Body.Len() == 0 {
			t.Errorf("Connection is %q after %q, want %q", got, w.Body, want)
		}
		ready.Drain()
	}
}

// TestReadinessOfStore: the store is asked at most once a second.
func TestReadinessOfStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked int
		var err error
		r := NewReadiness(func(ctx context.Context) error {
			asked++
			if _, ok := ctx.Deadline(); !ok {
				t.Error("the probe has no deadline")
			}
			return err
		})
		status := func() int {
			w := httptest.NewRecorder()
			r.Answer(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
			return w.Code
		}
		for range 3 {
			if got := status(); got != http.StatusOK {
				t.Errorf("status %d", got)
			}
		}
		if asked != 1 {
			t.Errorf("asked %d times, want 1", asked)
		}
		err = errors.New("away")
		time.Sleep(probeAge + 1)
		if got := status(); got != http.StatusServiceUnavailable || asked != 2 {
			t.Errorf("status %d after %d probes, want 503 after 2", got, asked)
		}
	})
}
