package faultproxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	soon   = 10 * time.Second      // by then everything expected has happened
	awhile = 50 * time.Millisecond // long enough to see that nothing happens
)

// echo is a server that answers each line in capitals and keeps what it received.
type echo struct {
	listener net.Listener
	mu       sync.Mutex
	got      []string
}

func newEcho(t *testing.T) *echo {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go e.serve(conn)
		}
	}()
	return e
}

func (e *echo) serve(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		e.mu.Lock()
		e.got = append(e.got, lines.Text())
		e.mu.Unlock()
		if _, err := io.WriteString(conn, strings.ToUpper(lines.Text())+"\n"); err != nil {
			return
		}
	}
}

func (e *echo) lines() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.got, " ")
}

// awaitLines waits until the server has received exactly these lines.
func (e *echo) awaitLines(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(soon); e.lines() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the server got %q, want %q", e.lines(), want)
		}
	}
}

func newProxy(t *testing.T) (*Proxy, *echo) {
	e := newEcho(t)
	p, err := Listen(e.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, e
}

// client is a connection for lines and their answers.
type client struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, p *Proxy) *client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{conn, bufio.NewReader(conn)}
}

func (c *client) send(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

func (c *client) answer(within time.Duration) (string, error) {
	c.SetReadDeadline(time.Now().Add(within))
	line, err := c.r.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

func (c *client) wantAnswer(t *testing.T, want string) {
	t.Helper()
	if got, err := c.answer(soon); err != nil || got != want {
		t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}

func (c *client) ask(t *testing.T, line string) {
	t.Helper()
	c.send(t, line)
	c.wantAnswer(t, strings.ToUpper(line))
}

func (c *client) wantReset(t *testing.T) {
	t.Helper()
	got, err := c.answer(soon)
	if err == nil || errors.Is(err, io.EOF) || isTimeout(err) {
		t.Fatalf("got %q, %v; want a reset", got, err)
	}
}

// wantRefused opens a connection and expects a reset, possibly while connecting.
func wantRefused(t *testing.T, p *Proxy) {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return
	}
	defer conn.Close()
	(&client{conn, bufio.NewReader(conn)}).wantReset(t)
}

func (c *client) wantNothing(t *testing.T) {
	t.Helper()
	if got, err := c.answer(awhile); !isTimeout(err) {
		t.Fatalf("got %q, %v; want nothing", got, err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestForward(t *testing.T) {
	p, e := newProxy(t)
	a, b := dial(t, p), dial(t, p)
	a.ask(t, "one")
	b.ask(t, "two")
	a.ask(t, "three")
	e.awaitLines(t, "one two three")
	if s := p.Stats(); s != (Stats{Accepted: 2, Open: 2}) {
		t.Errorf("got %+v, want two open connections", s)
	}
	// When the client closes its side, the proxy passes that on, and then the server's close.
	if err := a.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.answer(soon); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF", err)
	}
}

func TestCutBefore(t *testing.T) {
	p, e := newProxy(t)
	c := dial(t, p)
	p.Set(Fault{Kind: CutBefore, Holding: "script", Times: 1})
	c.ask(t, "other")
	c.send(t, "a script")
	c.wantReset(t)
	dial(t, p).ask(t, "script again")
	e.awaitLines(t, "other script again")
	if s := p.Stats(); s.Met != 1 || s.Cut != 1 {
		t.Errorf("got %+v, want one connection met and cut", s)
	}
}

func TestCutAfter(t *testing.T) {
	p, e := newProxy(t)
	c := dial(t, p)
	p.Set(Fault{Kind: CutAfter, Holding: "script", Times: 1})
	c.ask(t, "other")
	c.send(t, "a script")
	c.wantReset(t)
	e.awaitLines(t, "other a script")
	dial(t, p).ask(t, "script again")
	if s := p.Stats(); s.Met != 1 || s.Cut != 1 {
		t.Errorf("got %+v, want one connection met and cut", s)
	}
}

// TestHoldingAcrossChunks: Holding is found if it is split between two writes.
func TestHoldingAcrossChunks(t *testing.T) {
	p, _ := newProxy(t)
	c := dial(t, p)
	c.ask(t, "first")
	p.Set(Fault{Kind: CutBefore, Holding: "script"})
	if _, err := io.WriteString(c, "a scr"); err != nil {
		t.Fatal(err)
	}
	c.wantNothing(t)
	c.send(t, "ipt")
	c.wantReset(t)
}

func TestDelay(t *testing.T) {
	p, e := newProxy(t)
	c := dial(t, p)
	const pause = 100 * time.Millisecond
	p.Set(Fault{Kind: Delay, Pause: pause, Holding: "script"})
	c.ask(t, "other")
	start := time.Now()
	for range 3 { // each is delayed by pause, at the same time
		c.send(t, "script")
		time.Sleep(pause / 10)
	}
	c.wantAnswer(t, "SCRIPT")
	if d := time.Since(start); d < pause {
		t.Errorf("the data arrived after %v, want at least %v", d, pause)
	}
	c.wantAnswer(t, "SCRIPT")
	c.wantAnswer(t, "SCRIPT")

	p.Set(Fault{Kind: Delay, Pause: time.Hour})
	c.send(t, "late")
	c.wantNothing(t)
	p.Heal()
	c.wantAnswer(t, "LATE")
	e.awaitLines(t, "other script script script late")
}

func TestFreeze(t *testing.T) {
	p, e := newProxy(t)
	c := dial(t, p)
	c.ask(t, "one")
	p.Set(Fault{Kind: Freeze})
	c.send(t, "two")
	c.send(t, "three")
	late := dial(t, p)
	for deadline := time.Now().Add(soon); p.Stats().Open != 2 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	late.send(t, "four")
	c.wantNothing(t)
	late.wantNothing(t)
	e.awaitLines(t, "one")
	p.Set(Fault{Kind: Freeze, Old: true}) // the older connection stays frozen
	if _, err := late.answer(awhile); !isTimeout(err) {
		t.Fatal(err)
	}
	dial(t, p).ask(t, "five")
	p.Heal()
	c.wantAnswer(t, "TWO")
	c.wantAnswer(t, "THREE")
	late.wantAnswer(t, "FOUR")
}

func TestLoseRequests(t *testing.T) {
	p, e := newProxy(t)
	c := dial(t, p)
	c.ask(t, "one")
	p.Set(Fault{Kind: LoseRequests})
	c.send(t, "two")
	c.wantNothing(t)
	p.Heal()
	c.wantReset(t)
	dial(t, p).ask(t, "three")
	e.awaitLines(t, "one three")
}

func TestLoseAnswers(t *testing.T) {
	for _, holding := range []string{"", "two"} {
		p, e := newProxy(t)
		c, other := dial(t, p), dial(t, p)
		c.ask(t, "one")
		p.Set(Fault{Kind: LoseAnswers, Holding: holding})
		if holding != "" {
			other.ask(t, "other")
		}
		c.send(t, "two")
		c.wantNothing(t)
		c.send(t, "three")
		c.wantNothing(t)
		p.Heal()
		c.wantReset(t)
		if holding == "" {
			e.awaitLines(t, "one two three")
		} else {
			e.awaitLines(t, "one other two three")
		}
	}
}

func TestDrip(t *testing.T) {
	p, _ := newProxy(t)
	c := dial(t, p)
	const pause = 5 * time.Millisecond
	p.Set(Fault{Kind: Drip, Pause: pause})
	start := time.Now()
	c.ask(t, "drips")
	if d := time.Since(start); d < 10*pause { // six bytes each way
		t.Errorf("the data took %v, want at least %v", d, 10*pause)
	}
	p.Set(Fault{Kind: Drip, Pause: time.Hour})
	c.send(t, "gush")
	c.wantNothing(t)
	p.Heal()
	c.wantAnswer(t, "GUSH")
}

func TestRefuse(t *testing.T) {
	p, _ := newProxy(t)
	c := dial(t, p)
	c.ask(t, "one")
	p.Set(Fault{Kind: Refuse, Times: 2})
	wantRefused(t, p)
	c.ask(t, "two")
	wantRefused(t, p)
	dial(t, p).ask(t, "three")
	for deadline := time.Now().Add(soon); p.Stats().Refused < 2 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // the client may see the reset before it is counted
	}
	if s := p.Stats(); s.Refused != 2 || s.Met != 2 {
		t.Errorf("got %+v, want two refused and met", s)
	}
}

// TestRefuseWhileConnecting: a connection that was accepted before the fault and reached the server
// after it is refused.
func TestRefuseWhileConnecting(t *testing.T) {
	p, _ := newProxy(t)
	to := p.listener.Addr().(*net.TCPAddr)
	client, err := net.DialTCP("tcp", nil, to)
	if err != nil {
		t.Fatal(err)
	}
	server, err := net.DialTCP("tcp", nil, to)
	if err != nil {
		t.Fatal(err)
	}
	for p.Stats().Accepted < 2 { // else the fault could refuse one of these
		time.Sleep(time.Millisecond)
	}
	p.Set(Fault{Kind: Refuse, Times: 1})
	if p.enter(&link{proxy: p, client: client, server: server, gone: make(chan struct{})}) {
		t.Error("the connection runs, want it refused")
	}
	if s := p.Stats(); s.Refused != 1 || s.Met != 1 {
		t.Errorf("got %+v, want one refused and met", s)
	}
}

func TestCutAll(t *testing.T) {
	p, _ := newProxy(t)
	a, b := dial(t, p), dial(t, p)
	a.ask(t, "one")
	b.ask(t, "two")
	p.CutAll()
	a.wantReset(t)
	b.wantReset(t)
	dial(t, p).ask(t, "three")
	if s := p.Stats(); s.Cut != 2 {
		t.Errorf("got %+v, want two cut", s)
	}
}

// TestServerGone: clients of a server that does not exist are reset.
func TestServerGone(t *testing.T) {
	p, e := newProxy(t)
	e.listener.Close()
	wantRefused(t, p)
	for deadline := time.Now().Add(soon); p.Stats().Refused == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // the client may see the reset before it is counted
	}
	if s := p.Stats(); s.Refused != 1 || s.Accepted != 0 {
		t.Errorf("got %+v, want one refused and none accepted", s)
	}
}

// TestClose: Close leaves no goroutine behind, even if all connections hang.
func TestClose(t *testing.T) {
	e := newEcho(t)
	before := runtime.NumGoroutine()
	for _, f := range []Fault{{}, {Kind: Freeze}, {Kind: Delay, Pause: time.Hour},
		{Kind: Drip, Pause: time.Hour}, {Kind: LoseAnswers}, {Kind: LoseRequests}} {
		p, err := Listen(e.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		p.Set(f)
		c := &client{conn, bufio.NewReader(conn)}
		c.send(t, "hello")
		for deadline := time.Now().Add(soon); f.Kind != None && p.Stats().Met == 0 &&
			time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if s := p.Stats(); s.Open != 0 {
			t.Errorf("%v: got %+v, want no open connection", f.Kind, s)
		}
		conn.Close()
	}
	// the server's goroutines end later
	for deadline := time.Now().
		Add(soon); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, want at most %d", runtime.NumGoroutine(), before)
		}
	}
}
