// Package faultproxy is a TCP proxy that injects faults into its connections, for tests of clients.
package faultproxy

import (
	"context"
	"errors"
	"net"
	"sync"
)

// A Proxy forwards connections to a server. Create one with [Listen]. Its methods are safe for
// concurrent use.
type Proxy struct {
	target   string
	listener *net.TCPListener
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	fault   Fault
	left    int           // what is left of Fault.Times
	sets    int           // calls of Set
	changed chan struct{} // closed by the next Set
	links   map[*link]struct{}
	stats   Stats
}

// Stats counts what a Proxy has done.
type Stats struct {
	Accepted int // connections accepted and not refused
	Refused  int // connections refused, also because the server was unavailable
	Open     int // connections now open
	// how often the fault was applied: to data of one read, or to a refused connection
	Met int
	Cut int // connections that were reset
}

// Listen returns a proxy for the server at target, host:port. It listens on a free port of
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

// Set replaces the fault by f. It resets the connections on which data was dropped.
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

// CutAll resets the open connections.
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

// Stats returns the counts so far.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Open = len(p.links)
	return s
}

// Close resets all connections and returns when no goroutine of the proxy is left.
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
			continue // for example, the client has already closed the connection
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

// met counts an application of the fault and ends the fault after the last of Fault.Times.
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

// enter reports whether l may run: the proxy must be neither closed nor, since the connection was
// accepted, refusing.
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

// meet returns the fault that applies to data of l, and a channel that is closed when the fault
// changes.
func (p *Proxy) meet(l *link, way direction, sent []byte) (Fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.fault
	var tail []byte
	if way == up {
		tail = l.tail
	}
	if f.Old && l.since == p.sets || !f.applies(way, tail, sent) {
		return Fault{}, nil
	}
	p.met()
	return f, p.changed
}

// reset closes a connection with a TCP reset.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // fails on a closed connection
	c.Close()
}
