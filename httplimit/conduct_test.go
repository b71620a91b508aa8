package httplimit_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/truewindow/ratelimit/internal/testkit/adaptertest"
)

// TestConduct: the middleware has the conduct of all adapters.
func TestConduct(t *testing.T) {
	adaptertest.Run(t, adaptertest.HTTP(func(
		t testing.TB, limit func(http.Handler) http.Handler, work func(context.Context) error,
	) string {
		return adaptertest.ServeHTTP(t, limit(adaptertest.Handler(work)))
	}, nil))
}
