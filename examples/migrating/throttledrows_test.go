package migrating

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/httplimit"
	"github.com/truewindow/ratelimit/httplimit/headers"
)

// TestThrottledRows makes the calls of each row of the table.
func TestThrottledRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memstore.NewCtx(0)
		if err != nil {
			t.Fatal(err)
		}
		before, err := throttled.NewGCRARateLimiterCtx(store,
			throttled.RateQuota{MaxRate: throttled.PerMin(60), MaxBurst: 19})
		if err != nil {
			t.Fatal(err)
		}
		after, err := ratelimit.New(newStore(t, nil), algorithm.TokenBucket("api", 1, 20))
		if err != nil {
			t.Fatal(err)
		}
		ask := func(n int) {
			t.Helper()
			limited, want, err := before.RateLimitCtx(t.Context(), "key", n)
			if err != nil {
				t.Fatal(err)
			}
			got, err := after.AllowN(t.Context(), "key", int64(n))
			if err != nil || n > 0 && got.Allowed == limited ||
				got.Remaining != int64(want.Remaining) || got.Limit.Max != int64(want.Limit) ||
				n > 0 && got.RetryAfter != max(0, want.RetryAfter) ||
				got.ResetAfter != want.ResetAfter {
				t.Errorf("%d units: %+v, %v; throttled: %v, %+v", n, got, err, limited, want)
			}
		}
		for _, n := range []int{1, 0, 12, 8, 7, 0, 1} {
			ask(n)
			time.Sleep(200 * time.Millisecond)
		}
	})
}

// TestThrottledFields compares the fields of answers, and keys from a header.
func TestThrottledFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memstore.NewCtx(0)
		if err != nil {
			t.Fatal(err)
		}
		quota := throttled.RateQuota{MaxRate: throttled.PerMin(60), MaxBurst: 1}
		limiter, err := throttled.NewGCRARateLimiterCtx(store, quota)
		if err != nil {
			t.Fatal(err)
		}
		limit := throttled.HTTPRateLimiterCtx{
			RateLimiter: limiter, VaryBy: &throttled.VaryBy{Headers: []string{"X-User"}},
		}
		before := limit.RateLimit(ok)
		bucket, err := ratelimit.New(newStore(t, nil), algorithm.TokenBucket("api", 1, 2))
		if err != nil {
			t.Fatal(err)
		}
		after := httplimit.New(httplimit.PerKey(bucket, httplimit.Header("X-User")),
			httplimit.WithFormat(headers.XDelta))(ok)
		for _, user := range []string{"a", "a", "a", "b"} {
			var answers [2]http.Header
			for i, handler := range []http.Handler{before, after} {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
				r.Header.Set("X-User", user)
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				answers[i] = w.Header()
			}
			names := []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "Retry-After"}
			if answers[1].Get("Retry-After") == "" {
				names = append(names, "X-RateLimit-Reset")
			}
			for _, name := range names {
				if want, got := answers[0].Get(name), answers[1].Get(name); got != want {
					t.Errorf("%s: %s is %q, want %q as before", user, name, got, want)
				}
			}
		}
	})
}
