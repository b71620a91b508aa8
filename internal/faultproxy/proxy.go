// Package faultproxy is a TCP proxy whose connections fail as they are told to: for tests of what
// clients make of it.
package faultproxy

import (
	"context"
	"errors"
	"net"
	"sync"
)

// A Proxy forwards connections to a server. Create one with [Listen]. Its methods are safe for
// simultaneous use.
type Proxy struct {
	target   string
	listener *net.TCPListener
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	fault   Fault
	left    int           // of Fault.Times
	sets    int           // how often Set was called
	changed chan struct{} // closed by the next Set
	links   map[*link]struct{}
	stats   Stats
}

// Stats count what a Proxy has done.
type Stats struct {
	Accepted int // connections, without those refused
	Refused  int // connections, also for want of a server
	Open     int // connections at present
	// how often a fault began to befall something: what was sent and read at once, or a connection
	// that was refused
	Met int
	Cut int // connections that were reset
}

// Listen returns a proxy for the server at target, host:port, that listens on a free port of
// 127.0.0.1.
func Listen(target string) (*Proxy, error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: l, changed: make(chan struct{}),
		links: make(map[*link]struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the proxy's own address, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set lets f befall the connections, in place of the fault before. Connections on which something
// was lost are reset.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.left = f, f.Times
	p.sets++
	close(p.changed)
	p.changed = make(chan struct{})
	for l := range p.links {
		if l.lossy() {
			p.cutLocked(l)
		}
	}
}

// Heal ends the fault.
func (p *Proxy) Heal() { p.Set(Fault{}) }

// CutAll resets the connections that are open.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		p.cutLocked(l)
	}
}

func (p *Proxy) cut(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked(l)
}

func (p *Proxy) cutLocked(l *link) {
	if l.cut() {
		p.stats.Cut++
	}
}

func (p *Proxy) count(n *int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*n++
}

// Stats returns what was counted so far.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Open = len(p.links)
	return s
}

// Close resets all connections, and returns when nothing of the proxy runs any more.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.listener.Close()
	p.CutAll()
	p.running.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.AcceptTCP()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // such as a connection that was gone before
		}
		if p.refuses() {
			reset(client)
			continue
		}
		p.running.Go(func() { p.connect(client) })
	}
}

func (p *Proxy) refuses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusesLocked()
}

func (p *Proxy) refusesLocked() bool {
	if p.fault.Kind != Refuse {
		return false
	}
	p.met()
	p.stats.Refused++
	return true
}

// met counts, and ends a fault that was to befall so many.
func (p *Proxy) met() {
	p.stats.Met++
	if p.left > 0 {
		if p.left--; p.left == 0 {
			p.fault = Fault{}
		}
	}
}

func (p *Proxy) connect(client *net.TCPConn) {
	var dialer net.Dialer
	server, err := dialer.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		reset(client)
		p.count(&p.stats.Refused)
		return
	}
	l := &link{proxy: p, client: client, server: server.(*net.TCPConn), gone: make(chan struct{})}
	if p.enter(l) {
		l.run()
		p.leave(l)
	}
}

// enter reports whether l may run: not when the proxy is closed, or refuses connections since it
// began to connect this one.
func (p *Proxy) enter(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil || p.refusesLocked() {
		l.cut()
		return false
	}
	p.stats.Accepted++
	p.links[l] = struct{}{}
	l.since = p.sets
	return true
}

func (p *Proxy) leave(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// meet returns the fault that befalls what l has to forward, and what is closed when the fault
// changes.
func (p *Proxy) meet(l *link, way direction, sent []byte) (Fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.fault
	var tail []byte
	if way == up {
		tail = l.tail
	}
	if f.Old && l.since == p.sets || !f.befalls(way, tail, sent) {
		return Fault{}, nil
	}
	p.met()
	return f, p.changed
}

// reset closes a connection without a farewell.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // fails on one that is closed
	c.Close()
}
