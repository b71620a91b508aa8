package integration

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
	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

var tenAnHour = algorithm.SlidingLog(ratelimit.PerHour(10).Named("acts"))

// TestCacheOwnActs holds what of a store's own acts makes it forget a refusal that it has cached, and what makes it ask all the same.
func TestCacheOwnActs(t *testing.T) {
	of := func(d ratelimit.Demand, op ratelimit.Op, n int64) ratelimit.Demand {
		d.Op, d.N = op, n
		return d
	}
	take := func(t testing.TB, s ratelimit.Store, d ratelimit.Demand, allowed bool) {
		t.Helper()
		if res := ask(t, s, d); res.Allowed != allowed || res.Source != ratelimit.SourceStore {
			t.Fatalf("%+v, want Allowed %t from the store", res, allowed)
		}
	}
	takeAll := func(t testing.TB, s ratelimit.Store, allowed bool, ds ...ratelimit.Demand) {
		t.Helper()
		out := make([]ratelimit.Result, len(ds))
		if err := s.TakeAll(t.Context(), ds, out); err != nil {
			t.Fatal(err)
		}
		all := true
		for _, res := range out {
			all = all && res.Allowed
			if res.Source != ratelimit.SourceStore {
				t.Fatalf("%+v from a TakeAll", res)
			}
		}
		if all != allowed {
			t.Fatalf("%+v", out)
		}
	}
	// Each acts on a log of ten with eight units, of which five more were refused. d is the demand for these five.
	type act struct {
		what     string
		do       func(t testing.TB, s ratelimit.Store, d ratelimit.Demand, filled ratelimit.Result)
		kept     bool
		admitted bool // d, afterwards
	}
	acts := []act{
		{"nothing", func(testing.TB, ratelimit.Store, ratelimit.Demand, ratelimit.Result) {}, true, false},
		{"Reset", func(t testing.TB, s ratelimit.Store, d ratelimit.Demand, _ ratelimit.Result) {
			take(t, s, of(d, ratelimit.Reset, 0), true)
		}, false, true},
		{"GiveBack", func(t testing.TB, s ratelimit.Store, d ratelimit.Demand, filled ratelimit.Result) {
			d.At = filled.At
			take(t, s, of(d, ratelimit.GiveBack, 3), true)
		}, false, true},
		{"Force", func(t testing.TB, s ratelimit.Store, d ratelimit.Demand, _ ratelimit.Result) {
			take(t, s, of(d, ratelimit.Force, 1), true)
		}, false, false},
		{"admission of fewer units", func(t testing.TB, s ratelimit.Store, d ratelimit.Demand, _ ratelimit.Result) {
			take(t, s, of(d, ratelimit.Take, 1), true)
		}, false, false},
		{"admission under a raised limit", func(t testing.TB, s ratelimit.Store, d ratelimit.Demand, _ ratelimit.Result) {
			d.Algorithm = algorithm.SlidingLog(ratelimit.PerHour(100).Named("acts"))
			take(t, s, d, true)
		}, false, false},
		{"TakeAll admitted", func(t testing.TB, s ratelimit.Store, d ratelimit.Demand, _ ratelimit.Result) {
			other := d
			other.Key = freshKey(t)
			takeAll(t, s, true, of(d, ratelimit.Take, 2), other)
		}, false, false},
		{"TakeAll refused", func(t testing.TB, s ratelimit.Store, d ratelimit.Demand, _ ratelimit.Result) {
			other := d
			other.Key = freshKey(t)
			takeAll(t, s, false, d, other)
		}, true, false},
		{"Look", func(t testing.TB, s ratelimit.Store, d ratelimit.Demand, _ ratelimit.Result) {
			take(t, s, of(d, ratelimit.Look, 5), false)
			take(t, s, of(d, ratelimit.Look, 1), true)
		}, true, false},
		{"refusal of fewer units", func(t testing.TB, s ratelimit.Store, d ratelimit.Demand, _ ratelimit.Result) {
			take(t, s, of(d, ratelimit.Take, 4), false)
			wantRefused(t, s, of(d, ratelimit.Take, 4), ratelimit.SourceCache)
		}, true, false},
		{"refusal under another limit", func(t testing.TB, s ratelimit.Store, d ratelimit.Demand, _ ratelimit.Result) {
			d.Algorithm = algorithm.SlidingLog(ratelimit.PerHour(9).Named("acts"))
			take(t, s, d, false)
			wantRefused(t, s, d, ratelimit.SourceCache)
		}, true, false},
		{"another key", func(t testing.TB, s ratelimit.Store, d ratelimit.Demand, _ ratelimit.Result) {
			d.Key = freshKey(t)
			take(t, s, d, true)
		}, true, false},
	}
	eachTarget(t, func(t *testing.T, tgt *target) {
		eachCaching(t, func(t *testing.T, lib library) {
			for _, alone := range []bool{false, true} {
				opts := redisstore.Options{Prefix: uniquePrefix(), Timeout: patient, Alone: alone, Tag: func(string) string { return "one" }}
				s := lib.newCache(t, tgt.dialing(), cacheOptions{Options: opts, age: time.Hour})
				for _, act := range acts {
					t.Run(fmt.Sprintf("%s/alone=%t", act.what, alone), func(t *testing.T) {
						d := ratelimit.Demand{Key: freshKey(t), Algorithm: tenAnHour, N: 8}
						filled := ask(t, s, d)
						d.N = 5
						wantRefused(t, s, d, ratelimit.SourceStore)
						wantRefused(t, s, d, ratelimit.SourceCache)
						act.do(t, s, d, filled)
						source := ratelimit.SourceStore
						if act.kept {
							source = ratelimit.SourceCache
						}
						if res := ask(t, s, d); res.Source != source || res.Allowed != act.admitted {
							t.Errorf("%+v, want Allowed %t from %v", res, act.admitted, source)
						}
					})
				}
			}
		})
	})
}

