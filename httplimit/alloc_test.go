//go:build !race

package httplimit_test

import (
	"net/http"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/clientip"
	"github.com/truewindow/ratelimit/httplimit"
)

// TestGuardAllocations: a limited request takes three allocations with the fields and the decision
// in its context: its claims, its key, and one object for all the rest. The race detector drops
// pooled values at random, so these figures hold without it only.
func TestGuardAllocations(t *testing.T) {
	limiter := newLimiter(t, newStore(t, nil), ratelimit.Limit{Name: "all",
		Max: ratelimit.MaxUnits, Window: ratelimit.MinWindow})
	h := httplimit.Handler(limiter, clientip.RemoteAddr, http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) {
			if d, ok := httplimit.FromContext(r.Context()); !ok || !d.Allowed() {
				t.Error("no decision")
			}
		}))
	r, w := get(), discard{http.Header{}}
	serveOne := func() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
	serveOne()
	if got := testing.AllocsPerRun(1000, serveOne); got > 3 {
		t.Errorf("%v allocations, want 3", got)
	}
	if len(w.header) != 2 {
		t.Errorf("the fields are %v", w.header)
	}
}
