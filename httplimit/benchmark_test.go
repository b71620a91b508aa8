package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/clientip"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit"
)

// discard is a ResponseWriter that reuses its header map. A new map for each request would cost the
// same with and without a limit.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// BenchmarkHandler measures what the middleware costs over the bare handler, on the memory store,
// with the fields of draft-11 and the decision in the request's context.
func BenchmarkHandler(b *testing.B) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	})
	admitting := func(names ...string) *ratelimit.Limiter {
		var algorithms []ratelimit.Algorithm
		for _, name := range names {
			limit := ratelimit.Limit{Name: name, Max: driver.MaxUnits,
				Window: driver.MinWindow}
			// A short log, because the benchmark measures the handler.
			algorithms = append(algorithms,
				algorithm.SlidingLog(limit).WithResolution(driver.MinWindow/10))
		}
		limiter, err := ratelimit.New(newStore(b, nil), algorithms...)
		if err != nil {
			b.Fatal(err)
		}
		return limiter
	}
	calls := newInFlight(b, newStore(b, nil), driver.MaxUnits)
	budget := newBudget(b, newStore(b, nil), ratelimit.PerMinute("minute", driver.MaxUnits))
	byRoute := admitting("route")
	refusing := newLimiter(b, newStore(b, nil), ratelimit.PerDay("day", 1))
	for _, bm := range []struct {
		name    string
		handler http.Handler
	}{
		{"bare", ok},
		{"admitted", httplimit.Handler(admitting("one"), clientip.RemoteAddr, ok)},
		{"admitted by two", httplimit.Handler(admitting("one", "two"), clientip.RemoteAddr, ok)},
		{"admitted by New", httplimit.New(func(r *http.Request) ([]ratelimit.Claim, error) {
			return []ratelimit.Claim{{Limiter: byRoute, Key: r.Host, N: 1}}, nil
		})(ok)},
		{"not counted", httplimit.New(httplimit.PerKey(budget, clientip.RemoteAddr),
			httplimit.WithCounting(func(int) bool { return false }))(ok)},
		{"in flight", httplimit.Handler(calls, clientip.RemoteAddr, ok)},
		{"refused", httplimit.Handler(refusing, clientip.RemoteAddr, ok)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			w := discard{http.Header{}}
			bm.handler.ServeHTTP(w, r)
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header) // each request has its own
				bm.handler.ServeHTTP(w, r)
			}
		})
	}
}