// TestCacheUnknownOutcome holds that a demand whose answer was lost makes the store forget what it may have made untrue.
func TestCacheUnknownOutcome(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		eachCaching(t, func(t *testing.T, lib library) {
			for _, alone := range []bool{false, true} {
				t.Run(fmt.Sprintf("alone=%t", alone), func(t *testing.T) {
					var c cutter
					d := tgt.dialing()
					d.dial = c.dial
					s := lib.newCache(t, d, cacheOptions{Options: redisstore.Options{Prefix: uniquePrefix(), Timeout: patient, Alone: alone}, age: time.Hour})
					full := useUp(t, s)
					c.on.Store(true)
					reset := full
					reset.Op = ratelimit.Reset
					if _, err := s.Take(t.Context(), reset); !errors.Is(err, ratelimit.ErrOutcomeUnknown) {
						t.Fatalf("%v, want ErrOutcomeUnknown", err)
					}
					c.on.Store(false)
					if res := decided(t, s, full); !res.Allowed {
						t.Errorf("%+v after a Reset that the server has run", res)
					}
				})
			}
		})
	})
}

// TestCacheLeftBehind has callers leave whose demands the server decides later: their answers count all the same.
func TestCacheLeftBehind(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		eachCaching(t, func(t *testing.T, lib library) {
			for _, alone := range []bool{false, true} {
				t.Run(fmt.Sprintf("alone=%t", alone), func(t *testing.T) {
					var h holder
					d := tgt.dialing()
					d.dial, d.multiplex = h.dial, -1
					s := lib.newCache(t, d, cacheOptions{Options: redisstore.Options{Prefix: uniquePrefix(), Timeout: patient, Alone: alone}, age: time.Hour})
					full := ratelimit.Demand{Key: freshKey(t), Algorithm: tenAnHour, N: 8}
					ask(t, s, full)
					full.N = 5
					wantRefused(t, s, full, ratelimit.SourceStore)
					wantRefused(t, s, full, ratelimit.SourceCache)
					release := h.hold()
					ctx, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
					defer leave()
					one := full
					one.N = 1
					if _, err := s.Take(ctx, one); !errors.Is(err, ratelimit.ErrOutcomeUnknown) {
						t.Fatalf("%v, want ErrOutcomeUnknown", err)
					}
					release()
					within(t, func() bool { return s.CacheStats().Entries == 0 }, "a refusal stays after an admission that nobody waited for")
					wantRefused(t, s, full, ratelimit.SourceStore)
				})
			}
		})
	})
}

