package examples

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/integration/servers"
)

// newTestStore returns a store whose keys no other test has.
func newTestStore(t *testing.T, addr string) *redisstore.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { client.Close() })
	store, err := redisstore.New(client, &serverstore.Options{
		Prefix:  rand.Text() + ":",
		Timeout: 10 * time.Second, // a busy machine may need more than 100 ms
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// TestOnServer checks that two tests on one server do not share a limit.
func TestOnServer(t *testing.T) {
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		for range 2 {
			limiter, err := ratelimit.New(newTestStore(t, server.Addr),
				algorithm.SlidingLog(ratelimit.PerMinute("login", 1)))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []bool{true, false} {
				res, err := limiter.Allow(t.Context(), "ann")
				if err != nil || res.Allowed != want {
					t.Errorf("%+v, %v; want allowed %t", res, err, want)
				}
			}
		}
	})
}
