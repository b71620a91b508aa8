package clients

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"
)

// A Cutter dials connections that lose the answers of scripts after the server has run them.
type Cutter struct {
	On           atomic.Bool
	Cut          atomic.Int64 // answers lost
	Moved, Asked atomic.Int64 // redirects seen
	OnMoved      func(by string)
}

// Dial opens a connection whose answers c may lose.
func (c *Cutter) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, cutter: c, addr: addr}, nil
}

type cutConn struct {
	net.Conn
	cutter *Cutter
	addr   string
	script atomic.Bool // a script was sent and not answered
}

func (c *cutConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("eval")) { // a ping after it does not reset this
		c.script.Store(true)
	}
	return c.Conn.Write(b)
}

// Read loses the first array, integer or string after a script. Errors and the OK of ASKING pass.
func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if bytes.Contains(b[:n], []byte("-MOVED ")) {
		c.cutter.Moved.Add(1)
		if c.cutter.OnMoved != nil {
			c.cutter.OnMoved(c.addr)
		}
	}
	if bytes.Contains(b[:n], []byte("-ASK ")) {
		c.cutter.Asked.Add(1)
	}
	failed := n > 0 && b[0] == '-'
	if !c.script.Load() || !failed && !bytes.ContainsAny(b[:n], "*:$") {
		return n, err
	}
	if c.cutter.On.Load() && !failed {
		c.cutter.Cut.Add(1)
		c.Close()
		return 0, io.EOF
	}
	c.script.Store(false)
	return n, err
}
