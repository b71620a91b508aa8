package cache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

var tenAnHour = algorithm.SlidingLog(ratelimit.PerHour("acts", 10))

// TestCacheOwnActs: which operations of a store make it drop its own cached refusal, and for which
// demands it calls the server although a refusal is cached.
func TestCacheOwnActs(t *testing.T) {
	of := func(d driver.Demand, op driver.Op, n int64) driver.Demand {
		d.Op, d.N = op, n
		return d
	}
	take := func(t testing.TB, s ratelimit.Store, d driver.Demand, allowed bool) {
		t.Helper()
		if res := clients.Ask(t, s, d); res.Allowed != allowed ||
			res.Source != ratelimit.SourceStore {
			t.Fatalf("got %+v, want Allowed %t from the store", res, allowed)
		}
	}
	takeAll := func(t testing.TB, s ratelimit.Store, allowed bool, ds ...driver.Demand) {
		t.Helper()
		out := make([]ratelimit.Result, len(ds))
		if err := s.TakeAll(t.Context(), ds, out); err != nil {
			t.Fatal(err)
		}
		all := true
		for _, res := range out {
			all = all && res.Allowed
			if res.Source != ratelimit.SourceStore {
				t.Fatalf("TakeAll: got %+v, want a decision by the store", res)
			}
		}
		if all != allowed {
			t.Fatalf("TakeAll: got %+v, want all admitted: %t", out, allowed)
		}
	}
	// Each act operates on a log with 8 of 10 units used, after d, a demand for 5, was refused.
	type act struct {
		what     string
		do       func(t testing.TB, s ratelimit.Store, d driver.Demand)
		kept     bool
		admitted bool // whether d is admitted afterwards
	}
	acts := []act{
		{"nothing", func(testing.TB, ratelimit.Store, driver.Demand) {},
			true, false},
		{"Reset", func(t testing.TB, s ratelimit.Store, d driver.Demand) {
			take(t, s, of(d, driver.OpReset, 0), true)
		}, false, true},
		{"Force", func(t testing.TB, s ratelimit.Store, d driver.Demand) {
			take(t, s, of(d, driver.OpForce, 1), true)
		}, false, false},
		{"admission of fewer units",
			func(t testing.TB, s ratelimit.Store, d driver.Demand) {
				take(t, s, of(d, driver.OpTake, 1), true)
			}, false, false},
		{"admission under a raised limit",
			func(t testing.TB, s ratelimit.Store, d driver.Demand) {
				d.Algorithm = algorithm.SlidingLog(ratelimit.PerHour("acts", 100))
				take(t, s, d, true)
			}, false, false},
		{"TakeAll admitted",
			func(t testing.TB, s ratelimit.Store, d driver.Demand) {
				other := d
				other.Key = servers.FreshKey(t)
				takeAll(t, s, true, of(d, driver.OpTake, 2), other)
			}, false, false},
		{"TakeAll refused",
			func(t testing.TB, s ratelimit.Store, d driver.Demand) {
				other := d
				other.Key = servers.FreshKey(t)
				takeAll(t, s, false, d, other)
			}, true, false},
		{"Peek", func(t testing.TB, s ratelimit.Store, d driver.Demand) {
			take(t, s, of(d, driver.OpPeek, 5), false)
			take(t, s, of(d, driver.OpPeek, 1), true)
		}, true, false},
		{"refusal of fewer units",
			func(t testing.TB, s ratelimit.Store, d driver.Demand) {
				take(t, s, of(d, driver.OpTake, 4), false)
				clients.WantCached(t, s, of(d, driver.OpTake, 4))
			}, true, false},
		{"refusal under another limit",
			func(t testing.TB, s ratelimit.Store, d driver.Demand) {
				d.Algorithm = algorithm.SlidingLog(ratelimit.PerHour("acts", 9))
				take(t, s, d, false)
				clients.WantCached(t, s, d)
			}, true, false},
		{"another key", func(t testing.TB, s ratelimit.Store, d driver.Demand) {
			d.Key = servers.FreshKey(t)
			take(t, s, d, true)
		}, true, false},
	}
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		clients.EachCachingOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			for _, alone := range []bool{false, true} {
				opts := serverstore.Options{Prefix: servers.UniquePrefix(),
					Timeout: clients.Patient, NoBatching: alone,
					Tag: func(string) string { return "one" }}
				s := lib.NewCache(t, clients.To(tgt),
					clients.CacheOptions{Options: opts, Age: time.Hour})
				for _, act := range acts {
					t.Run(fmt.Sprintf("%s/alone=%t", act.what, alone), func(t *testing.T) {
						d := driver.Demand{Key: servers.FreshKey(t), Algorithm: tenAnHour, N: 8}
						clients.Ask(t, s, d)
						d.N = 5
						clients.WantRefused(t, s, d, ratelimit.SourceStore)
						clients.WantCached(t, s, d)
						act.do(t, s, d)
						source := ratelimit.SourceStore
						if act.kept {
							source = ratelimit.SourceCache
						}
						if res := clients.Ask(t, s, d); res.Source != source ||
							res.Allowed != act.admitted {
							t.Errorf("got %+v, want Allowed %t from %v", res, act.admitted, source)
						}
					})
				}
			}
		})
	})
}

