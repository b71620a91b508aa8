package dashboard_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/dashboard"
	"github.com/truewindow/ratelimit/topkeys"
)

func TestOptions(t *testing.T) {
	for name, opts := range map[string]*dashboard.Options{
		"limits": {Limits: func() []ratelimit.Algorithm { return nil }},
		"find":   {Find: func(string) ([]dashboard.Subject, error) { return nil, nil }},
	} {
		if _, err := dashboard.New(opts); !errors.Is(err, ratelimit.ErrInvalid) {
			t.Errorf("%s without a store: %v", name, err)
		}
	}
}

// TestPrefix: under a prefix all links of the page lead to the page, and files that have not
// changed are not sent again.
func TestPrefix(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/admin/limits/", newPage(t, nil))
	b := browser{t, mux}
	page := b.get("/admin/limits/")
	if status, _ := b.post("/admin/limits/key", nil); status != http.StatusForbidden {
		t.Errorf("a form without a token: status %d", status)
	}
	for _, attribute := range []string{`href="`, `src="`, `action="`} {
		for _, rest := range strings.Split(page, attribute)[1:] {
			link, _, _ := strings.Cut(rest, `"`)
			if strings.HasPrefix(link, "/") || strings.Contains(link, ":") {
				t.Errorf("the link %q is not relative", link)
			}
		}
	}
	for _, file := range []string{"page.css", "page.js", "icon.svg", "robots.txt"} {
		r := httptest.NewRequest(http.MethodGet, "/admin/limits/"+file, nil)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		r.Header.Set("If-None-Match", w.Header().Get("ETag"))
		if status, _ := b.do(r); w.Code != http.StatusOK || status != http.StatusNotModified {
			t.Errorf("%s: status %d, then %d", file, w.Code, status)
		}
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/admin/limits/", nil))
	csp := w.Header().Get("Content-Security-Policy")
	if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") ||
		strings.Contains(page, "<style") || strings.Contains(page, " style=") ||
		strings.Contains(page, "<script>") {
		t.Errorf("the policy %q, or what is inline", csp)
	}
}

// TestStrippedPrefix: the page also works where the prefix is stripped, with its last slash or
// without.
func TestStrippedPrefix(t *testing.T) {
	page := newPage(t, nil)
	for _, prefix := range []string{"/limits", "/limits/"} {
		b := browser{t, http.StripPrefix(prefix, page)}
		for _, path := range []string{"/limits/", "/limits/snapshot", "/limits/page.css"} {
			b.get(path)
		}
	}
}

// TestFirstLoad: the page of 300 busy limits with all its files, and the charts of the 50 limits
// that a browser loads at first, is at most 100 KB.
func TestFirstLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := newPage(t, nil)
		b := browser{t, page}
		for second := range 900 {
			for i := range 300 {
				for range 1 + (second/10*(i+7))%5 {
					page.Observe(t.Context(), ratelimit.Observation{Limits: []ratelimit.Limit{
						ratelimit.PerMinute(fmt.Sprint("limit-", i), 10_000)},
						Results: []ratelimit.Result{{Allowed: second%3 > 0}}, Admitted: true})
				}
			}
			time.Sleep(time.Second)
		}
		size := 0
		for _, file := range []string{"/", "/page.css", "/page.js", "/icon.svg"} {
			size += len(b.get(file))
		}
		for i := range 50 {
			size += len(b.get(fmt.Sprint("/chart?name=limit-", i)))
		}
		t.Logf("%d bytes", size)
		if size > 100_000 {
			t.Errorf("%d bytes", size)
		}
	})
}

// hostile are texts that a page must show as text.
var hostile = []string{
	`"><script>alert(1)</script>`, `'><img src=x onerror=alert(1)>`, "{{.Token}}",
	"a\u202Eb\u2066c", "\x00\x1b[31m", "\xff\xfe", strings.Repeat("k", 64<<10), "</bdi></html>",
	"javascript:alert(1)",
}

