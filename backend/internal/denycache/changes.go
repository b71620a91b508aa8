package denycache

import (
	"time"

	"github.com/truewindow/ratelimit/backend/internal/batch"
)

// Sent is the time at which a request was sent.
type Sent struct{ at time.Duration }

// Send is called before a request with groups is sent. It removes the entries of states whose units
// the request may free.
func (c *Cache) Send(groups []batch.Group) (sent Sent) {
	if c == nil {
		return sent
	}
	for i := range groups {
		c.removeFreed(&groups[i], +1)
	}
	return Sent{time.Since(c.clock.start)}
}

// Receive is called when the reply is in groups. It removes the entries of states that the request
// has changed. It returns the recheck that should follow the refusals, or nil.
func (c *Cache) Receive(sent Sent, groups []batch.Group) *Recheck {
	if c == nil {
		return nil
	}
	for i := range groups {
		g := &groups[i]
		c.removeFreed(g, -1)
		if changed(g) {
			c.removeStates(g)
		}
	}
	return c.newRecheck(groups, time.Since(c.clock.start)-sent.at)
}

// Lose is called when there is no reply. It removes all that the request may have changed.
func (c *Cache) Lose(groups []batch.Group) {
	if c == nil {
		return
	}
	for i := range groups {
		c.removeFreed(&groups[i], -1)
		c.removeStates(&groups[i])
	}
}
