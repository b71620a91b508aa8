// Package conns bounds what clients make a service hold: their connections, and the bytes of
// requests that are not finished. When there is no room it closes connections, those that the
// service misses least, so that strangers cannot keep others out.
package conns

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// A Budget is for the bytes of all requests that are not finished. When they exceed it, it cuts
// connections until there will be room: of the requests that have not arrived in full, and then of
// the others, those with the most bytes times age. A request that arrives at once is cut off last.
//
// It is safe for concurrent use.
type Budget struct {
	most int64

	mu      sync.Mutex
	held    int64
	leaving int64 // bytes of held that are of connections which are cut, and have not noticed yet
	parts   map[*Part]struct{}
	room    chan struct{} // closed when held is not above most any more
}

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget {
	return &Budget{most: bytes, parts: make(map[*Part]struct{}), room: make(chan struct{})}
}

// Held returns how many bytes requests hold.
func (b *Budget) Held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// A Part is what one request of a connection holds.
type Part struct {
	conn    *Conn
	began   time.Time
	bytes   int64
	arrived bool
}

// Begin returns the part of a request, which holds nothing yet.
func (c *Conn) Begin() *Part { return &Part{conn: c} }

// Add adds bytes, or with a negative number takes them back.
func (p *Part) Add(bytes int64) {
	b := p.conn.from.bounds.Budget
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.bytes == 0 {
		p.began = time.Now()
		b.parts[p] = struct{}{}
	}
	b.add(p, bytes)
	if b.held-b.leaving > b.most {
		b.makeRoom()
	}
}

// Arrive says that the request has arrived in full.
func (p *Part) Arrive() {
	if b := p.conn.from.bounds.Budget; b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		p.arrived = true
	}
}

// End takes all bytes back: the request is over.
func (p *Part) End() {
	if b := p.conn.from.bounds.Budget; b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		p.arrived = false
		b.add(p, -p.bytes)
	}
}

func (b *Budget) add(p *Part, bytes int64) {
	over := b.held > b.most
	p.bytes += bytes
	p.conn.held += bytes
	b.held += bytes
	if p.conn.cut {
		b.leaving += bytes
	}
	if p.bytes == 0 {
		delete(b.parts, p)
	}
	if over && b.held <= b.most {
		close(b.room)
		b.room = make(chan struct{})
	}
}

// smallHeld is what a connection may hold while there is no room.
const smallHeld = 64 << 10

// Wait waits for room, if the requests of the connection hold much: those that are cut off have it
// until they notice.
func (c *Conn) Wait() {
	b := c.from.bounds.Budget
	if b == nil {
		return
	}
	for {
		b.mu.Lock()
		if b.held <= b.most || c.held <= smallHeld || c.cut {
			b.mu.Unlock()
			return
		}
		room := b.room
		b.mu.Unlock()
		select {
		case <-room:
		case <-c.gone:
		}
	}
}

// makeRoom cuts connections until an eighth of the budget will be free, since looking for them
// takes a while.
func (b *Budget) makeRoom() {
	now := time.Now()
	worst := make([]*Part, 0, len(b.parts))
	for p := range b.parts {
		if !p.conn.cut {
			worst = append(worst, p)
		}
	}
	weight := func(p *Part) float64 { return float64(p.bytes) * float64(now.Sub(p.began)) }
	slices.SortFunc(worst, func(x, y *Part) int {
		switch {
		case x.arrived != y.arrived && x.arrived:
			return 1
		case x.arrived != y.arrived:
			return -1
		}
		return cmp.Compare(weight(y), weight(x))
	})
	for _, p := range worst {
		if b.held-b.leaving <= b.most-b.most/8 {
			return
		}
		if c := p.conn; !c.cut {
			c.cut = true
			b.leaving += c.held
			c.cutFor("the requests that are not finished hold too much memory")
		}
	}
}
