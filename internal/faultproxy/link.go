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
// writes, so that what is held back is nevertheless accepted.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn
	since          int // Set was called so often before

	gone    chan struct{} // closed by cut
	goneNow sync.Once

	// by direction: something is missing, so nothing that comes later makes sense
	lost [2]atomic.Bool
	tail []byte // the last bytes sent up, for who writes up

	mu     sync.Mutex // held while something goes up, so that no answer to it overtakes doomed
	doomed bool       // the next answer is lost, and the connection with it
}

// chunk is what was read at once.
type chunk struct {
	bytes []byte
	at    time.Time
}

const (
	maxChunk = 32 << 10
	maxHeld  = 1 << 10 // chunks that wait in one direction
	maxTail  = 64      // longest Fault.Holding that is found across two chunks
)

func (l *link) run() {
	var wg sync.WaitGroup
	wg.Go(func() { l.pump(up, l.client, l.server) })
	l.pump(down, l.server, l.client)
	wg.Wait()
	l.client.Close()
	l.server.Close()
}

// pump forwards in one direction until its end, and passes that on.
func (l *link) pump(way direction, from, to *net.TCPConn) {
	held := make(chan chunk, maxHeld)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(held)
		l.read(from, held)
	})
	for c := range held {
		if !l.forward(way, to, c) {
			for range held { // the server shall be heard out
			}
			break
		}
	}
	wg.Wait()
	_ = to.CloseWrite() // fails on one that is closed
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
				l.cut() // one side was reset, and so is the other
			}
			return
		}
	}
}

// forward sends c on its way, and reports whether the next may follow.
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

// wait reports whether the connection is still there when the first of the two comes.
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

// send writes b. With doom the answer to it is the end of the connection.
func (l *link) send(way direction, to *net.TCPConn, b []byte, doom bool) bool {
	if way == down {
		if l.isDoomed() {
			l.proxy.count(&l.proxy.stats.Cut)
			reset(l.client)
			_ = l.server.CloseWrite() // it answers what it has got, and then closes
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

// cut resets both sides, and reports whether they were not reset before.
func (l *link) cut() (first bool) {
	l.goneNow.Do(func() {
		first = true
		close(l.gone)
		reset(l.client)
		reset(l.server)
	})
	return first
}
