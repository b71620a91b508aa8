package denycache

import "time"

// A Flight is the time from sending a request until its reply has come.
type Flight struct{ sent time.Duration }

// Send is called before a request with groups is sent. It removes entries of states of which the
// request may free units.
func (c *Cache) Send(groups []Group) (f Flight) {
	if c == nil {
		return f
	}
	for i := range groups {
		c.removeFreed(&groups[i], +1)
	}
	return Flight{time.Since(c.clock.start)}
}

// Receive is called when the reply is in groups. It removes the entries of states that the request
// has changed. It returns the look that should follow the refusals, or nil.
func (c *Cache) Receive(f Flight, groups []Group) *Look {
	if c == nil {
		return nil
	}
	for i := range groups {
		g := &groups[i]
		c.removeFreed(g, -1)
		if g.changed() {
			c.removeStates(g)
		}
	}
	return c.newLook(groups, time.Since(c.clock.start)-f.sent)
}

// Lose is called when there is no reply. It removes all that the request may have changed.
func (c *Cache) Lose(groups []Group) {
	if c == nil {
		return
	}
	for i := range groups {
		c.removeFreed(&groups[i], -1)
		c.removeStates(&groups[i])
	}
}
