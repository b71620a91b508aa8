package clocks

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// cacheAge is the default of OpenOptions.CacheAge.
const cacheAge = 5 * time.Second

// TestClockStepsBackOnRefusals: after a step back, RetryAfter is right, and at most one window
// longer than without the step.
func TestClockStepsBackOnRefusals(t *testing.T) {
	t.Parallel()
	servers.EachClocked(t, func(t *testing.T, image string) {
		s := servers.StartClocked(t, image)
		for _, back := range []time.Duration{4 * time.Second, time.Hour} {
			// Long enough for a busy machine to reach the step within the window.
			limit := algorithm.SlidingLog(ratelimit.Limit{Max: 10, Window: stepSlack})
			s.SetClock(t, 0)
			eachRefused(t, timedStores(t, clients.Dialing{Addrs: []string{s.Addr}, Patient: true}),
				limit, func() {
					s.SetClock(t, -back)
				},
				func(r *refusedTimed) error {
					return r.comeAgain(t, limit.Limit().Window+min(back, limit.Limit().Window))
				})
		}
	})
}

// TestClockStepsForwardOnRefusals: after a step forward the server refuses nothing that has left
// the window, and a cache does so for at most CacheAge. A step shorter than a state's time to live
// expires no key, so the server pushes no invalidation.
func TestClockStepsForwardOnRefusals(t *testing.T) {
	t.Parallel()
	servers.EachClocked(t, func(t *testing.T, image string) {
		s := servers.StartClocked(t, image)
		limit := algorithm.SlidingLog(ratelimit.PerMinute("minute", 10))
		for _, forward := range []time.Duration{70 * time.Second, time.Hour} {
			s.SetClock(t, 0)
			eachRefused(t, timedStores(t, clients.Dialing{Addrs: []string{s.Addr}, Patient: true}),
				limit, func() {
					s.SetClock(t, forward)
				},
				func(r *refusedTimed) error {
					worst, err := r.admitted(t)
					if r.cached {
						servers.Measured("%s, clock steps %v forward: %s refuses for %v",
							image, forward, r.name, worst.Round(10*time.Millisecond))
					}
					return err
				})
		}
	})
}

// refusedTimed is a store and a demand that it refused.
type refusedTimed struct {
	timed
	d     driver.Demand
	used  time.Time // before the limit was used up
	since time.Time // after the last call of the server
}

// eachRefused uses up limit through each store, calls step, and runs f on all stores at once.
func eachRefused(
	t *testing.T, stores []timed, limit ratelimit.Algorithm, step func(),
	f func(*refusedTimed) error,
) {
	t.Helper()
	var all []*refusedTimed
	for _, s := range stores {
		r := &refusedTimed{timed: s,
			d:    driver.Demand{Key: s.name, Algorithm: limit, N: limit.Limit().Max},
			used: time.Now()}
		if !clients.Ask(t, s.store, r.d).Allowed {
			t.Fatalf("%s: the first take was refused, want it admitted", s.name)
		}
		r.d.N = 1
		clients.WantRefused(t, s.store, r.d, ratelimit.SourceStore)
		if s.cached {
			clients.WantCached(t, s.store, r.d)
		}
		r.since = time.Now()
		all = append(all, r)
	}
	step()
	var wg sync.WaitGroup
	for _, r := range all {
		wg.Go(func() {
			if err := f(r); err != nil {
				t.Errorf("%s: %v", r.name, err)
			}
		})
	}
	wg.Wait()
}

// comeAgain takes until it is admitted, and waits as long as each refusal says. It expects one
// refusal by the server, and before it at most one that was cached before the step.
func (r *refusedTimed) comeAgain(t *testing.T, longest time.Duration) error {
	refused := make(map[ratelimit.Source]time.Duration)
	for {
		res, err := r.store.Take(t.Context(), r.d)
		if err != nil {
			return err
		}
		if res.Allowed {
			if passed := time.Since(r.used); passed < r.d.Algorithm.Limit().Window {
				return fmt.Errorf("admitted %v after the limit was used up, want a window or more",
					passed)
			}
			return r.takeRest(t, res)
		}
		if before, again := refused[res.Source]; again {
			return fmt.Errorf("refused by the %v again after its RetryAfter of %v",
				res.Source, before)
		}
		if refused[res.Source] = res.RetryAfter; res.RetryAfter <= 0 || res.RetryAfter > longest {
			return fmt.Errorf("got %+v, want a refusal for at most %v", res, longest)
		}
		time.Sleep(res.RetryAfter)
	}
}

// takeRest checks that exactly the rest of the limit is free after first, an admission.
func (r *refusedTimed) takeRest(t *testing.T, first ratelimit.Result) error {
	d := r.d
	d.N = first.Limit.Max - d.N
	if res, err := r.store.Take(t.Context(), d); err != nil || !res.Allowed {
		return fmt.Errorf("the rest of the limit got %+v, %v; want an admission", res, err)
	}
	if res, err := r.store.Take(t.Context(), r.d); err != nil || res.Allowed {
		return fmt.Errorf("one unit more than the limit got %+v, %v; want a refusal", res, err)
	}
	return nil
}

// admitted takes until a unit is admitted, and then the rest. It returns for how long after the
// step the store refused.
func (r *refusedTimed) admitted(t *testing.T) (refused time.Duration, err error) {
	start := time.Now()
	for {
		asked := time.Now()
		res, err := r.store.Take(t.Context(), r.d)
		switch {
		case err != nil:
			return 0, err
		case res.Allowed:
			return asked.Sub(start), r.takeRest(t, res)
		case res.Source != ratelimit.SourceCache:
			return 0, fmt.Errorf("the server refused after all units left the window: %+v",
				res)
		case asked.Sub(r.since) > cacheAge:
			return 0, fmt.Errorf("the cache refused %v after the last call of the server, "+
				"want at most %v", asked.Sub(r.since), cacheAge)
		}
		time.Sleep(stepPace)
	}
}
