package conns

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/clientip"
)

// A Listener accepts a bounded number of connections. One more takes the place of one whose last
// request, or else whose begin, is long ago: of an address that has more than an eighth of all
// connections, if there is one, and of those without a request, if they are more than an eighth.
// Addresses of IPv6 are those of a /64 network.
type Listener struct {
	net.Listener
	bounds Bounds

	unused atomic.Int64 // connections without a request

	mu    sync.Mutex
	conns map[*Conn]struct{}
	peers map[string]int
}

// Bounds are those of a [Listener]. The zero Bounds have none.
type Bounds struct {
	Connections int // at a time; 0: any number
	// Budget has what connections send while they are not [Conn.Busy], and their requests.
	Budget *Budget
	// OnCut, if not nil, is called when a connection is cut off because there are too many of them,
	// or because requests hold too much. It must neither block nor call anything of this package.
	OnCut func(why string)
}

// Listen returns a listener that accepts the connections of l.
func Listen(l net.Listener, bounds Bounds) *Listener {
	return &Listener{Listener: l, bounds: bounds,
		conns: make(map[*Conn]struct{}), peers: make(map[string]int)}
}

// A Conn is a connection that a [Listener] has accepted.
type Conn struct {
	net.Conn
	from *Listener
	peer string
	used atomic.Bool // a request has come
	busy atomic.Bool
	last atomic.Int64 // when the last request came, or else the connection, in Unix ns
	idle *Part        // what has come while it is not busy
	once sync.Once
	gone chan struct{} // closed by Cut

	held int64 // by its requests; the lock is that of the budget, as for cut
	cut  bool
}

// Accept returns a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: accepted, from: l, peer: peerOf(accepted.RemoteAddr()),
		gone: make(chan struct{})}
	c.idle = c.Begin()
	c.last.Store(time.Now().UnixNano())
	l.mu.Lock()
	var displaced *Conn
	if most := l.bounds.Connections; most > 0 && len(l.conns) >= most {
		displaced = l.leastMissed()
		l.remove(displaced)
	}
	l.conns[c] = struct{}{}
	l.peers[c.peer]++
	l.unused.Add(1)
	l.mu.Unlock()
	if displaced != nil {
		displaced.cutFor("too many connections")
	}
	return c, nil
}

// peerOf returns the network of a client, or "" on a socket.
func peerOf(addr net.Addr) string {
	parsed, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return ""
	}
	return clientip.AddrKey(parsed.Addr(), clientip.DefaultIPv6Prefix)
}

// sample is of how many connections the least missed one is looked for. An address that has many
// has some of them.
const sample = 100

func (l *Listener) leastMissed() (least *Conn) {
	few := l.bounds.Connections / 8
	unused := l.unused.Load() > int64(few)
	seen, most := 0, 0
	for c := range l.conns { // from a random one
		rank := 0
		if l.peers[c.peer] > few {
			rank += 2
		}
		if unused && !c.used.Load() {
			rank++
		}
		if least == nil || rank > most || rank == most && c.last.Load() < least.last.Load() {
			least, most = c, rank
		}
		if seen++; seen == sample {
			break
		}
	}
	return least
}

func (l *Listener) remove(c *Conn) {
	if _, ok := l.conns[c]; !ok {
		return
	}
	delete(l.conns, c)
	if !c.used.Swap(true) {
		l.unused.Add(-1)
	}
	if l.peers[c.peer]--; l.peers[c.peer] == 0 {
		delete(l.peers, c.peer)
	}
}

// CloseUnused closes the connections on which no request has come, or that are not busy.
func (l *Listener) CloseUnused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if !c.used.Load() || !c.busy.Load() {
			c.Cut()
		}
	}
}

// CutAll cuts all connections.
func (l *Listener) CutAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Cut()
	}
}

// Of returns the Conn below c, which may be a connection with TLS, or nil.
func Of(c net.Conn) *Conn {
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secure.NetConn()
	}
	own, _ := c.(*Conn)
	return own
}

// Busy says that a request has come, so that what is read belongs to parts of requests until Idle.
func (c *Conn) Busy() {
	if !c.used.Swap(true) {
		c.from.unused.Add(-1)
	}
	c.last.Store(time.Now().UnixNano())
	c.Counted()
}

// Counted is Busy without a request.
func (c *Conn) Counted() {
	if !c.busy.Swap(true) {
		c.idle.End()
	}
}

// Idle says that all requests of the connection have ended.
func (c *Conn) Idle() { c.busy.Store(false) }

func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.busy.Load() {
		c.idle.Add(int64(n))
	}
	return n, err
}

// CloseWrite ends what is sent. net/http needs it to close a connection that a client still writes
// to.
func (c *Conn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return nil
	}
	return half.CloseWrite()
}

// Cut ends the connection for whoever reads from it or writes to it, who closes it then.
func (c *Conn) Cut() {
	c.once.Do(func() { close(c.gone) })
	_ = c.Conn.Close()
}

func (c *Conn) cutFor(why string) {
	c.Cut()
	if report := c.from.bounds.OnCut; report != nil {
		report(why)
	}
}

// Close closes the connection, and gives up its place and what it holds.
func (c *Conn) Close() error {
	c.from.mu.Lock()
	c.from.remove(c)
	c.from.mu.Unlock()
	c.idle.End()
	c.once.Do(func() { close(c.gone) })
	return c.Conn.Close()
}
