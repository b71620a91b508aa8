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
	waiting int           // callers of Reserve and Wait
	room    chan struct{} // closed when held becomes less while there are some
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
	b.add(p, bytes)
	if b.held-b.leaving > b.most {
		b.makeRoom()
	}
}

// patience is how long a request waits for room before others are cut off for it.
const patience = 50 * time.Millisecond

// Reserve is Add of many bytes at once, for which it waits a while if there is no room beside a
// quarter of the budget: requests that arrive soon are worth it, and what others Add meanwhile cuts
// off none of those that have their bytes.
func (p *Part) Reserve(bytes int64) {
	b := p.conn.from.bounds.Budget
	if b == nil {
		return
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		b.mu.Lock()
		if b.held+bytes <= b.most-b.most/4 || p.conn.cut {
			b.add(p, bytes)
			b.mu.Unlock()
			return
		}
		if !b.wait(p.conn, timeout.C) {
			p.Add(bytes)
			return
		}
	}
}

// wait waits, without the lock, until something may have become free, and reports that.
func (b *Budget) wait(c *Conn, timeout <-chan time.Time) (freed bool) {
	room := b.room
	b.waiting++
	b.mu.Unlock()
	select {
	case <-room:
		freed = true
	case <-c.gone:
	case <-timeout:
	}
	b.mu.Lock()
	b.waiting--
	b.mu.Unlock()
	return freed
}

// Arrive says that the request has arrived in full.
func (p *Part) Arrive() { p.arrive(true) }

// Answer says that the client has to read the answer, so that the request is up to it again.
func (p *Part) Answer() { p.arrive(false) }

func (p *Part) arrive(arrived bool) {
	if b := p.conn.from.bounds.Budget; b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		p.arrived = arrived
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
	if p.bytes == 0 {
		p.began = time.Now()
		b.parts[p] = struct{}{}
	}
	p.bytes += bytes
	p.conn.held += bytes
	b.held += bytes
	if p.conn.cut {
		b.leaving += bytes
	}
	if p.bytes == 0 {
		delete(b.parts, p)
	}
	if bytes < 0 && b.waiting > 0 {
		close(b.room)
		b.room = make(chan struct{})
	}
}

// smallHeld is what a connection may hold while there is no room.
const smallHeld = 64 << 10

// Wait waits for room, if the requests of the connection hold much: those that are cut off have it
// until they notice, which a connection that has ended does by reading on.
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
		if !b.wait(c, nil) {
			return
		}
	}
}

// makeRoom cuts connections until a quarter of the budget will be free, since looking for them
// takes a while.
func (b *Budget) makeRoom() {
	type candidate struct {
		conn    *Conn
		arrived bool
		weight  float64
	}
	now := time.Now()
	worst := make([]candidate, 0, len(b.parts))
	for p := range b.parts {
		if !p.conn.cut {
			weight := float64(p.bytes) * float64(now.Sub(p.began))
			worst = append(worst, candidate{p.conn, p.arrived, weight})
		}
	}
	slices.SortFunc(worst, func(x, y candidate) int {
		switch {
		case x.arrived == y.arrived:
			return cmp.Compare(y.weight, x.weight)
		case x.arrived:
			return 1
		}
		return -1
	})
	for _, w := range worst {
		if b.held-b.leaving <= b.most-b.most/4 {
			return
		}
		if c := w.conn; !c.cut {
			c.cut = true
			b.leaving += c.held
			c.cutFor("the requests that are not finished hold too much memory")
		}
	}
}
