//go:build !race

package httplimit_test

import (
	"net/http"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/clientip"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit"
)

// TestGuardAllocations: a limited request takes one allocation for the decision in its context, one
// for the fields, and with New another for its claims. The key of an IPv4 peer takes none. A
// refusal takes two more for Retry-After, one for the fields of the problem, and one for
// Content-Length. The race detector drops pooled values at random, so the test runs only without
// it.
func TestGuardAllocations(t *testing.T) {
	limiter := newLimiter(t, newStore(t, nil), ratelimit.Limit{Name: "all",
		Max: driver.MaxUnits, Window: driver.MinWindow})
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if d, ok := httplimit.FromContext(r.Context()); !ok || !d.Allowed() {
			t.Error("no decision")
		}
	})
	for most, h := range map[float64]http.Handler{
		2: httplimit.Handler(limiter, clientip.RemoteAddr, handler),
		3: httplimit.New(httplimit.PerKey(limiter, clientip.RemoteAddr))(handler),
	} {
		r, w := get(), discard{http.Header{}}
		serveOne := func() {
			clear(w.header)
			h.ServeHTTP(w, r)
		}
		serveOne()
		if got := testing.AllocsPerRun(1000, serveOne); got > most {
			t.Errorf("%v allocations, want %v", got, most)
		}
		if len(w.header) != 2 {
			t.Errorf("the fields are %v", w.header)
		}
	}
	refusing := httplimit.Handler(newLimiter(t, newStore(t, nil), ratelimit.PerDay("day", 1)),
		clientip.RemoteAddr, http.NotFoundHandler())
	r, w := get(), discard{http.Header{}}
	refusing.ServeHTTP(w, r)
	got := testing.AllocsPerRun(1000, func() {
		clear(w.header)
		refusing.ServeHTTP(w, r)
	})
	if got > 6 || w.header.Get("Retry-After") == "" {
		t.Errorf("%v allocations for the refusal %v, want 6", got, w.header)
	}
}
