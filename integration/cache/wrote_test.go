package cache

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestCacheRefusalThatWrote steps a clock back by more than a window, so that a refusal writes the
// state. The server then no longer reports changes to clients that read the state before or were
// refused, so this refusal is not cached and earlier ones are dropped.
func TestCacheRefusalThatWrote(t *testing.T) {
	const back = 3 * time.Hour
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		clients.EachCachingOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			for _, act := range []struct {
				what  string
				do    func(t testing.TB, s ratelimit.Store, d driver.Demand)
				after time.Duration // when a wrongly cached refusal would be returned
			}{
				{"refused Take", func(t testing.TB, s ratelimit.Store, d driver.Demand) {
					clients.WantRefused(t, s, d, ratelimit.SourceStore)
				}, time.Minute},
				{"refused equal Takes", func(t testing.TB, s ratelimit.Store, d driver.Demand) {
					done := make(chan error)
					for range 8 {
						go func() {
							_, err := s.Take(context.WithoutCancel(t.Context()),
								d)
							done <- err
						}()
					}
					for range 8 {
						if err := <-done; err != nil {
							t.Error(err)
						}
					}
				}, time.Minute},
				{"Peek", func(t testing.TB, s ratelimit.Store, d driver.Demand) {
					d.Op = driver.OpPeek
					clients.Ask(t, s, d)
				}, back + time.Minute},
				{"Peek for less", func(t testing.TB, s ratelimit.Store, d driver.Demand) {
					d.Op, d.N = driver.OpPeek, 1
					clients.Ask(t, s, d)
				}, back + time.Minute},
				{"refused TakeAll", func(t testing.TB, s ratelimit.Store, d driver.Demand) {
					full := driver.Demand{Key: servers.FreshKey(t),
						Algorithm: clients.ThreeAnHour, N: 3}
					clients.Ask(t, s, full)
					one := d
					one.N = 1 // fits
					if err := s.TakeAll(t.Context(), []driver.Demand{full, one},
						make([]ratelimit.Result, 2)); err != nil {
						t.Fatal(err)
					}
				}, back + time.Minute},
			} {
				for _, alone := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/alone=%t", act.what, alone), func(t *testing.T) {
						var now steppedClock
						now.step(time.Duration(time.Now().UnixMicro()) * time.Microsecond)
						opts := serverstore.Options{
							Prefix: servers.UniquePrefix(), Timeout: clients.Patient, Now: now.read,
							NoBatching: alone, Tag: func(string) string {
								return "one"
							},
						}
						d := clients.To(tgt)
						d.Multiplex = -1 // NOLOOP applies to one connection
						s, other := lib.NewCache(t, d,
							clients.CacheOptions{Options: opts, Age: time.Hour}),
							clients.CalmStore(t, tgt, &opts)
						demand := driver.Demand{Key: servers.FreshKey(t),
							Algorithm: tenAnHour, N: 8}
						clients.Ask(t, other, demand)
						demand.N = 5
						clients.WantRefused(t, s, demand, ratelimit.SourceStore)
						clients.WantCached(t, s, demand)

						now.step(-back)
						act.do(t, s, demand)
						now.step(act.after)
						reset := demand
						reset.Op = driver.OpReset
						clients.Ask(t, other, reset)
						servers.Within(t, func() bool { return clients.Ask(t, s, demand).Allowed },
							"the store did not notice the Reset")
					})
				}
			}
		})
	})
}

// A steppedClock stands still until it is stepped.
type steppedClock struct{ now atomic.Int64 }

func (c *steppedClock) read() int64          { return c.now.Load() }
func (c *steppedClock) step(d time.Duration) { c.now.Add(d.Microseconds()) }
