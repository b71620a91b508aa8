package caddylimit

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/truewindow/ratelimit"
)

// TestClosing: a store that no configuration has any more decides for the requests that began
// before, and closes when they have ended.
func TestClosing(t *testing.T) {
	defer func(d time.Duration) { closesAfter = d }(closesAfter)
	closesAfter = time.Minute
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
		defer cancel()
		h := &Handler{Limits: []Limit{
			{Name: "calls", Max: "1", Algorithm: "in-flight", Key: []string{"all"}}}}
		if err := h.Provision(ctx); err != nil {
			t.Fatal(err)
		}
		serve := func(next caddyhttp.HandlerFunc) int {
			w := httptest.NewRecorder()
			r := caddyhttp.PrepareRequest(httptest.NewRequest(http.MethodGet, "/", nil),
				caddy.NewReplacer(), w, nil)
			if err := h.ServeHTTP(w, r, next); err != nil {
				t.Error(err)
			}
			return w.Code
		}
		pass := func(http.ResponseWriter, *http.Request) error { return nil }
		end, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			serve(func(http.ResponseWriter, *http.Request) error { <-end; return nil })
		}()
		synctest.Wait()
		if err := h.Cleanup(); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			time.Sleep(61 * time.Second) // between the times at which it may close
			if got := serve(pass); got != http.StatusTooManyRequests {
				t.Errorf("got %d, want the place to be held", got)
			}
		}
		close(end)
		<-ended
		if got := serve(pass); got != http.StatusOK {
			t.Errorf("got %d, want the place to be free", got)
		}
		time.Sleep(2 * time.Minute)
		if got := serve(pass); got != http.StatusServiceUnavailable {
			t.Errorf("got %d, want the store to be closed", got)
		}
	})
}

// TestUnusedStore: a store without a request closes at once, so that wrong configurations leave
// nothing open.
func TestUnusedStore(t *testing.T) {
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	h := &Handler{Limits: []Limit{{Name: "a", Max: "1/1h"}}}
	if err := h.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	if err := h.Cleanup(); err != nil {
		t.Fatal(err)
	}
	err := h.rules[0].limiter.Reset(t.Context(), "k")
	if !errors.Is(err, ratelimit.ErrUnavailable) {
		t.Errorf("got %v, want the store to be closed", err)
	}
}
