package httplimit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit"
	"github.com/truewindow/ratelimit/httplimit/headers"
	"github.com/truewindow/ratelimit/internal/testkit/limittest"
)

var (
	newBudget   = limittest.NewBudget
	newInFlight = limittest.NewInFlight
)

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// serveAnyway serves a request and recovers from the handler's panic.
func serveAnyway(h http.Handler, r *http.Request) (panicked any) {
	defer func() { panicked = recover() }()
	h.ServeHTTP(httptest.NewRecorder(), r)
	return nil
}

// TestCounting: the status that the handler answers with decides, however the handler ends.
func TestCounting(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		status  int
	}{
		{"nothing", func(http.ResponseWriter, *http.Request) {}, 200},
		{"a body", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x") }, 200},
		{"a status", status(401), 401},
		{"two statuses", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(401)
			w.WriteHeader(200)
		}, 401},
		{"after early hints", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(401)
		}, 401},
		{"flushed", func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			w.WriteHeader(401)
		}, 200},
		{"flushed by a controller", func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			w.WriteHeader(401)
		}, 200},
		{"a panic", func(http.ResponseWriter, *http.Request) { panic("x") }, 500},
		{"a panic after a status", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(401)
			panic(http.ErrAbortHandler)
		}, 401},
		{"the client left", func(http.ResponseWriter, *http.Request) { cancel() }, 499},
		{"the client left after a status", func(w http.ResponseWriter, _ *http.Request) {
			cancel()
			w.WriteHeader(401)
		}, 401},
	} {
		for _, counted := range []bool{true, false} {
			t.Run(fmt.Sprint(tt.name, counted), func(t *testing.T) {
				limiter := newBudget(t, newStore(t, newClock()), ratelimit.PerHour("hour", 9),
					ratelimit.PerDay("day", 9))
				var got []int
				h := httplimit.New(claiming(one(limiter)), httplimit.WithCounting(
					func(status int) bool { got = append(got, status); return counted },
				))(tt.handler)
				ended, cancel = context.WithCancel(t.Context())
				defer cancel()
				serveAnyway(h, get().WithContext(ended))
				if fmt.Sprint(got) != fmt.Sprint([]int{tt.status}) {
					t.Errorf("status %d, want %d", got, tt.status)
				}
				if counted {
					remaining(t, limiter, 8)
				} else {
					remaining(t, limiter, 9)
				}
			})
		}
	}
}

// TestCountingRefused: units that do not count are free again, and a refusal settles nothing.
func TestCountingRefused(t *testing.T) {
	limiter := newBudget(t, newStore(t, newClock()), ratelimit.PerHour("hour", 2),
		ratelimit.PerDay("day", 2))
	code, calls := 200, 0
	h := httplimit.New(claiming(one(limiter)), httplimit.WithCounting(func(status int) bool {
		calls++
		return status == http.StatusUnauthorized
	}))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
	for range 5 {
		if res := serve(h, get()); res.StatusCode != 200 {
			t.Fatalf("status %d", res.StatusCode)
		}
	}
	code = 401
	for _, want := range []int{401, 401, 429, 429} {
		if res := serve(h, get()); res.StatusCode != want {
			t.Errorf("status %d, want %d", res.StatusCode, want)
		}
	}
	if calls != 7 {
		t.Errorf("%d outcomes, want 7", calls)
	}
	p := checkProblem(t, serve(h, get()), 429)
	if fmt.Sprint(p["violated-policies"]) != "[hour day]" {
		t.Errorf("violated-policies %v", p["violated-policies"])
	}
}

