package transactional

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

const (
	maxWaiting = 1 << 16 // calls of a lane
	maxDemands = 1024    // of a transaction
	maxKeys    = driver.MaxDemands
)

// A lane decides calls in one transaction after the other. A goroutine runs while there are any. If
// a transaction takes longer than the timeout, another goroutine begins the next one.
type lane struct {
	store *Store

	mu       sync.Mutex
	waiting  []*call // in the order of arrival
	running  *group  // its transaction has not taken longer than the timeout; or nil
	answered time.Time
}

// A group is the calls that one transaction decides.
type group struct {
	lane  *lane
	calls []*call  // in the order of arrival
	keys  []string // as stored, sorted and distinct
	alone bool
	hung  bool // guarded by the lane: the transaction takes longer than the timeout
}

// enter adds c to the calls that wait.
func (l *lane) enter(c *call) error {
	if l.store.hung.Load() >= maxHung {
		return fmt.Errorf("%w: %d transactions take longer than %v", driver.ErrUnavailable,
			maxHung, l.store.timeout)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= maxWaiting {
		return fmt.Errorf("%w: %d calls wait already", driver.ErrUnavailable, maxWaiting)
	}
	l.waiting = append(l.waiting, c)
	l.startLocked()
	return nil
}

// startLocked begins a transaction if none runs and calls wait.
func (l *lane) startLocked() {
	if l.running != nil {
		return
	}
	if l.running = l.nextLocked(); l.running != nil {
		go l.work(l.running)
	}
}

// answeredSince reports whether the database has answered in the second half of the time since
// began: otherwise it is the database that is slow.
func (l *lane) answeredSince(began time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	return l.answered.After(now.Add(-now.Sub(began) / 2))
}

// work runs the transaction of g, and then others until no call waits.
func (l *lane) work(g *group) {
	for g != nil {
		g = l.run(g)
	}
}

// run runs the transaction of g, and returns the next group.
func (l *lane) run(g *group) *group {
	timer := time.AfterFunc(l.store.timeout, func() { l.replace(g) })
	again, answered := g.transact()
	timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	if answered.After(l.answered) {
		l.answered = answered
	}
	for _, c := range again {
		c.taken = false
	}
	l.waiting = append(again, l.waiting...)
	if g.hung {
		l.store.hung.Add(-1)
		l.startLocked()
		return nil
	}
	l.running = l.nextLocked()
	return l.running
}

// replace lets another transaction begin, if that of g has not ended.
func (l *lane) replace(g *group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running != g {
		return
	}
	g.hung = true
	l.store.hung.Add(1)
	l.running = nil
	l.startLocked()
}

// nextLocked makes a group of calls that wait, or returns nil if there are none.
func (l *lane) nextLocked() *group {
	l.waiting = slices.DeleteFunc(l.waiting, (*call).hasEnded)
	if len(l.waiting) == 0 {
		l.waiting = nil
		return nil
	}
	g := &group{lane: l, alone: l.waiting[0].alone}
	if g.alone {
		g.fill(slices.DeleteFunc(slices.Clone(l.waiting), func(c *call) bool {
			return !within(c.keys, l.waiting[0].keys)
		}))
	} else if !g.fill(l.waiting) {
		// In the order of arrival, each would have its turn when the rest of its time is too short.
		now := time.Now()
		isLate := func(c *call) bool { return !now.Before(c.half) }
		if young := slices.DeleteFunc(slices.Clone(l.waiting), isLate); len(young) > 0 {
			*g = group{lane: l}
			g.fill(young)
		}
	}
	for _, c := range g.calls {
		c.taken = true
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(c *call) bool { return c.taken })
	return g
}

// hasEnded reports whether c needs no decision: it has one, or its caller has left.
func (c *call) hasEnded() bool { return c.state.Load() != waiting }

// within reports whether all keys, which are sorted, are among others.
func within(keys, others []string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool {
		_, found := slices.BinarySearch(others, key)
		return !found
	})
}

// fill adds the first of calls for which there is room, and reports whether there is for all.
func (g *group) fill(calls []*call) bool {
	demands, keys := 0, make(map[string]struct{})
	for _, c := range calls {
		n := len(keys)
		for _, key := range c.keys {
			if _, found := keys[key]; !found {
				n++
			}
		}
		if demands += len(c.demands); n > maxKeys || demands > maxDemands {
			break
		}
		for _, key := range c.keys {
			keys[key] = struct{}{}
		}
		g.calls = append(g.calls, c)
	}
	g.keys = slices.Sorted(maps.Keys(keys))
	return len(g.calls) == len(calls)
}
