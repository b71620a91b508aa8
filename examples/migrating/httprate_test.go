package migrating

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/httprate"
	httprateredis "github.com/go-chi/httprate-redis"
	"github.com/redis/go-redis/v9"
	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/httplimit"
	"github.com/truewindow/ratelimit/layer"
)

func httprateBefore(options ...httprate.Option) func(http.Handler) http.Handler {
	user := func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }
	return httprate.LimitBy(60, time.Minute, user, options...)
}

func httprateAfter(store ratelimit.Store) (func(http.Handler) http.Handler, error) {
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("api", 60)))
	if err != nil {
		return nil, err
	}
	return httplimit.New(httplimit.PerKey(limiter, httplimit.Header("X-User"))), nil
}

func httprateRedisBefore(client *redis.Client) func(http.Handler) http.Handler {
	return httprateBefore(httprateredis.WithRedisLimitCounter(
		&httprateredis.Config{Client: client, WindowLength: time.Minute}))
}

func httprateRedisAfter(client *redis.Client) (*layer.Degraded, error) {
	store, err := redisstore.New(client, nil)
	if err != nil {
		return nil, err
	}
	guarded, err := layer.NewBreaker(store, nil) // fails at once while the server is unavailable
	if err != nil {
		return nil, err
	}
	return layer.NewDegraded(guarded, &layer.DegradedOptions{Instances: 4})
}

var _ = httprateRedisBefore // is compiled; it needs a server

func TestHTTPRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after, err := httprateAfter(newStore(t, nil))
		if err != nil {
			t.Fatal(err)
		}
		check(t, []burst{
			{0, 70, 60},
			{59 * time.Second, 10, 0},
			{2 * time.Minute, 70, 60},
		}, requests(httprateBefore()(ok)), requests(after(ok)))
	})
}

// TestHTTPRateLater tests what is admitted after a user has used up the limit in one burst.
// httprate assumes that the requests of the previous window were spread evenly over it, and its
// Retry-After is always a whole window.
func TestHTTPRateLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		middleware, err := httprateAfter(newStore(t, nil))
		if err != nil {
			t.Fatal(err)
		}
		before, after := httprateBefore()(ok), middleware(ok)
		admitted(t, requests(before), "user", 60)
		admitted(t, requests(after), "user", 60)

		time.Sleep(40 * time.Second)
		for i, want := range []string{"60", "20"} {
			w := serve(t.Context(), []http.Handler{before, after}[i], "user")
			if got := w.Header().Get("Retry-After"); got != want {
				t.Errorf("handler %d: Retry-After is %q, want %q", i, got, want)
			}
		}
		time.Sleep(21 * time.Second)
		for i, want := range []int{1, 60} {
			handler := []http.Handler{before, after}[i]
			if got := admitted(t, requests(handler), "user", 70); got != want {
				t.Errorf("handler %d: admitted %d requests, want %d", i, got, want)
			}
		}
	})
}

// TestHTTPRateRedisAfter tests that a process has its share while no server listens.
func TestHTTPRateRedisAfter(t *testing.T) {
	store, err := httprateRedisAfter(unreachable(t))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	after, err := httprateAfter(store)
	if err != nil {
		t.Fatal(err)
	}
	handler := after(ok)
	for i := range 16 {
		want := http.StatusOK
		if i >= 15 {
			want = http.StatusServiceUnavailable
		}
		if w := serve(t.Context(), handler, "user"); w.Code != want {
			t.Errorf("request %d: answered with %d, want %d", i, w.Code, want)
		}
	}
}
