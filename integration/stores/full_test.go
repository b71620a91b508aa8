package stores_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestFullServerUnderFailOpen: strangers who fill the memory of a server with keys get no call
// admitted without a limit, neither single calls nor those of two limits.
func TestFullServerUnderFailOpen(t *testing.T) {
	servers.EachImage(t, func(t *testing.T, image string) {
		server := servers.Start(t, image)
		admin := redis.NewClient(&redis.Options{Addr: server.Addr, Protocol: 2,
			DisableIdentity: true})
		defer admin.Close()
		clients.EachOn(t, image, func(t *testing.T, lib clients.Library) {
			bound := func(more int) {
				t.Helper()
				most := 0
				if more > 0 {
					info := admin.InfoMap(t.Context(), "memory").Item("Memory", "used_memory")
					used, err := strconv.Atoi(info)
					if err != nil {
						t.Fatal(err)
					}
					most = used + more
				}
				if err := admin.ConfigSet(t.Context(), "maxmemory",
					strconv.Itoa(most)).Err(); err != nil {
					t.Fatal(err)
				}
			}
			bound(4 << 20)
			defer bound(0)
			store := lib.Client(t, clients.Dialing{Addrs: []string{server.Addr}}).NewStore(t,
				&serverstore.Options{Timeout: clients.Patient})
			hour := algorithm.SlidingLog(ratelimit.PerHour("hour", 5))
			minute := algorithm.SlidingLog(ratelimit.PerMinute("minute", 5))
			for _, limits := range [][]ratelimit.Algorithm{{hour}, {hour, minute}} {
				limiter, err := ratelimit.New(store, limits...)
				if err != nil {
					t.Fatal(err)
				}
				limiter = limiter.WithPolicy(ratelimit.FailOpen)
				key := servers.FreshKey(t)
				var full atomic.Bool
				var wg sync.WaitGroup
				for w := range 64 {
					wg.Go(func() {
						for i := 0; i < 5000 && !full.Load(); i++ {
							stranger := fmt.Sprint(key, w, "-", i, strings.Repeat("s", 80))
							res, err := limiter.Allow(t.Context(), stranger)
							if res.Source == ratelimit.SourceOpen {
								t.Error("a stranger was admitted without a limit")
							}
							if err != nil {
								full.Store(true)
							}
						}
					})
				}
				wg.Wait()
				if !full.Load() {
					t.Fatal("the server is not full")
				}
				admitted := 0
				for range 1000 {
					switch res, err := limiter.Allow(t.Context(), key); {
					case err == nil && res.Allowed:
						admitted++
					case err != nil && (!errors.Is(err, driver.ErrCapacity) ||
						errors.Is(err, ratelimit.ErrOutcomeUnknown)):
						t.Fatalf("%v, want ErrCapacity", err)
					}
				}
				if admitted > 5 {
					t.Errorf("%s: %d of 1000 admitted, want 5 at most", lib.Name, admitted)
				}
			}
		})
	})
}
