package faultproxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is a connection through a proxy. Each direction has a goroutine that reads and one that
// writes, so data is accepted even while it is held back.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn
	since          int // calls of Set before this connection

	gone    chan struct{} // closed by cut
	goneNow sync.Once

	// by direction: whether data was dropped, after which no later data is forwarded
	lost [2]atomic.Bool
	tail []byte // the last bytes sent up; used by the writer of that direction

	mu     sync.Mutex // held during writes up, so that doomed is set before their answers
	doomed bool       // the next answer is dropped and the connection reset
}

// chunk is the data of one read.
type chunk struct {
	bytes []byte
	at    time.Time
}

const (
	maxChunk = 32 << 10
	maxHeld  = 1 << 10 // chunks held in one direction
	maxTail  = 64      // longest Fault.Holding found across two chunks
)

func (l *link) run() {
	var wg sync.WaitGroup
	wg.Go(func() { l.pump(up, l.client, l.server) })
	l.pump(down, l.server, l.client)
	wg.Wait()
	l.client.Close()
	l.server.Close()
}

// pump forwards in one direction until its end, and then closes the other side for writing.
func (l *link) pump(way direction, from, to *net.TCPConn) {
	held := make(chan chunk, maxHeld)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(held)
		l.read(from, held)
	})
	for c := range held {
		if !l.forward(way, to, c) {
			for range held { // reads the rest, so that the sender can finish
			}
			break
		}
	}
	wg.Wait()
	_ = to.CloseWrite() // fails on a closed connection
}

func (l *link) read(from *net.TCPConn, held chan<- chunk) {
	for {
		buf := make([]byte, maxChunk)
		n, err := from.Read(buf)
		if n > 0 {
			select {
			case held <- chunk{buf[:n:n], time.Now()}:
			case <-l.gone:
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				l.cut() // one side was reset, so reset the other
			}
			return
		}
	}
}

// forward forwards c as the fault requires, and reports whether pump may continue.
func (l *link) forward(way direction, to *net.TCPConn, c chunk) bool {
	for {
		if l.lost[way].Load() {
			return true
		}
		f, changed := l.proxy.meet(l, way, c.bytes)
		switch f.Kind {
		case CutBefore:
			l.proxy.cut(l)
			return false
		case CutAfter:
			return l.send(way, to, c.bytes, true)
		case LoseRequests:
			l.lost[up].Store(true)
			continue
		case LoseAnswers:
			l.lost[down].Store(true)
			if way == down {
				continue
			}
		case Freeze:
			if !l.wait(nil, changed) {
				return false
			}
			continue
		case Delay:
			timer := time.NewTimer(time.Until(c.at.Add(f.Pause)))
			defer timer.Stop()
			if !l.wait(timer.C, changed) {
				return false
			}
			if hasEnded(changed) {
				continue
			}
		case Drip:
			return l.drip(way, to, c.bytes, f.Pause, changed)
		}
		return l.send(way, to, c.bytes, false)
	}
}

// wait waits for the first of the two, and reports whether the connection still exists.
func (l *link) wait(timer <-chan time.Time, changed <-chan struct{}) bool {
	select {
	case <-timer:
	case <-changed:
	case <-l.gone:
		return false
	}
	return true
}

func hasEnded(changed <-chan struct{}) bool {
	select {
	case <-changed:
		return true
	default:
		return false
	}
}

// send writes b. With doom, the connection is reset when its answer arrives.
func (l *link) send(way direction, to *net.TCPConn, b []byte, doom bool) bool {
	if way == down {
		if l.isDoomed() {
			l.proxy.count(&l.proxy.stats.Cut)
			reset(l.client)
			_ = l.server.CloseWrite() // the server answers what it has received, and then closes
			return false
		}
		_, err := to.Write(b)
		return err == nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(l.tail, b...)
	l.tail = append(l.tail[:0], l.tail[max(0, len(l.tail)-maxTail):]...)
	_, err := to.Write(b)
	l.doomed = l.doomed || doom
	return err == nil
}

func (l *link) isDoomed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.doomed
}

func (l *link) drip(
	way direction, to *net.TCPConn, b []byte, pause time.Duration, changed <-chan struct{},
) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for i := range b {
		if !l.send(way, to, b[i:i+1], false) {
			return false
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-changed:
			return l.send(way, to, b[i+1:], false)
		case <-l.gone:
			return false
		}
	}
	return true
}

func (l *link) lossy() bool { return l.lost[up].Load() || l.lost[down].Load() }

// cut resets both sides, and reports whether it is the first to do so.
func (l *link) cut() (first bool) {
	l.goneNow.Do(func() {
		first = true
		close(l.gone)
		reset(l.client)
		reset(l.server)
	})
	return first
}
