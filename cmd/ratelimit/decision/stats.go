package decision

import (
	"sync"
	"sync/atomic"

	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// Stats are the counts of a [Decider] since it was made.
type Stats struct {
	Decisions int64 // calls of Decide that returned no error
	Matched   int64 // requests of these with a limit
	Unmatched int64 // requests of these without a limit, which are allowed
	OneByOne  int64 // calls whose limits the store could not decide together
	// Limits has the counts of each limit of the set in force, by its name. A limit that leaves
	// the set begins at 0 when it returns.
	Limits map[string]LimitStats
}

// LimitStats are the counts of one limit. If requests of a call have the same key, they count once.
type LimitStats struct {
	ShadowRefused int64 // decisions that it would have refused if it were enforced
	Warned        int64 // decisions with a warning
}

type counters struct {
	decisions, matched, unmatched, oneByOne atomic.Int64

	mu     sync.Mutex
	limits map[string]*limitCounters
}

type limitCounters struct{ shadowRefused, warned atomic.Int64 }

// of returns the counters of a limit that are in use, or new ones.
func (c *counters) of(name string) *limitCounters {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.limits[name]; found != nil {
		return found
	}
	return new(limitCounters)
}

// keep puts the counters of a set in use, and drops all others.
func (c *counters) keep(counts map[*rules.Limit]*limitCounters) {
	limits := make(map[string]*limitCounters, len(counts))
	for l, counts := range counts {
		limits[l.Name] = counts
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limits = limits
}

// Stats returns the counts.
func (d *Decider) Stats() Stats {
	c := &d.counters
	s := Stats{
		Decisions: c.decisions.Load(), Matched: c.matched.Load(),
		Unmatched: c.unmatched.Load(), OneByOne: c.oneByOne.Load(),
		Limits: make(map[string]LimitStats),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, l := range c.limits {
		s.Limits[name] = LimitStats{l.shadowRefused.Load(), l.warned.Load()}
	}
	return s
}
