package httplimit_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit"
)

// BenchmarkManyLimiters measures a limiter for each tenant.
func BenchmarkManyLimiters(b *testing.B) {
	for _, n := range []int{10, 256, 257, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			store := newStore(b, nil)
			limiters := make([]*ratelimit.Limiter, n)
			for i := range limiters {
				limiters[i] = newLimiter(b, store, ratelimit.Limit{Name: "all",
					Max: driver.MaxUnits, Window: driver.MinWindow})
			}
			i := 0
			h := httplimit.New(func(*http.Request) ([]ratelimit.Claim, error) {
				i = (i + 1) % n
				return []ratelimit.Claim{{Limiter: limiters[i], Key: "key", N: 1}}, nil
			})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			r, w := get(), discard{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				h.ServeHTTP(w, r)
			}
		})
	}
}
