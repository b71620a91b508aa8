package caddylimit

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/truewindow/ratelimit/internal/testkit/adaptertest"
)

const none = "a handler that fails has no status yet, so the directive has no budgets"

// TestConduct: the handler has the conduct of all adapters. A Caddy handler reports a failure by an
// error, which the server around it answers.
func TestConduct(t *testing.T) {
	adaptertest.Run(t, adaptertest.HTTP(func(
		t testing.TB, limit func(http.Handler) http.Handler, work func(context.Context) error,
	) string {
		h := &Handler{limited: limit(http.HandlerFunc(pass)), store: new(store)}
		next := caddyhttp.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) error {
			if err := work(r.Context()); err != nil {
				return caddyhttp.Error(adaptertest.StatusFailed, err)
			}
			return nil
		})
		return adaptertest.ServeHTTP(t, http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, nil)
				failed := caddyhttp.HandlerError{}
				if err := h.ServeHTTP(w, r, next); errors.As(err, &failed) {
					w.WriteHeader(failed.StatusCode)
				}
			}))
	}, map[string]string{
		"budget": none, "budget, failure": none, "budget, panic": none, "budget, disconnect": none,
	}))
}
