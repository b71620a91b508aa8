package clocks

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// cacheAge is for how long a cached refusal may be given, unless OpenOptions say otherwise.
const cacheAge = 5 * time.Second

// TestClockStepsBackOnRefusals: after a step back a refusal tells the truth about when to come
// again, which is one window later at most.
func TestClockStepsBackOnRefusals(t *testing.T) {
	t.Parallel()
	servers.EachClocked(t, func(t *testing.T, image string) {
		s := servers.StartClocked(t, image)
		for _, back := range []time.Duration{4 * time.Second, time.Hour} {
			// So that nobody has let a window pass before the clock steps, on a busy machine
			// either.
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

// TestClockStepsForwardOnRefusals: after a step forward nobody is refused what the window has lost,
// by a cache for no longer than CacheAge. A step that is shorter than a state's time to live makes
// the server drop nothing and tell caches nothing.
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

// refusedTimed is a store and a demand that it has refused.
type refusedTimed struct {
	timed
	d     ratelimit.Demand
	used  time.Time // no later than all of the limit was taken
	since time.Time // no sooner than the server was asked
}

// eachRefused uses up limit through each store, steps, and runs f for all at once.
func eachRefused(
	t *testing.T, stores []timed, limit ratelimit.Algorithm, step func(),
	f func(*refusedTimed) error,
) {
	t.Helper()
	var all []*refusedTimed
	for _, s := range stores {
		r := &refusedTimed{timed: s,
			d:    ratelimit.Demand{Key: s.name, Algorithm: limit, N: limit.Limit().Max},
			used: time.Now()}
		if !clients.Ask(t, s.store, r.d).Allowed {
			t.Fatalf("%s: refused", s.name)
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

// comeAgain comes again when a refusal says, until all is admitted: the server refuses once, after
// what the cache may know from before the step.
func (r *refusedTimed) comeAgain(t *testing.T, longest time.Duration) error {
	refused := make(map[ratelimit.Source]time.Duration)
	for {
		res, err := r.store.Take(t.Context(), r.d)
		if err != nil {
			return err
		}
		if res.Allowed {
			if passed := time.Since(r.used); passed < r.d.Algorithm.Limit().Window {
				return fmt.Errorf("admitted %v after all of the limit was taken", passed)
			}
			return r.takeRest(t, res)
		}
		if before, again := refused[res.Source]; again {
			return fmt.Errorf("refused by the %v after the %v that it has named",
				res.Source, before)
		}
		if refused[res.Source] = res.RetryAfter; res.RetryAfter <= 0 || res.RetryAfter > longest {
			return fmt.Errorf("%+v, want a refusal for %v at most", res, longest)
		}
		time.Sleep(res.RetryAfter)
	}
}

// takeRest takes what one admission has left of a limit of which nothing else is used any more.
func (r *refusedTimed) takeRest(t *testing.T, first ratelimit.Result) error {
	d := r.d
	d.N = first.Limit - d.N
	if res, err := r.store.Take(t.Context(), d); err != nil || !res.Allowed {
		return fmt.Errorf("only a part is admitted: %+v, %v", res, err)
	}
	if res, err := r.store.Take(t.Context(), r.d); err != nil || res.Allowed {
		return fmt.Errorf("more than the limit is admitted: %+v, %v", res, err)
	}
	return nil
}

// admitted asks until a unit is admitted, and then for the rest. It returns how long after the step
// before it was refused.
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
			return 0, fmt.Errorf("%+v: the server refuses what its clock says has left the window",
				res)
		case asked.Sub(r.since) > cacheAge:
			return 0, fmt.Errorf("refused by the cache %v after it has asked the server",
				asked.Sub(r.since))
		}
		time.Sleep(stepPace)
	}
}
