package dashboard

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/dashboard"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/shadow"
	"github.com/truewindow/ratelimit/topkeys"
)

// A scene is a program under load that has the page.
type scene struct {
	t      *testing.T
	page   *dashboard.Page
	server *httptest.Server
	url    string // of the page, for the browser
	host   string

	api, login, budget *ratelimit.Limiter
	block              *ratelimit.Limiter
	stop               func() // the load
	instead            atomic.Pointer[http.HandlerFunc]
	asked              sync.Map    // the query that was asked for last, by the end of the path
	mute               atomic.Bool // who asks for the numbers gets an error
	outage             atomic.Bool
	calm               *dashboard.Page // of a program that refuses nothing

	mu      sync.Mutex
	counted map[string]*[2]int64 // what callers got by limit: admitted, refused
}

// newScene starts a program with three limits, one trial and a load of about 2,000 calls a second.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t, counted: make(map[string]*[2]int64)}
	store, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	top, err := topkeys.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	algorithms := []ratelimit.Algorithm{
		algorithm.SlidingLog(ratelimit.PerSecond("api", 500)),
		algorithm.SlidingLog(ratelimit.PerMinute("login", 5)),
		algorithm.Budget(algorithm.SlidingLog(ratelimit.PerHour("tokens", 1_000_000))),
		algorithm.Blocking("abuse", 24*time.Hour),
	}
	state := func() []dashboard.Line {
		if s.outage.Load() {
			return []dashboard.Line{{Name: "decides", Value: "this process", Bad: true,
				Says: "Redis has been unavailable: this process decides."}}
		}
		return []dashboard.Line{{Name: "store", Value: "memory", Says: "Deciding in memory."}}
	}
	s.page, err = dashboard.New(&dashboard.Options{
		Store: store, Top: top,
		Limits:   func() []ratelimit.Algorithm { return algorithms },
		State:    state,
		MayWrite: func(*http.Request) bool { return true },
		Log:      slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.page.Close)
	limiter := func(a ratelimit.Algorithm) *ratelimit.Limiter {
		l, err := ratelimit.New(store, a)
		if err != nil {
			t.Fatal(err)
		}
		return l.WithObserver(both(s.page.Observe, top.Observe))
	}
	s.api, s.login = limiter(algorithms[0]), limiter(algorithms[1])
	s.budget, s.block = limiter(algorithms[2]), limiter(algorithms[3])
	trial, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerSecond("api-300", 300)))
	if err != nil {
		t.Fatal(err)
	}
	compare, err := shadow.New(s.api, trial, s.page.ObserveShadow)
	if err != nil {
		t.Fatal(err)
	}
	s.api = s.api.WithObserver(both(both(s.page.Observe, top.Observe), compare))
	if s.calm, err = dashboard.New(&dashboard.Options{Store: store, State: state,
		Limits: func() []ratelimit.Algorithm { return algorithms[2:3] }}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.calm.Close)
	quiet, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerSecond("api", 1000)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = quiet.WithObserver(s.calm.Observe).Allow(t.Context(), "tenant:calm")
	if err != nil {
		t.Fatal(err)
	}
	s.serve()
	s.load()
	return s
}

type observer = func(context.Context, ratelimit.Observation)

func both(a, b observer) observer {
	return func(ctx context.Context, o ratelimit.Observation) { a(ctx, o); b(ctx, o) }
}

// serve serves the page under a prefix, on all addresses.
func (s *scene) serve() {
	mux := http.NewServeMux()
	mux.HandleFunc("/admin/limits/", func(w http.ResponseWriter, r *http.Request) {
		answer, end := s.instead.Load(), path.Base(r.URL.Path)
		s.asked.Store(end, r.URL.RawQuery)
		switch {
		case answer != nil && end == "events":
			(*answer)(w, r)
		case s.mute.Load() && end == "numbers":
			w.WriteHeader(http.StatusBadGateway)
		default:
			s.page.ServeHTTP(w, r)
		}
	})
	mux.Handle("/calm/limits/", s.calm)
	mux.HandleFunc("/favicon.ico", func(http.ResponseWriter, *http.Request) {})
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux}}
	s.server.Start()
	s.t.Cleanup(s.server.Close)
	s.host = fmt.Sprintf("%s:%d", servers.HostName, listener.Addr().(*net.TCPAddr).Port)
	s.url = "http://" + s.host + "/admin/limits/"
}

// events sets what answers in place of the page's events, as proxies do; nil is the page.
func (s *scene) events(answer http.HandlerFunc) {
	if answer == nil {
		s.instead.Store(nil)
		return
	}
	s.instead.Store(&answer)
}

// load calls until s.stop is called.
func (s *scene) load() {
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan struct{})
	s.stop = sync.OnceFunc(func() { cancel(); <-ended })
	s.t.Cleanup(s.stop)
	tick := time.NewTicker(10 * time.Millisecond)
	go func() {
		defer close(ended)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
				s.calls(i)
			case <-ctx.Done():
				return
			}
		}
	}()
}

// calls makes the calls of a hundredth of a second.
func (s *scene) calls(i int) {
	wave := 1 + math.Sin(float64(i)/1500) // 0 to 2
	for range int(6 * wave) {
		s.take(s.api, "tenant:acme")
	}
	for j := range 11 {
		s.take(s.api, fmt.Sprintf("tenant:%d", (i+j)%9))
	}
	if i%20 == 0 {
		s.take(s.login, fmt.Sprintf("198.51.100.%d", i/20%97))
		s.take(s.login, "203.0.113.7")
	}
	if i%100 == 0 {
		s.takeN(s.budget, "tenant:acme", 1000)
	}
}

func (s *scene) take(l *ratelimit.Limiter, key string) { s.takeN(l, key, 1) }

func (s *scene) takeN(l *ratelimit.Limiter, key string, n int64) {
	res, err := l.AllowN(context.Background(), key, n)
	if err != nil {
		s.t.Error(err)
		return
	}
	s.count(l, res.Allowed)
}

func (s *scene) count(l *ratelimit.Limiter, admitted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := l.Limits()[0].Name
	c := s.counted[name]
	if c == nil {
		c = new([2]int64)
		s.counted[name] = c
	}
	if admitted {
		c[0]++
	} else {
		c[1]++
	}
}