// A holder dials connections that can be made to deliver nothing for a while.
type holder struct {
	mu    sync.RWMutex
	delay time.Duration // of all that they deliver; set before the first is dialled
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

// TestCacheShortWaits holds that a refusal is not cached that is over within two round trips, through connections that take a tenth of a second.
func TestCacheShortWaits(t *testing.T) {
	eachImage(t, "redis:8", func(t *testing.T, image string) {
		server := startServer(t, image)
		eachCaching(t, func(t *testing.T, lib library) {
			h := holder{delay: 100 * time.Millisecond}
			d := dialing{addrs: []string{server.addr}, dial: h.dial}
			s := lib.newCache(t, d, cacheOptions{Options: redisstore.Options{Timeout: patient}, age: time.Hour})
			short := algorithm.SlidingLog(ratelimit.Limit{Max: 1, Window: 190 * time.Millisecond})
			demand := ratelimit.Demand{Key: freshKey(t), Algorithm: short, N: 1}
			refused := 0
			within(t, func() bool { // on a busy machine the window may be over before it is asked again
				if !ask(t, s, demand).Allowed {
					refused++
				}
				return refused == 3
			}, "never refused")
			if stats := s.CacheStats(); stats.Stored != 0 || stats.Refusals != 0 {
				t.Errorf("%+v", stats)
			}
			useUp(t, s) // an hour is worth it
		})
	})
}

// TestCacheBounds refuses more keys than there is room for. Every decision is right, and the bounds hold at every moment.
func TestCacheBounds(t *testing.T) {
	const callers = 8
	keys := 1000
	if full {
		keys = 5000
	}
	eachImage(t, "redis:8", func(t *testing.T, image string) {
		server := startServer(t, image)
		eachCaching(t, func(t *testing.T, lib library) {
			for _, bound := range []cacheOptions{{entries: 100}, {bytes: 20_000}, {entries: 1}} {
				t.Run(fmt.Sprintf("entries=%d,bytes=%d", bound.entries, bound.bytes), func(t *testing.T) {
					bound.age, bound.Options = time.Hour, redisstore.Options{Prefix: uniquePrefix(), Timeout: patient}
					s := lib.newCache(t, dialing{addrs: []string{server.addr}}, bound)
					once := algorithm.SlidingLog(ratelimit.PerHour(1))
					var wg sync.WaitGroup
					for c := range callers {
						wg.Go(func() {
							for i := c; i < keys; i += callers {
								d := ratelimit.Demand{Key: fmt.Sprint("key", i), Algorithm: once, N: 1}
								for try := range 4 {
									res, err := s.Take(t.Context(), d)
									if err != nil || res.Allowed != (try == 0) {
										t.Errorf("%+v, %v at attempt %d", res, err, try)
										return
									}
								}
								stats := s.CacheStats()
								if bound.entries > 0 && stats.Entries > int64(bound.entries) || bound.bytes > 0 && stats.Bytes > int64(bound.bytes) {
									t.Errorf("%+v", stats)
									return
								}
							}
						})
					}
					wg.Wait()
					stats := s.CacheStats()
					if stats.Refusals == 0 || stats.Stored == 0 || stats.Entries == 0 || stats.Flushes > 0 {
						t.Errorf("%+v: this test proves nothing", stats)
					}
				})
			}
		})
	})
}