// TestCountingNeedsBudget: without a Budget no unit depends on the outcome, which is a mistake.
// Beside one, units of other limiters count whatever the outcome.
func TestCountingNeedsBudget(t *testing.T) {
	store := newStore(t, newClock())
	plain := newLimiter(t, store, ratelimit.PerHour("plain", 9))
	budget := newBudget(t, store, ratelimit.PerHour("budget", 9))
	var refused error
	opts := []httplimit.Option{
		httplimit.WithCounting(func(int) bool { return false }),
		httplimit.WithRefusal(func(w http.ResponseWriter, _ *http.Request, d httplimit.Decision) {
			refused = d.Err
			httplimit.Refuse(w, d)
		}),
	}
	res := serve(httplimit.New(claiming(one(plain)), opts...)(passed), get())
	if res.StatusCode != 500 || !errors.Is(refused, ratelimit.ErrInvalid) {
		t.Errorf("status %d, %v", res.StatusCode, refused)
	}
	res = serve(httplimit.New(claiming(one(plain), one(budget)), opts...)(passed), get())
	if res.StatusCode != 200 {
		t.Errorf("status %d", res.StatusCode)
	}
	remaining(t, plain, 8)
	remaining(t, budget, 9)
}

// TestCountingConcurrent: no more handlers run at once than there are units, although none counts.
func TestCountingConcurrent(t *testing.T) {
	const limit, requests = 5, 200
	limiter := newBudget(t, newStore(t, newClock()), ratelimit.PerHour("hour", limit))
	var running, most, admitted atomic.Int64
	h := httplimit.New(claiming(one(limiter)),
		httplimit.WithCounting(func(int) bool { return false }),
	)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := running.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		admitted.Add(1)
		running.Add(-1)
	}))
	var wg sync.WaitGroup
	var refused atomic.Int64
	for range requests {
		wg.Go(func() {
			if serve(h, get()).StatusCode == 429 {
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	if most.Load() > limit || admitted.Load()+refused.Load() != requests {
		t.Errorf("%d at once, %d admitted, %d refused", most.Load(), admitted.Load(),
			refused.Load())
	}
	remaining(t, limiter, limit)
}

// TestCountingByClaim: only the claim on a Budget follows the outcome. A successful login gives
// back the unit of the login, and not that of the limit of all requests beside it.
func TestCountingByClaim(t *testing.T) {
	const logins, most = 40, 30
	store := newStore(t, newClock())
	requests := newLimiter(t, store, ratelimit.PerHour("requests", most))
	failed := newBudget(t, store, ratelimit.PerHour("failed", logins))
	var admitted, wrong, refused atomic.Int64
	h := httplimit.New(claiming(one(requests), one(failed)), httplimit.WithCounting(
		func(status int) bool { return status == http.StatusUnauthorized },
	))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		admitted.Add(1)
		if r.URL.Query().Get("password") == "wrong" {
			wrong.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	var wg sync.WaitGroup
	for i := range logins {
		wg.Go(func() {
			password := []string{"right", "wrong"}[i%2]
			res := serve(h, httptest.NewRequest(http.MethodPost, "/?password="+password, nil))
			if res.StatusCode == http.StatusTooManyRequests {
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	if admitted.Load() != most || refused.Load() != logins-most {
		t.Errorf("%d admitted, %d refused", admitted.Load(), refused.Load())
	}
	remaining(t, requests, 0)
	remaining(t, failed, logins-wrong.Load())
}

// TestFieldsOfHeld: the fields of an admitted request leave out what is held until the outcome, and
// those of a refusal have all limits. Handlers find all in the decision.
func TestFieldsOfHeld(t *testing.T) {
	for _, tt := range []struct {
		format            headers.Format
		admitted, refused string // with the plain limit
	}{
		{headers.Draft11, `"hour";q=9;w=3600 "hour";r=8;t=3600`,
			`"hour";q=9;w=3600, "failed";q=1;w=60, "calls";q=5;qu="concurrent-requests" ` +
				`"hour";r=8;t=3600, "failed";r=0;t=60, "calls";r=5`},
		{headers.Draft06, "9 8 3600", "1 0 60"},
		{headers.XDelta, "9 8 3600", "1 0 60"},
		{headers.XEpoch, "9 8 *", "1 0 *"},
		{headers.None, "", ""},
	} {
		store := newStore(t, newClock())
		plain := newLimiter(t, store, ratelimit.PerHour("hour", 9))
		failed := newBudget(t, store, ratelimit.PerMinute("failed", 1))
		calls := newInFlight(t, store, 5)
		counting := httplimit.WithCounting(func(status int) bool { return status == 401 })
		limit := func(claims ...ratelimit.Claim) func(http.Handler) http.Handler {
			return httplimit.New(claiming(claims...), counting, httplimit.WithFormat(tt.format))
		}
		for _, step := range []struct {
			claims []ratelimit.Claim
			status int
			want   string
		}{
			{[]ratelimit.Claim{one(failed), one(calls)}, 200, ""},
			{[]ratelimit.Claim{one(plain), one(failed), one(calls)}, 401, tt.admitted},
			{[]ratelimit.Claim{one(plain), one(failed), one(calls)}, 429, tt.refused},
		} {
			var decided httplimit.Decision
			res := serve(limit(step.claims...)(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					decided, _ = httplimit.FromContext(r.Context())
					w.WriteHeader(step.status)
				})), get())
			if res.StatusCode != step.status {
				t.Errorf("%v: status %d, want %d", tt.format, res.StatusCode, step.status)
			}
			if step.status != 429 && len(decided.Results) != len(step.claims) {
				t.Errorf("%v: the handler finds %+v", tt.format, decided.Results)
			}
			if got := fieldsOf(res, tt.format); got != step.want {
				t.Errorf("%v, %d: %q, want %q", tt.format, step.status, got, step.want)
			}
		}
	}
}

// fieldsOf returns the values of the fields of a format. Those of Unix times are a star.
func fieldsOf(res *http.Response, f headers.Format) string {
	var values []string
	for _, prefix := range []string{"", "X-"} {
		for _, name := range []string{"-Policy", "", "-Limit", "-Remaining", "-Reset"} {
			value := res.Header.Get(prefix + "RateLimit" + name)
			if value != "" && name == "-Reset" && f == headers.XEpoch {
				value = "*"
			}
			if value != "" {
				values = append(values, value)
			}
		}
	}
	return strings.Join(values, " ")
}

// TestInFlight: calls in flight are released without an option. Other claims beside them stay
// charged.
func TestInFlight(t *testing.T) {
	for name, end := range map[string]func(http.ResponseWriter){
		"returns": func(http.ResponseWriter) {},
		"panics":  func(http.ResponseWriter) { panic("x") },
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t, newClock())
			calls := newInFlight(t, store, 1)
			rate := newLimiter(t, store, ratelimit.PerHour("hour", 9))
			var h http.Handler
			var inner *http.Response
			h = httplimit.New(claiming(one(calls), one(rate)))(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					if inner == nil {
						inner = serve(h, get())
					}
					end(w)
				}))
			serveAnyway(h, get())
			p := checkProblem(t, inner, 429)
			if fmt.Sprint(p["violated-policies"]) != "[calls]" {
				t.Errorf("violated-policies %v", p["violated-policies"])
			}
			wantField(t, inner, "Retry-After", "1")
			wantField(t, inner, "RateLimit-Policy",
				`"calls";q=1;qu="concurrent-requests", "hour";q=9;w=3600`)
			wantField(t, inner, "RateLimit", `"calls";r=0, "hour";r=8;t=3600`)
			remaining(t, calls, 1)
			remaining(t, rate, 8)
		})
	}
}

// TestInFlightEnds: however requests end, at most the limit is in the handlers at once, and each
// call in flight is released once.
func TestInFlightEnds(t *testing.T) {
	const most, requests = 3, 80
	var running, peak, admitted, opened, released atomic.Int64
	calls := newInFlight(t, newStore(t, nil), most).
		WithObserver(func(_ context.Context, o ratelimit.Observation) {
			for _, change := range o.Open {
				if change > 0 {
					opened.Add(1)
				} else {
					released.Add(1)
				}
			}
		})
	var cancels [requests]context.CancelFunc
	h := httplimit.New(claiming(one(calls)))(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			admitted.Add(1)
			n := running.Add(1)
			defer running.Add(-1)
			for old := peak.Load(); n > old && !peak.CompareAndSwap(old, n); old = peak.Load() {
			}
			i, _ := strconv.Atoi(r.URL.Query().Get("i"))
			switch i % 4 {
			case 0:
				panic(http.ErrAbortHandler)
			case 1: // the client leaves
				cancels[i]()
				<-r.Context().Done()
			case 2:
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				conn.Close()
			}
		}))
	var clients, served sync.WaitGroup
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer served.Done()
		h.ServeHTTP(w, r)
	}))
	defer server.Close()
	served.Add(requests)
	for i := range requests {
		var ctx context.Context
		ctx, cancels[i] = context.WithCancel(t.Context())
		clients.Go(func() {
			defer cancels[i]()
			// A POST is not sent again when its connection is closed.
			r, err := http.NewRequestWithContext(ctx, http.MethodPost,
				fmt.Sprint(server.URL, "/?i=", i), nil)
			if err != nil {
				t.Error(err)
				return
			}
			if res, err := server.Client().Do(r); err == nil {
				res.Body.Close()
			}
		})
	}
	clients.Wait()
	served.Wait()
	if n := admitted.Load(); peak.Load() > most || opened.Load() != n || released.Load() != n {
		t.Errorf("%d at once; %d admitted, %d held, %d released", peak.Load(), n, opened.Load(),
			released.Load())
	}
	remaining(t, calls, most)
}