// TestCacheUnknownOutcome: when the answer to a demand is lost, the store drops the refusals that
// the demand may have invalidated.
func TestCacheUnknownOutcome(t *testing.T) {
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		clients.EachCachingOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			for _, alone := range []bool{false, true} {
				t.Run(fmt.Sprintf("alone=%t", alone), func(t *testing.T) {
					var c clients.Cutter
					d := clients.To(tgt)
					d.Dial = c.Dial
					s := lib.NewCache(t, d, patientCache(alone))
					full := useUp(t, s)
					c.On.Store(true)
					reset := full
					reset.Op = driver.OpReset
					if _, err := s.Take(t.Context(), reset); !errors.Is(err,
						ratelimit.ErrOutcomeUnknown) {
						t.Fatalf("%v, want ErrOutcomeUnknown", err)
					}
					c.On.Store(false)
					if res := clients.Decided(t, s, full); !res.Allowed {
						t.Errorf("after a Reset without an answer: got %+v, want an admission",
							res)
					}
				})
			}
		})
	})
}

// patientCache returns options of a store that caches refusals for longer than a test runs.
func patientCache(alone bool) clients.CacheOptions {
	return clients.CacheOptions{Age: time.Hour, Options: serverstore.Options{
		Prefix: servers.UniquePrefix(), Timeout: clients.Patient, NoBatching: alone,
	}}
}

// TestCacheLeftBehind: an answer that arrives after its caller has left still invalidates cached
// refusals.
func TestCacheLeftBehind(t *testing.T) {
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		clients.EachCachingOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			for _, alone := range []bool{false, true} {
				t.Run(fmt.Sprintf("alone=%t", alone), func(t *testing.T) {
					var h holder
					d := clients.To(tgt)
					d.Dial, d.Multiplex = h.dial, -1
					opts := serverstore.Options{
						Prefix: servers.UniquePrefix(), Timeout: clients.Patient, NoBatching: alone,
					}
					s := lib.NewCache(t, d, clients.CacheOptions{Options: opts, Age: time.Hour})
					other := clients.CalmStore(t, tgt, &opts)
					full := driver.Demand{Key: servers.FreshKey(t), Algorithm: tenAnHour, N: 8}
					clients.Ask(t, s, full)
					full.N = 5
					clients.WantRefused(t, s, full, ratelimit.SourceStore)
					clients.WantCached(t, s, full)
					release := h.hold()
					ctx, leave := context.WithTimeout(t.Context(), servers.FaultTimeout)
					defer leave()
					one := full
					one.N = 1
					go func() {
						defer leave()
						_ = servers.Poll(ctx, func() (bool, error) { // until the server has decided
							look := one
							look.Op = driver.OpPeek
							res, err := other.Take(ctx, look)
							return res.Remaining == 1, err
						})
					}()
					if _, err := s.Take(ctx, one); !errors.Is(err, ratelimit.ErrOutcomeUnknown) {
						t.Fatalf("%v, want ErrOutcomeUnknown", err)
					}
					release()
					servers.Within(t, func() bool { return s.Stats().Cache.Entries == 0 },
						"the refusal is still cached after an abandoned demand")
					clients.WantRefused(t, s, full, ratelimit.SourceStore)
				})
			}
		})
	})
}

