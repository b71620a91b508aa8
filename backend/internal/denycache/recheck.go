package denycache

import (
	"slices"
	"time"

	"github.com/truewindow/ratelimit/backend/internal/batch"
	"github.com/truewindow/ratelimit/driver"
)

// maxRechecks is the largest number of rechecks in flight. At it, no further refusal is cached.
const maxRechecks = 8

// A Recheck is a request that peeks at demands which were refused. Its refusals are cached.
type Recheck struct {
	Groups []batch.Group // whose Results are to be set; the demands are peeks

	entries []*entry // of Groups
	sent    instant  // or a little earlier
}

// newRecheck returns the recheck that should follow the refusals in groups, whose request took
// roundTrip, or nil if none should be sent.
func (c *Cache) newRecheck(groups []batch.Group, roundTrip time.Duration) *Recheck {
	var l *Recheck
	for i := range groups {
		g := &groups[i]
		// The recheck takes as long again; after it, half of the time should be left.
		wait, refused := retryAfter(g)
		if g.Err != nil || !refused || wait < 4*roundTrip || !onlyTakes(g.Demands) {
			continue
		}
		if l == nil {
			if c.rechecks.Add(1) > maxRechecks {
				c.rechecks.Add(-1)
				return nil
			}
			l = &Recheck{sent: c.clock.read()}
		}
		if e := c.acquire(g); e != nil {
			l.add(g, e)
		}
	}
	if l != nil && l.entries == nil {
		c.rechecks.Add(-1)
		return nil
	}
	return l
}

// add adds peeks at the demands of g.
func (l *Recheck) add(g *batch.Group, e *entry) {
	peeks := slices.Clone(g.Demands)
	for i := range peeks {
		peeks[i].Op, peeks[i].N, peeks[i].Least = driver.OpPeek, peeks[i].LeastUnits(), 0
	}
	l.Groups = append(l.Groups, batch.Group{
		Keys: slices.Clone(g.Keys), Demands: peeks, Times: 1,
		Results: make([]driver.Result, len(peeks)),
	})
	l.entries = append(l.entries, e)
}

// Fill is called when the reply to l is in its groups, or with answered false when there is none.
func (c *Cache) Fill(l *Recheck, answered bool) {
	roundTrip := time.Since(c.clock.start) - l.sent.since
	for i := range l.Groups {
		g := &l.Groups[i]
		if !answered || changed(g) {
			c.removeStates(g)
		}
	}
	for i, e := range l.entries {
		var r *refusal
		if g := &l.Groups[i]; answered && g.Err == nil {
			r = newRefusal(g, l.sent)
		}
		if r != nil && r.ends < 2*roundTrip {
			r = nil // it would end before it is of use
		}
		c.release(e, r)
	}
	c.rechecks.Add(-1)
}

// acquire returns the entry of g for a recheck in flight, or nil if g gets none.
func (c *Cache) acquire(g *batch.Group) *entry {
	hash := c.index.hash(g.Demands)
	shard := c.index.byDemands(hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if e := shard.find(hash, g.Demands); e != nil {
		r := e.refusal.Load()
		switch {
		case r == removed:
			c.index.remove(shard, e)
		case e.rechecking || r != nil && c.answers(r, g.Demands):
			return nil
		default:
			e.rechecking = true
			return e
		}
	}
	e := newEntry(hash, g)
	if c.closed.Load() || !c.index.addEvicting(shard, e) {
		return nil
	}
	freeing := c.index.add(shard, e)
	if freeing || c.closed.Load() { // Close may have removed all others before e was added
		c.index.remove(shard, e)
		return nil
	}
	return e
}

// answers reports whether r is a refusal of ds that holds now.
func (c *Cache) answers(r *refusal, ds []driver.Demand) bool {
	_, ok := r.holds(c.clock.read(), c.maxAge)
	return ok && r.covers(ds)
}

// release ends the recheck that has e, and stores its refusal if there is one.
func (c *Cache) release(e *entry, r *refusal) {
	if r != nil {
		if old := e.refusal.Load(); old != removed && e.refusal.CompareAndSwap(old, r) {
			c.stored.Add(1)
		} else {
			c.discarded.Add(1)
		}
	}
	shard := c.index.byDemands(e.hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if e.rechecking = false; e.refusal.Load() == nil {
		c.index.remove(shard, e)
	}
}