// TestInFlightAndRate: a limiter may have a limit of calls in flight beside others. Only the call
// is released, and the fields of an admitted request leave it out.
func TestInFlightAndRate(t *testing.T) {
	limiter, err := ratelimit.New(newStore(t, newClock()), algorithm.InFlight("calls", 9),
		algorithm.SlidingLog(ratelimit.PerHour("hour", 9)))
	if err != nil {
		t.Fatal(err)
	}
	res := serve(httplimit.New(claiming(one(limiter)))(passed), get())
	wantField(t, res, "RateLimit-Policy", `"hour";q=9;w=3600`)
	results, err := ratelimit.PeekAll(t.Context(), one(limiter))
	if err != nil || results[0].Remaining != 9 || results[1].Remaining != 8 {
		t.Errorf("%+v, %v", results, err)
	}
}

// TestInFlightAndCounting: a panic of the function that counts leaves no call in flight.
func TestInFlightAndCounting(t *testing.T) {
	calls := newInFlight(t, newStore(t, newClock()), 1)
	h := httplimit.New(claiming(one(calls)), httplimit.WithCounting(
		func(int) bool { panic("counting") }))(passed)
	if got := serveAnyway(h, get()); got != "counting" {
		t.Errorf("panic %v", got)
	}
	remaining(t, calls, 1)
}