// TestHostile: names of limits, keys, errors and lines are shown as text, and what cannot be seen
// as escapes.
func TestHostile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		top, err := topkeys.New(&topkeys.Options{Plain: true})
		if err != nil {
			t.Fatal(err)
		}
		limits := []ratelimit.Algorithm{
			algorithm.SlidingLog(ratelimit.PerHour("<b>bold</b>", 1)),
			algorithm.SlidingLog(ratelimit.PerHour("{{.Token}}", 1)),
		}
		var line string
		page := newPage(t, &dashboard.Options{Store: store, Top: top,
			Limits: func() []ratelimit.Algorithm { return limits },
			State: func() []dashboard.Line {
				return []dashboard.Line{{Name: line, Value: line}}
			},
			MayWrite: func(*http.Request) bool { return true }})
		l := newLimiter(t, store, limits...).WithObserver(page.Observe)
		counted := newLimiter(t, store, limits...).WithObserver(top.Observe)
		b := browser{t, page}
		for _, text := range hostile {
			line = text
			for range 2 {
				for _, l := range []*ratelimit.Limiter{l, counted} {
					if _, err := l.Allow(t.Context(), text); err != nil {
						t.Fatal(err)
					}
				}
			}
			time.Sleep(6 * time.Second)
			form := b.action("block", "<b>bold</b>", text)
			form.Set("for", text)
			_, refused := b.post("/act", form)
			form = b.action("reset", "<b>bold</b>", text)
			form.Del("confirmed")
			_, confirm := b.post("/act", form)
			for _, shown := range []string{b.get("/"), b.look(text), refused, confirm} {
				for _, bad := range []string{"<script>", "<img src=x", "<b>", "\u202E", "\u2066",
					"\x1b", "\x00", "</bdi></html>", b.token() + "</", strings.Repeat("k", 201)} {
					if strings.Contains(shown, bad) {
						t.Errorf("the page of %.20q has %q", text, bad)
					}
				}
			}
			if confirm == refused || !strings.Contains(confirm, "Delete what is recorded") {
				t.Errorf("the key %.20q cannot be reset: %s", text, confirm)
			}
		}
	})
}

// A viewer counts the events that it gets. One with a channel reads nothing until that is closed.
type viewer struct {
	header  http.Header
	blocked chan struct{}
	events  atomic.Int64
}

func (v *viewer) Header() http.Header { return v.header }
func (v *viewer) WriteHeader(int)     {}
func (v *viewer) Flush()              {}

func (v *viewer) Write(b []byte) (int, error) {
	if v.blocked != nil {
		<-v.blocked
	}
	if strings.HasPrefix(string(b), `data: {"at":`) && strings.HasSuffix(string(b), "\n\n") {
		v.events.Add(1)
	}
	return len(b), nil
}

// TestViewers: 100 viewers get an event each second, also beside one that reads nothing, and the
// page ends them all, and says so.
func TestViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := newPage(t, nil)
		var viewing sync.WaitGroup
		open := func(v *viewer) *viewer {
			v.header = make(http.Header)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil)
			viewing.Go(func() { page.ServeHTTP(v, r) })
			return v
		}
		blocked := open(&viewer{blocked: make(chan struct{})})
		var readers []*viewer
		for range 100 {
			readers = append(readers, open(new(viewer)))
		}
		time.Sleep(10*time.Second + time.Second/2)
		for _, v := range readers {
			if n := v.events.Load(); n != 10 {
				t.Errorf("%d events in 10 s", n)
			}
		}
		b := browser{t, page}
		const closed = "closed: the numbers are old"
		if strings.Contains(b.get("/"), closed) {
			t.Error("an open page says that it is closed")
		}
		page.Close()
		if !strings.Contains(b.get("/"), closed) {
			t.Error("a closed page does not say so")
		}
		close(blocked.blocked)
		viewing.Wait()
		status, _ := b.do(httptest.NewRequest(http.MethodGet, "/events", nil))
		if status != http.StatusServiceUnavailable {
			t.Errorf("after the end of the page: status %d", status)
		}
	})
}

// TestViewersRange: each viewer gets the numbers of its range, as events and when it asks.
func TestViewersRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := newPage(t, nil)
		b := browser{t, page}
		calls(t, page, "calls", 7, 0, 50)
		time.Sleep(90*time.Second + time.Second/2) // to between two events
		// The share used and the numbers of calls:
		ranges := map[string]string{
			"1m": `["0 %","0/s","0","0","0 %"]`, "15m": `["50 %","0/s","7","0","0 %"]`,
			"60m": `["50 %","0/s","7","0","0 %"]`}
		got := make(map[string]*strings.Builder)
		var stops []func()
		for name := range ranges {
			stop, events := stream(t, page, "/events?range="+name)
			stops, got[name] = append(stops, stop), events
		}
		time.Sleep(2 * time.Second)
		for _, stop := range stops {
			stop()
		}
		for name, want := range ranges {
			asked := b.get("/numbers?range=" + name)
			if events := got[name].String(); strings.Count(events, want) != 2 ||
				!strings.Contains(asked, want) {
				t.Errorf("%s lacks %s: %s%s", name, want, events, asked)
			}
		}
	})
}

// TestViewersReturn: a viewer has to connect again after five minutes, with the rights that it has
// then.
func TestViewersReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := newPage(t, nil)
		v := &viewer{header: make(http.Header)}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil)
		began := time.Now()
		page.ServeHTTP(v, r)
		if took := time.Since(began); took != 5*time.Minute {
			t.Errorf("the viewer left after %v", took)
		}
	})
}

