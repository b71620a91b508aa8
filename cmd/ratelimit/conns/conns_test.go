package conns

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener of connections in memory, each from an address of its own.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, io.EOF
}
func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return nil }

type from struct {
	net.Conn
	addr string
}

func (f from) RemoteAddr() net.Addr { return f }
func (f from) Network() string      { return "" }
func (f from) String() string       { return f.addr }

// open returns both ends of a connection from an address.
func open(t *testing.T, l *Listener, addr string) (client net.Conn, own *Conn) {
	t.Helper()
	client, server := net.Pipe()
	l.Listener.(pipes) <- from{server, addr}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accepted.Close() })
	return client, Of(accepted)
}

func isCut(c *Conn) bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// TestDisplaced: a connection too many takes the place of one of an address that has many, of one
// without a request, or of the one whose last request is longest ago.
func TestDisplaced(t *testing.T) {
	apart := []string{"1.1.1.1:1", "1.1.1.2:1", "1.1.1.3:1", "1.1.1.4:1"}
	for name, tt := range map[string]struct {
		addrs []string
		used  []int // connections with a request, the last one last
		want  int
	}{
		"the oldest":           {apart, nil, 0},
		"one without requests": {apart, []int{0, 1, 3}, 2},
		"the longest unused":   {apart, []int{1, 3, 0, 2}, 1},
		"of many": {[]string{"1.1.1.1:1", "1.1.1.2:1", "[2001:db8::1]:1", "[2001:db8::2]:1"},
			[]int{0, 1, 3, 2}, 3},
		"of many without requests": {[]string{"1.1.1.1:1", "1.1.1.2:1", "1.1.1.3:1", "1.1.1.3:2"},
			[]int{1, 2}, 3},
		"on a socket": {[]string{"@", "@", "@", "@"}, []int{3, 2, 1, 0}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var cuts []string
				// An eighth of 15 is one connection, so that two are many.
				l := Listen(make(pipes, 1), Bounds{Connections: 15,
					OnCut: func(why string) { cuts = append(cuts, why) }})
				var all []*Conn
				for i := range 15 - len(tt.addrs) { // busy ones
					_, c := open(t, l, fmt.Sprintf("9.0.0.%d:1", i))
					all = append(all, c)
				}
				filler := len(all)
				for _, addr := range tt.addrs {
					time.Sleep(time.Second)
					_, c := open(t, l, addr)
					all = append(all, c)
				}
				for _, i := range tt.used {
					time.Sleep(time.Second)
					all[filler+i].Busy()
				}
				time.Sleep(time.Second)
				for _, c := range all[:filler] {
					c.Busy()
				}
				_, last := open(t, l, "8.0.0.1:1")
				cut := slices.IndexFunc(all, isCut)
				if cut != filler+tt.want || isCut(last) || len(cuts) != 1 {
					t.Errorf("cut %d, want %d; %q", cut-filler, tt.want, cuts)
				}
			})
		})
	}
}

// TestBudget: what is held longest and is largest is cut off, but requests that have arrived last,
// and those that hold much wait until it is gone.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1 << 20)
		l := Listen(make(pipes, 1), Bounds{Budget: b})
		hold := func(bytes int64) (*Conn, *Part) {
			_, c := open(t, l, "1.1.1.1:1")
			p := c.Begin()
			p.Add(bytes)
			return c, p
		}
		arrived, part := hold(300 << 10)
		part.Arrive()
		time.Sleep(time.Minute)
		small, _ := hold(1 << 10)
		time.Sleep(time.Second)
		large, largePart := hold(400 << 10)
		time.Sleep(time.Second)
		next, nextPart := hold(400 << 10)
		if !isCut(large) || isCut(small) || isCut(arrived) || isCut(next) {
			t.Error("another one was cut than the largest that has not arrived")
		}
		if held := b.Held(); held != 1101<<10 {
			t.Errorf("%d bytes are held until it has noticed", held)
		}
		small.Wait()
		waited := make(chan time.Duration)
		began := time.Now()
		go func() {
			next.Wait()
			waited <- time.Since(began)
		}()
		time.Sleep(time.Second)
		largePart.End()
		if took := <-waited; took != time.Second {
			t.Errorf("it waited for %v", took)
		}
		began = time.Now()
		last, lastPart := hold(1)
		lastPart.Reserve(350 << 10) // what is old goes
		if took := time.Since(began); took != patience || isCut(last) || !isCut(next) {
			t.Errorf("it had its bytes after %v", took)
		}
		next.Wait() // it is cut
		nextPart.End()
		began = time.Now()
		time.AfterFunc(patience/2, lastPart.End)
		more, morePart := hold(1)
		morePart.Reserve(400 << 10)
		if took := time.Since(began); took != patience/2 || isCut(last) || isCut(more) {
			t.Errorf("it had its bytes after %v", took)
		}
		if isCut(small) || isCut(arrived) {
			t.Error("more were cut off than was needed")
		}
		morePart.End()
		final, _ := hold(900 << 10)
		if !isCut(final) || isCut(arrived) {
			t.Error("a request that has arrived was cut before one that has not")
		}
		part.Answer()
		if hold(800 << 10); !isCut(arrived) {
			t.Error("a client that does not read its answer was not cut")
		}
		for p := range b.parts {
			p.End()
		}
		if held, leaving := b.Held(), b.leaving; held != 0 || leaving != 0 {
			t.Errorf("%d bytes are held, and %d leaving", held, leaving)
		}
	})
}

// TestRead: what comes before a request is counted until the connection is busy or closed, and
// without a budget nothing is.
func TestRead(t *testing.T) {
	for _, b := range []*Budget{nil, NewBudget(100)} {
		l := Listen(make(pipes, 1), Bounds{Budget: b})
		client, c := open(t, l, "1.1.1.1:1")
		read := func(want int64) {
			t.Helper()
			go func() { _, _ = io.WriteString(client, "some text") }()
			if _, err := io.ReadFull(c, make([]byte, 9)); err != nil {
				t.Error(err)
			}
			if b != nil && b.Held() != want {
				t.Errorf("%d bytes are held, want %d", b.Held(), want)
			}
		}
		read(9)
		read(18)
		c.Counted()
		read(0)
		c.Busy()
		read(0)
		c.Wait()
		c.Idle()
		read(9)
		p := c.Begin()
		p.Add(5)
		p.Arrive()
		p.End()
		l.CloseUnused()
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("it can be read after it was cut off")
		}
		if err := c.CloseWrite(); err != nil { // a pipe has none
			t.Error(err)
		}
		_ = c.Close()
		if b != nil && b.Held() != 0 || len(l.conns)+len(l.peers) > 0 || l.unused.Load() != 0 {
			t.Errorf("%v holds something after the end", l)
		}
		close(l.Listener.(pipes))
		if _, err := l.Accept(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}
}

// TestWaitEnds: a connection that has ended does not wait for room, which it has itself.
func TestWaitEnds(t *testing.T) {
	l := Listen(make(pipes, 1), Bounds{Connections: 2, Budget: NewBudget(200 << 10)})
	_, large := open(t, l, "1.1.1.1:1")
	large.Begin().Add(250 << 10) // it is cut off, and has not noticed
	_, small := open(t, l, "1.1.1.2:1")
	small.Busy()
	small.Begin().Add(100 << 10)
	ended := make(chan struct{})
	go func() {
		small.Wait()
		close(ended)
	}()
	if !isCut(large) || isCut(small) {
		t.Fatal("not the large one alone is cut off")
	}
	small.Cut()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("it waits for itself")
	}
}