// TestSettlementFails: an error of a settlement does not change the answer, and the observer gets
// it.
func TestSettlementFails(t *testing.T) {
	store := &flaky{Store: newStore(t, newClock())}
	errs := make(chan error, 100) // the cancel is repeated in the background
	limiter := newBudget(t, store, ratelimit.PerHour("hour", 1)).WithObserver(
		func(_ context.Context, o ratelimit.Observation) { errs <- o.Err })
	h := httplimit.New(claiming(one(limiter)), httplimit.WithCounting(
		func(int) bool { return false },
	))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		store.away.Store(true)
		w.WriteHeader(http.StatusTeapot)
	}))
	if res := serve(h, get()); res.StatusCode != http.StatusTeapot {
		t.Errorf("status %d", res.StatusCode)
	}
	if len(errs) < 2 {
		t.Fatalf("%d calls were observed, want the hold and its end", len(errs))
	}
	if held, ended := <-errs, <-errs; held != nil || !errors.Is(ended, ratelimit.ErrUnavailable) {
		t.Errorf("observed %v and %v", held, ended)
	}
}

// bare is a ResponseWriter without optional methods.
type bare struct{ http.ResponseWriter }

// TestRecorderKeepsMethods: on a server of the standard library, handlers find the same methods as
// without the middleware.
func TestRecorderKeepsMethods(t *testing.T) {
	limiter := newBudget(t, newStore(t, newClock()), ratelimit.PerHour("hour", 1000))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(strings.Repeat("x", 100_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	statuses := make(chan int, 1)
	limit := httplimit.New(claiming(one(limiter)), httplimit.WithCounting(
		func(status int) bool { statuses <- status; return true }))
	mux := http.NewServeMux()
	mux.HandleFunc("/file", func(w http.ResponseWriter, _ *http.Request) {
		f, err := os.Open(file)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		if _, err := w.(io.ReaderFrom).ReadFrom(f); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("/deadline", func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		if err := c.SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Error(err)
		}
		w.(http.Flusher).Flush()
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
	})
	server := httptest.NewServer(limit(mux))
	defer server.Close()
	for path, want := range map[string]int{"/file": 200, "/deadline": 200, "/hijack": 101} {
		res, err := server.Client().Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, res.Body); path == "/file" && n != 100_000 || err != nil {
			t.Errorf("%s: %d bytes, %v", path, n, err)
		}
		res.Body.Close()
		if got := <-statuses; got != want {
			t.Errorf("%s: status %d, want %d", path, got, want)
		}
	}

	// The middleware adds no method.
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, flushes := w.(http.Flusher)
		_, hijacks := w.(http.Hijacker)
		_, reads := w.(io.ReaderFrom)
		if flushes || hijacks || reads {
			t.Error("the writer has methods that the one below lacks")
		}
		if err := http.NewResponseController(w).Flush(); err == nil {
			t.Error("Flush succeeded on a writer that cannot flush")
		}
	}))
	h.ServeHTTP(struct{ http.ResponseWriter }{bare{httptest.NewRecorder()}}, get())
}

