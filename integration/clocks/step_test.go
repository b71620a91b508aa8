package clocks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

const (
	stepMax    = 40
	stepWindow = 2 * time.Second
	stepPace   = 5 * time.Millisecond

	// stepSlack is how much a busy machine may add to latencies. A store without an allowance for
	// steps would refuse for an hour.
	stepSlack = 5 * time.Second
)

var stepLog = algorithm.SlidingLog(ratelimit.Limit{Max: stepMax, Window: stepWindow})

// TestClockSteps steps a server's wall clock under traffic, by up to an hour, forward and back. In
// true time no window admits more than the limit, plus the limit once for each step forward, and
// refusals last at most one window longer than without the step.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	servers.EachClocked(t, func(t *testing.T, image string) {
		s := servers.StartClocked(t, image)
		tr := newTraffic(t, timedStores(t, clients.Dialing{Addrs: []string{s.Addr}, Patient: true}))
		for i, step := range []struct {
			to   time.Duration
			what string
		}{
			{-time.Hour, "an hour back"},
			{0, "an hour forward"},
			{time.Hour, "an hour forward"},
			{0, "an hour back"},
			{-time.Second, "half a window back"},
			{-2 * time.Second, "half a window back again"},
			{time.Minute, "a minute forward"},
			{-time.Minute, "two minutes back"},
			{0, "a minute forward"},
		} {
			tr.step(t, s, step.to)
			worst := tr.admit(t)
			servers.Measured("%s, clock steps %d: %s: all admit again after %v at most",
				image, i, step.what, worst.Round(time.Millisecond))
		}
		// several steps before the next admission
		for _, to := range []time.Duration{time.Hour, 0, -time.Hour, time.Hour, -time.Hour, 0} {
			tr.step(t, s, to)
		}
		tr.admit(t)
		tr.stop(t)
	})
}

// traffic takes units all the time: through each store on its own key, and through all stores on a
// shared key.
type traffic struct {
	askers []*stepAsker
	steps  []clockStep
	start  time.Time
	done   chan struct{}
	wg     sync.WaitGroup
}

// A clockStep happened between began and done.
type clockStep struct {
	forward     bool
	began, done time.Duration
	to          time.Duration
}

// stepAsker takes units of one key through one store.
type stepAsker struct {
	timed
	key string

	mu       sync.Mutex
	admitted []admission
	wrong    error
}

// An admission was decided between asked and answered.
type admission struct{ asked, answered time.Duration }

func newTraffic(t *testing.T, stores []timed) *traffic {
	t.Helper()
	tr := &traffic{start: time.Now(), done: make(chan struct{})}
	for _, s := range stores {
		for _, key := range []string{s.name, "shared"} {
			a := &stepAsker{timed: s, key: key}
			tr.askers = append(tr.askers, a)
			tr.wg.Go(func() { tr.ask(t, a) })
		}
	}
	t.Cleanup(func() { tr.end() })
	return tr
}

func (tr *traffic) ask(t *testing.T, a *stepAsker) {
	tick := time.NewTicker(stepPace)
	defer tick.Stop()
	d := driver.Demand{Key: a.key, Algorithm: stepLog, N: 1}
	for {
		select {
		case <-tr.done:
			return
		case <-tick.C:
		}
		asked := time.Since(tr.start)
		res, err := a.store.Take(t.Context(), d)
		a.mu.Lock()
		switch {
		case err != nil:
			a.wrong = err
		case res.Allowed:
			a.admitted = append(a.admitted, admission{asked, time.Since(tr.start)})
		}
		a.mu.Unlock()
	}
}

// step sets s's clock.
func (tr *traffic) step(t *testing.T, s *servers.Server, to time.Duration) {
	t.Helper()
	last := clockStep{}
	if len(tr.steps) > 0 {
		last = tr.steps[len(tr.steps)-1]
	}
	began := time.Since(tr.start)
	s.SetClock(t, to)
	tr.steps = append(tr.steps,
		clockStep{forward: to > last.to, began: began, done: time.Since(tr.start), to: to})
}

// admit waits until every key has an admission that was asked for after the last step, and returns
// how long that took.
func (tr *traffic) admit(t *testing.T) (longest time.Duration) {
	t.Helper()
	since := tr.steps[len(tr.steps)-1].done
	for key, askers := range tr.keys() {
		servers.Within(t, func() bool {
			first, ok := firstAfter(askers, since)
			if ok {
				longest = max(longest, first-since)
			}
			return ok
		}, "nothing was admitted for key "+key)
	}
	if longest > stepWindow+stepSlack {
		t.Errorf("after a step to %v a key was refused for %v, want at most %v",
			tr.steps[len(tr.steps)-1].to, longest, stepWindow+stepSlack)
	}
	return longest
}

func firstAfter(askers []*stepAsker, since time.Duration) (first time.Duration, ok bool) {
	for _, a := range askers {
		a.mu.Lock()
		for _, ad := range slices.Backward(a.admitted) {
			if ad.asked < since {
				break
			}
			if !ok || ad.answered < first {
				first, ok = ad.answered, true
			}
		}
		a.mu.Unlock()
	}
	return first, ok
}

func admissions(askers []*stepAsker) (n int) {
	for _, a := range askers {
		a.mu.Lock()
		n += len(a.admitted)
		a.mu.Unlock()
	}
	return n
}

func (tr *traffic) keys() map[string][]*stepAsker {
	keys := make(map[string][]*stepAsker)
	for _, a := range tr.askers {
		keys[a.key] = append(keys[a.key], a)
	}
	return keys
}

func (tr *traffic) end() {
	select {
	case <-tr.done:
	default:
		close(tr.done)
	}
	tr.wg.Wait()
}

// stop ends the traffic when every key has admissions of several windows, and checks every window.
func (tr *traffic) stop(t *testing.T) {
	t.Helper()
	for key, askers := range tr.keys() {
		servers.Within(t, func() bool { return admissions(askers) >= 3*stepMax },
			"too few admissions for key "+key)
	}
	tr.end()
	for key, askers := range tr.keys() {
		var all []admission
		for _, a := range askers {
			all = append(all, a.admitted...)
			if a.wrong != nil {
				t.Errorf("%s, key %s: %v", a.name, a.key, a.wrong)
			}
		}
		if over := tr.overLimit(all); over != "" {
			t.Errorf("key %s: %s", key, over)
		}
	}
}

// overLimit describes a window that certainly admitted more than its steps forward allow, or
// returns "". It counts admissions both asked for and answered in the window.
func (tr *traffic) overLimit(all []admission) string {
	slices.SortFunc(all, func(a, b admission) int { return cmp.Compare(a.asked, b.asked) })
	for i, first := range all {
		end := first.asked + stepWindow
		inside := 0
		for _, a := range all[i:] {
			if a.asked >= end {
				break
			}
			if a.answered < end {
				inside++
			}
		}
		allowed := stepMax
		var steps []string
		for _, s := range tr.steps {
			if s.forward && s.began < end && s.done > first.asked {
				allowed += stepMax
				steps = append(steps, fmt.Sprint(s.to))
			}
		}
		if inside > allowed {
			return fmt.Sprintf("%d admitted in %v from %v on; with steps forward to [%s] want "+
				"at most %d",
				inside, stepWindow, first.asked, strings.Join(steps, " "), allowed)
		}
	}
	return ""
}