// A holder dials connections whose delivery can be held up.
type holder struct {
	mu    sync.RWMutex
	delay time.Duration // of all data delivered; set before the first dial
}

func (h *holder) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &heldConn{conn, h}, nil
}

func (h *holder) hold() (release func()) {
	h.mu.Lock()
	return h.mu.Unlock
}

type heldConn struct {
	net.Conn
	holder *holder
}

func (c *heldConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.holder.mu.RLock()
	defer c.holder.mu.RUnlock()
	time.Sleep(c.holder.delay)
	return n, err
}

// TestCacheShortWaits: a refusal that ends within two round trips is not cached, tested on
// connections that take a tenth of a second.
func TestCacheShortWaits(t *testing.T) {
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		clients.EachCaching(t, func(t *testing.T, lib clients.Library) {
			h := holder{delay: 100 * time.Millisecond}
			d := clients.Dialing{Addrs: []string{server.Addr}, Dial: h.dial}
			s := lib.NewCache(t, d,
				clients.CacheOptions{Options: serverstore.Options{Timeout: clients.Patient},
					Age: time.Hour})
			short := algorithm.SlidingLog(ratelimit.Limit{Max: 1, Window: 190 * time.Millisecond})
			demand := driver.Demand{Key: servers.FreshKey(t), Algorithm: short, N: 1}
			refused := 0
			// on a busy machine the window may end before the next call
			servers.Within(t, func() bool {
				if !clients.Ask(t, s, demand).Allowed {
					refused++
				}
				return refused == 3
			}, "not refused three times")
			if stats := s.Stats().Cache; stats.Stored != 0 || stats.Hits != 0 {
				t.Errorf("got %+v, want no refusal stored and no hit", stats)
			}
			useUp(t, s) // a refusal for an hour is cached
		})
	})
}

// TestCacheBounds refuses more keys than the cache has room for: every decision is right, and the
// bounds always hold.
func TestCacheBounds(t *testing.T) {
	const callers = 8
	keys := depth.Of(1000, 5000)
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		clients.EachCaching(t, func(t *testing.T, lib clients.Library) {
			for _, bound := range []clients.CacheOptions{{Entries: 100}, {Bytes: 20_000},
				{Entries: 1}} {
				t.Run(fmt.Sprintf("entries=%d,bytes=%d", bound.Entries, bound.Bytes),
					func(t *testing.T) {
						bound.Age, bound.Options = time.Hour,
							serverstore.Options{Prefix: servers.UniquePrefix(),
								Timeout: clients.Patient}
						s := lib.NewCache(t, clients.Dialing{Addrs: []string{server.Addr}}, bound)
						once := algorithm.SlidingLog(ratelimit.PerHour("hour", 1))
						var wg sync.WaitGroup
						for c := range callers {
							wg.Go(func() {
								for i := c; i < keys; i += callers {
									d := driver.Demand{Key: fmt.Sprint("key", i),
										Algorithm: once, N: 1}
									for try := range 4 {
										res, err := s.Take(t.Context(), d)
										if err != nil || res.Allowed != (try == 0) {
											t.Errorf("attempt %d: got %+v, %v", try, res, err)
											return
										}
									}
									stats := s.Stats().Cache
									if bound.Entries > 0 && stats.Entries > int64(bound.Entries) ||
										bound.Bytes > 0 && stats.Bytes > int64(bound.Bytes) {
										t.Errorf("got %+v, want no more than %+v", stats, bound)
										return
									}
								}
							})
						}
						wg.Wait()
						stats := s.Stats().Cache
						if stats.Hits == 0 || stats.Stored == 0 || stats.Entries == 0 ||
							stats.Flushes > 0 {
							t.Errorf("got %+v, want hits and no flush: this test proves nothing",
								stats)
						}
					})
			}
		})
	})
}