// hijackable is a ResponseWriter like that of HTTP/1.
type hijackable struct {
	*httptest.ResponseRecorder
	err error
}

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, h.err }
func (h hijackable) ReadFrom(src io.Reader) (int64, error) {
	return io.Copy(h.ResponseRecorder, src)
}

// TestHijack: a hijacked connection has the status 101; one that could not be hijacked does not.
func TestHijack(t *testing.T) {
	limiter := newBudget(t, newStore(t, newClock()), ratelimit.PerHour("hour", 9))
	for err, want := range map[error]int{nil: 101, errors.New("no"): 500} {
		got := 0
		h := httplimit.New(claiming(one(limiter)), httplimit.WithCounting(
			func(status int) bool { got = status; return false },
		))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if _, _, err := w.(http.Hijacker).Hijack(); err != nil {
				w.WriteHeader(500)
			}
		}))
		h.ServeHTTP(hijackable{httptest.NewRecorder(), err}, get())
		if got != want {
			t.Errorf("status %d, want %d", got, want)
		}
	}
	remaining(t, limiter, 9)
}

// TestCountingWithoutStore: if the policy has admitted a request, nothing is left to settle, and
// the unavailable store is not called a second time.
func TestCountingWithoutStore(t *testing.T) {
	for _, counted := range []bool{true, false} {
		store := &countingStore{Store: broken{ratelimit.ErrUnavailable}}
		limiter := newBudget(t, store, ratelimit.PerHour("hour", 9)).WithPolicy(ratelimit.FailOpen)
		h := httplimit.New(claiming(one(limiter)),
			httplimit.WithCounting(func(int) bool { return counted }))(passed)
		if res := serve(h, get()); res.StatusCode != 200 {
			t.Errorf("status %d", res.StatusCode)
		}
		if store.calls != 1 {
			t.Errorf("counted %v: the store was called %d times, want once", counted, store.calls)
		}
	}
}

// countingStore counts the calls of a store.
type countingStore struct {
	ratelimit.Store
	calls int
}

func (s *countingStore) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	s.calls++
	return s.Store.Take(ctx, d)
}

func (s *countingStore) TakeAll(
	ctx context.Context, ds []driver.Demand, out []ratelimit.Result,
) error {
	s.calls++
	return s.Store.TakeAll(ctx, ds, out)
}
