package stores

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
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

const (
	manyCallers = 512 // half of them use hot keys
	hotKeys     = 10
	coldKeys    = 100_000
	hotLimit    = 1000 // soon reached
	coldLimit   = 1000 // never reached
)

// heard counts the answers for a key.
type heard struct {
	admitted, unknown atomic.Int64
}

// crowd is many callers of one store.
type crowd struct {
	store ratelimit.Store
	hot   [hotKeys]heard
	cold  []heard

	asked, refused, gone atomic.Int64 // gone left before anything was sent
}

func (c *crowd) demand(hot bool, k int) (driver.Demand, *heard) {
	if hot {
		return driver.Demand{Key: fmt.Sprint("hot", k),
			Algorithm: algorithm.SlidingLog(ratelimit.PerDay("day", hotLimit)), N: 1}, &c.hot[k]
	}
	return driver.Demand{Key: fmt.Sprint("cold", k),
		Algorithm: algorithm.SlidingLog(ratelimit.PerDay("day", coldLimit)), N: 1}, &c.cold[k]
}

// ask makes n calls in all, for hot and cold keys or only for cold ones. One in ten leaves at a
// random moment. It returns the latencies of the answers for cold keys.
func (c *crowd) ask(t *testing.T, hot bool, n int64) (waited []time.Duration) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	end := c.asked.Load() + n
	for caller := range manyCallers {
		wantsHot := caller%2 == 0
		if wantsHot && !hot {
			continue
		}
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(caller), uint64(n)))
			var own []time.Duration
			for c.asked.Add(1) <= end {
				k := r.IntN(coldKeys)
				if wantsHot {
					k %= hotKeys
				}
				d, told := c.demand(wantsHot, k)
				ctx, leave := context.WithCancel(t.Context())
				if r.IntN(10) == 0 {
					time.AfterFunc(time.Duration(r.IntN(5000))*time.Microsecond, leave)
				}
				start := time.Now()
				res, err := c.store.Take(ctx, d)
				took := time.Since(start)
				leave()
				switch {
				case err == nil && res.Allowed:
					told.admitted.Add(1)
				case err == nil:
					c.refused.Add(1)
					if !wantsHot {
						t.Errorf("cold key: got %+v, want an admission", res)
					}
				case errors.Is(err, ratelimit.ErrOutcomeUnknown) &&
					errors.Is(err, context.Canceled):
					told.unknown.Add(1)
				case errors.Is(err, ratelimit.ErrUnavailable) && errors.Is(err, context.Canceled):
					c.gone.Add(1)
				default:
					t.Error(err)
				}
				if err == nil && !wantsHot {
					own = append(own, took)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			waited = append(waited, own...)
		})
	}
	wg.Wait()
	c.asked.Store(end)
	return waited
}

// check compares the answers for a key with what the server has recorded.
func (c *crowd) check(t *testing.T, hot bool, k int) (recorded, unknown int64) {
	t.Helper()
	d, told := c.demand(hot, k)
	d.Op = driver.OpPeek
	res, err := c.store.Take(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	recorded = res.Limit.Max - res.Remaining
	admitted, unknown := told.admitted.Load(), told.unknown.Load()
	if recorded < admitted || recorded > admitted+unknown || hot && recorded != hotLimit {
		t.Errorf("key %d, hot %t: %d units recorded for %d acknowledged and %d of unknown outcome",
			k, hot, recorded, admitted, unknown)
	}
	return recorded, unknown
}

// TestMillionDemands: very many callers take from few hot and many cold keys, and some leave at any
// moment. What is recorded is what was acknowledged, except for demands whose callers left after
// sending; each hot key admits exactly its limit; no goroutine leaks.
func TestMillionDemands(t *testing.T) {
	demands := depth.Of[int64](30_000, 1_000_000)
	image := servers.Newest()
	server := servers.Start(t, image)
	clients.Each(t, func(t *testing.T, lib clients.Library) {
		client := lib.Client(t, clients.Dialing{Addrs: []string{server.Addr}})
		c := &crowd{
			store: client.NewStore(t,
				&serverstore.Options{Prefix: servers.UniquePrefix(), Timeout: time.Minute}),
			cold: make([]heard, coldKeys),
		}
		c.check(t, false, 0) // starts the client's goroutines
		goroutines := runtime.NumGoroutine()

		start := time.Now()
		alone := c.ask(t, false, demands/10)
		among := c.ask(t, true, demands-demands/10)
		took := time.Since(start)

		var unknown int64
		for k := range hotKeys {
			_, n := c.check(t, true, k)
			unknown += n
		}
		for k := range coldKeys {
			if k%100 == 0 || c.cold[k].unknown.Load() > 0 {
				_, n := c.check(t, false, k)
				unknown += n
			}
		}
		if unknown == 0 || c.gone.Load() == 0 || c.refused.Load() == 0 {
			t.Errorf("%d callers left after sending, %d before, %d were refused; want some of each",
				unknown, c.gone.Load(), c.refused.Load())
		}
		ctx, cancel := context.WithTimeout(t.Context(), servers.FaultTimeout)
		defer cancel()
		// A client keeps a few goroutines for its connections.
		if err := servers.Poll(ctx,
			func() (bool, error) {
				return runtime.NumGoroutine() <= goroutines+8,
					nil
			}); err != nil {
			t.Errorf("%d goroutines, want at most %d", runtime.NumGoroutine(), goroutines+8)
		}

		a, b := p99(alone), p99(among)
		servers.Measured("%s, %s: %d demands of %d callers in %v; %d refused, %d left before and "+
			"%d after they were sent; p99 of %d on cold keys %v, of %d among those on hot keys "+
			"%v: × %.1f",
			image, lib.Name, demands, manyCallers, took.Round(time.Millisecond), c.refused.Load(),
			c.gone.Load(), unknown,
			len(alone), a.Round(10*time.Microsecond), len(among), b.Round(10*time.Microsecond),
			float64(b)/float64(a))
		// The target is a factor of 3; the rest is for a busy machine.
		if depth.Full && b > 10*a {
			t.Errorf("the p99 on cold keys is %v among demands on hot keys, want at most 10 times "+
				"the %v without them", b, a)
		}
	})
}

func p99(waited []time.Duration) time.Duration {
	slices.Sort(waited)
	return waited[len(waited)*99/100]
}
