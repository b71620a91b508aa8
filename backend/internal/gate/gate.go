// Package gate prevents a request to a server from being sent after its callers got an error that
// says that it was not.
package gate

import "sync/atomic"

// A Gate stands between a request and the connection. It reports whether the request may have been
// sent, and stays shut once the callers have abandoned it. The zero Gate is shut. The methods are
// safe for concurrent use, except Reset.
type Gate struct {
	state  atomic.Uint32
	parent *Gate // of the batch that the request is part of, or nil
}

const (
	opened    = 1 << iota // bytes of the request may have been sent
	abandoned             // no caller waits for the reply
)

// Open is called before the first byte of the request is written. If it returns false, no caller
// waits and the request must not be written.
func (g *Gate) Open() bool {
	if g.parent != nil && !g.parent.Open() {
		return false
	}
	return g.state.Or(opened)&abandoned == 0
}

// Shut is called when a server has replied that it did not run the request. It returns false if no
// caller waits.
func (g *Gate) Shut() bool {
	g.state.And(^uint32(opened))
	return !g.Abandoned()
}

// Abandon is called when the last caller stops waiting. It reports whether the request may have
// been sent; if not, it never will be.
func (g *Gate) Abandon() (sent bool) { return g.state.Or(abandoned)&opened != 0 }

// Opened reports whether the request may have been sent.
func (g *Gate) Opened() bool { return g.state.Load()&opened != 0 }

// Abandoned reports whether no caller waits any more.
func (g *Gate) Abandoned() bool {
	return g.state.Load()&abandoned != 0 || g.parent != nil && g.parent.Abandoned()
}

// Reset makes g ready for another request, one of the batch that parent stands for, or of none if
// it is nil. The request before must have ended.
func (g *Gate) Reset(parent *Gate) {
	g.state.Store(0)
	g.parent = parent
}