// TestManyViewers: however many viewers an address opens, one of another address gets its events.
func TestManyViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := newPage(t, nil)
		var viewing sync.WaitGroup
		var strangersLeft atomic.Int64
		open := func(addr string, ended *atomic.Int64) *viewer {
			v := &viewer{header: make(http.Header)}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil)
			r.RemoteAddr = addr
			viewing.Go(func() {
				page.ServeHTTP(v, r)
				ended.Add(1)
			})
			return v
		}
		strangers := func(n int) {
			for i := range n {
				// A network of IPv6 has as many addresses as anyone likes.
				open(fmt.Sprintf("[2001:db8::%x]:1", i), &strangersLeft)
			}
			synctest.Wait()
		}
		strangers(1000)
		var operatorLeft atomic.Int64
		operator := open("192.0.2.1:1", &operatorLeft)
		synctest.Wait()
		strangers(1000)
		time.Sleep(3*time.Second + time.Second/2)
		if n := operator.events.Load(); n != 3 || operatorLeft.Load() != 0 {
			t.Errorf("%d events in 3 s", n)
		}
		if n := strangersLeft.Load(); n != 1001 {
			t.Errorf("%d viewers had to leave", n)
		}
		page.Close()
		viewing.Wait()
	})
}

// TestShutdown: a server that closes the page when it shuts down does not wait for its viewers.
func TestShutdown(t *testing.T) {
	page := newPage(t, nil)
	server := httptest.NewServer(page)
	defer server.Close()
	server.Config.RegisterOnShutdown(page.Close)
	res, err := server.Client().Get(server.URL + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := server.Config.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// pipes are a listener of connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return new(net.UnixAddr) }

// TestDeadlines: a page stays open for longer than the server gives a request, and a connection
// that takes nothing ends.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := make(pipes)
		server := &http.Server{Handler: newPage(t, nil), ReadTimeout: 2 * time.Second,
			WriteTimeout: 3 * time.Second}
		go func() { _ = server.Serve(listener) }()
		open := func() net.Conn {
			conn, served := net.Pipe()
			listener <- served
			const request = "GET /events HTTP/1.1\r\nHost: a\r\n\r\n"
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
			return conn
		}
		reads, stalls := open(), open()
		events := bufio.NewScanner(reads)
		for n := 0; n < 30; {
			if !events.Scan() {
				t.Fatalf("after %d events: %v", n, events.Err())
			}
			if strings.HasPrefix(events.Text(), "data: ") {
				n++
			}
		}
		if rest, err := io.ReadAll(stalls); err != nil || len(rest) > 0 {
			t.Errorf("a connection that took nothing for 30 s got %q, %v", rest, err)
		}
		_ = reads.Close()
		close(listener)
		_ = server.Close()
	})
}

// TestTopKeys: the list has how long a key has been refused.
func TestTopKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top, err := topkeys.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		page := newPage(t, &dashboard.Options{Top: top})
		l := newLimiter(t, newStore(t), algorithm.SlidingLog(ratelimit.PerHour("logins", 1))).
			WithObserver(top.Observe)
		time.Sleep(time.Second / 2)
		for range 61 {
			if _, err := l.Allow(t.Context(), "mallory"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		shown := browser{t, page}.get("/")
		for _, want := range []string{top.Name("mallory"), "<td>55 s</td>"} {
			if !strings.Contains(shown, want) {
				t.Errorf("the page lacks %q: %s", want, shown)
			}
		}
		if strings.Contains(shown, "mallory") {
			t.Error("the page has the key")
		}
	})
}

// TestState: a line that is bad is marked.
func TestState(t *testing.T) {
	page := newPage(t, &dashboard.Options{State: func() []dashboard.Line {
		return []dashboard.Line{{Name: "breaker", Value: "open", Bad: true},
			{Name: "store", Value: "redis"}}
	}})
	shown := browser{t, page}.get("/")
	if !strings.Contains(shown, `<div class="bad"><dt>breaker</dt><dd>open</dd></div>`) ||
		!strings.Contains(shown, `<div><dt>store</dt><dd>redis</dd></div>`) {
		t.Error(shown)
	}
}

// TestLimitPage: the page of a limit draws what it admitted and refused.
func TestLimitPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := newPage(t, nil)
		l := newLimiter(t, newStore(t), algorithm.SlidingLog(ratelimit.PerHour("calls", 3))).
			WithObserver(page.Observe)
		for range 4 {
			if _, err := l.Allow(t.Context(), "key"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(1500 * time.Millisecond)
		b := browser{t, page}
		shown := b.get("/limit?name=calls")
		for _, want := range []string{"3 admitted, 1 refused", "peak 0.4/s at"} {
			if !strings.Contains(shown, want) {
				t.Errorf("the page lacks %q: %s", want, shown)
			}
		}
		drawn := b.get("/chart?name=calls")
		for _, want := range []string{`d="M0 99V99h59V0h1V99z"`, `d="M0 99V99h59V24h1V99z"`} {
			if !strings.Contains(drawn, want) {
				t.Errorf("the chart lacks %q: %s", want, drawn)
			}
		}
		for _, path := range []string{"/limit", "/chart"} {
			status, _ := b.do(httptest.NewRequest(http.MethodGet,
				path+"?name="+url.QueryEscape("<other>"), nil))
			if status != http.StatusNotFound {
				t.Errorf("%s of another limit: status %d", path, status)
			}
		}
	})
}
