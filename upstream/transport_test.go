package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/upstream"
)

// secret is a key that must not be in any error.
const secret = "secret-key"

// noMargin keeps the numbers of a test round.
const noMargin = -1

func secretKey(*http.Request) (string, int64, error) { return secret, 1, nil }

// bubble runs f with a memory store on synthetic time.
func bubble(t *testing.T, f func(t *testing.T, store ratelimit.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		f(t, store)
	})
}

// fakeBase is an upstream that keeps the arrival times of requests. Its answer is 200 with the
// header.
type fakeBase struct {
	start  time.Time
	status int
	header http.Header
	err    error

	mu       sync.Mutex
	arrivals []time.Duration // since start
	names    []string        // of requests, from the header Name
}

func newBase() *fakeBase { return &fakeBase{start: time.Now(), status: http.StatusOK} }

func (b *fakeBase) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.arrivals = append(b.arrivals, time.Since(b.start))
	b.names = append(b.names, r.Header.Get("Name"))
	if b.err != nil {
		return nil, b.err
	}
	return &http.Response{
		StatusCode: b.status, Header: b.header, Body: http.NoBody, Request: r,
	}, nil
}

// say sets the status and the header of the next answers.
func (b *fakeBase) say(status int, fields ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status, b.header = status, http.Header{}
	for i := 0; i < len(fields); i += 2 {
		b.header.Set(fields[i], fields[i+1])
	}
}

func (b *fakeBase) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.arrivals)
}

func newTransport(
	t *testing.T, store ratelimit.Store, opts upstream.Options, limits ...ratelimit.Limit,
) *upstream.Transport {
	t.Helper()
	transport, err := upstream.New(store, &opts, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return transport
}

func get(ctx context.Context) *http.Request { return getFrom(ctx, "http://maps.example/tile") }

func getFrom(ctx context.Context, url string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		panic(err)
	}
	return r
}

// send makes a request and returns its status, or 0 and the error.
func send(ctx context.Context, rt http.RoundTripper) (int, error) {
	res, err := rt.RoundTrip(get(ctx))
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

func wantStatus(ctx context.Context, t *testing.T, rt http.RoundTripper, want int) {
	t.Helper()
	if status, err := send(ctx, rt); err != nil || status != want {
		t.Fatalf("status %d (%v), want %d", status, err, want)
	}
}

// wantLimited checks that err is a LimitError of the limit, with a RetryAt after this time.
func wantLimited(
	t *testing.T, err error, limit string, coolDown bool, after time.Duration,
) *upstream.LimitError {
	t.Helper()
	var e *upstream.LimitError
	ok := errors.As(err, &e)
	switch {
	case !ok:
		t.Fatalf("%T %v is not a LimitError", err, err)
	case e.Limit != limit || e.CoolDown != coolDown:
		t.Errorf("limited by %q, cool-down %v, want %q, %v", e.Limit, e.CoolDown, limit, coolDown)
	case strings.Contains(err.Error(), secret):
		t.Errorf("%q has the key", err)
	case !strings.Contains(err.Error(), limit):
		t.Errorf("%q does not name the limit", err)
	}
	if got := time.Until(e.RetryAt); got != after {
		t.Errorf("try again after %v, want %v", got, after)
	}
	return e
}

// TestMargin: the windows are longer than those of the upstream by the margin, and never shorter.
func TestMargin(t *testing.T) {
	for _, tt := range []struct {
		margin, want time.Duration
	}{
		{0, 1100 * time.Millisecond}, {noMargin, time.Second}, {-time.Hour, time.Second},
		{500 * time.Millisecond, 1500 * time.Millisecond},
	} {
		bubble(t, func(t *testing.T, store ratelimit.Store) {
			base := newBase()
			rt := newTransport(t, store, upstream.Options{Base: base, Margin: tt.margin},
				ratelimit.PerSecond("maps", 2))
			for range 5 {
				wantStatus(t.Context(), t, rt, 200)
			}
			want := []time.Duration{0, 0, tt.want, tt.want, 2 * tt.want}
			if !slices.Equal(base.arrivals, want) {
				t.Errorf("margin %v: sent at %v, want %v", tt.margin, base.arrivals, want)
			}
		})
	}
}

// TestOrder: requests of one process are sent in the order in which they began to wait. The test
// sends one at a time, because goroutines that may send at the same instant run in any order.
func TestOrder(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		base := newBase()
		rt := newTransport(t, store, upstream.Options{Base: base}, ratelimit.PerSecond("maps", 1))
		var all sync.WaitGroup
		var want []string
		for i := range 30 {
			name := strconv.Itoa(i)
			want = append(want, name)
			r := get(t.Context())
			r.Header.Set("Name", name)
			all.Go(func() {
				if _, err := rt.RoundTrip(r); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if !slices.Equal(base.names, want) {
			t.Errorf("sent in the order %v", base.names)
		}
	})
}

// TestDeadline: a request that cannot be sent before its deadline fails at once, and one that can
// is sent. The deadline is that of the context or the Timeout of an http.Client.
func TestDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		base := newBase()
		rt := newTransport(t, store,
			upstream.Options{Base: base, Cost: secretKey, Margin: noMargin},
			ratelimit.PerSecond("burst", 2), ratelimit.PerMinute("minute", 3))
		wantStatus(t.Context(), t, rt, 200)
		wantStatus(t.Context(), t, rt, 200)
		for _, timeout := range []time.Duration{time.Millisecond, time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			_, err := send(ctx, rt)
			e := wantLimited(t, err, "burst", false, time.Second)
			if !errors.Is(err, context.DeadlineExceeded) || e.Err == nil || ctx.Err() != nil {
				t.Errorf("timeout %v: %v", timeout, err)
			}
			cancel()
		}
		client := &http.Client{Transport: rt, Timeout: time.Second}
		_, err := client.Get("http://maps.example/tile")
		wantLimited(t, err, "burst", false, time.Second)
		if time.Since(base.start) != 0 {
			t.Errorf("failed after %v, not at once", time.Since(base.start))
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second+time.Millisecond)
		defer cancel()
		wantStatus(ctx, t, rt, 200)
		client.Timeout = 10 * time.Second
		_, err = client.Get("http://maps.example/tile")
		wantLimited(t, err, "minute", false, 59*time.Second)
		if want := []time.Duration{0, 0, time.Second}; !slices.Equal(base.arrivals, want) {
			t.Errorf("sent at %v, want %v", base.arrivals, want)
		}
	})
}

// TestCanceled: a request whose context ends while it waits fails, even behind others, and takes
// nothing.
func TestCanceled(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		base := newBase()
		rt := newTransport(t, store,
			upstream.Options{Base: base, Cost: secretKey, Margin: noMargin},
			ratelimit.PerSecond("maps", 1))
		wantStatus(t.Context(), t, rt, 200)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, limit := range []string{"maps", ""} { // the first calls the store
			all.Go(func() {
				_, err := send(ctx, rt)
				var e *upstream.LimitError
				ok := errors.As(err, &e)
				if !ok || e.Limit != limit || !e.RetryAt.IsZero() || err == context.Canceled ||
					!errors.Is(err, context.Canceled) || strings.Contains(err.Error(), secret) {
					t.Errorf("%v", err)
				}
			})
			synctest.Wait()
		}
		cancel()
		all.Wait()
		if time.Since(base.start) != 0 {
			t.Errorf("failed after %v, not at once", time.Since(base.start))
		}
		wantStatus(t.Context(), t, rt, 200)
		if want := []time.Duration{0, time.Second}; !slices.Equal(base.arrivals, want) {
			t.Errorf("sent at %v, want %v", base.arrivals, want)
		}
	})
}

// TestDeadlineBehindOthers: a request whose deadline passes behind others fails then, and its error
// names neither limit nor time. One whose turn comes fails at once if it cannot be sent in time.
func TestDeadlineBehindOthers(t *testing.T) {
	for _, tt := range []struct {
		timeout, after time.Duration
		limit          string
	}{
		{900 * time.Millisecond, 900 * time.Millisecond, ""},
		{1500 * time.Millisecond, time.Second, "maps"},
	} {
		bubble(t, func(t *testing.T, store ratelimit.Store) {
			base := newBase()
			rt := newTransport(t, store,
				upstream.Options{Base: base, Cost: secretKey, Margin: noMargin},
				ratelimit.PerSecond("maps", 1))
			wantStatus(t.Context(), t, rt, 200)
			var first sync.WaitGroup
			first.Go(func() {
				if _, err := send(t.Context(), rt); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
			defer cancel()
			_, err := send(ctx, rt)
			if took := time.Since(base.start); took != tt.after {
				t.Errorf("failed after %v, want %v", took, tt.after)
			}
			var e *upstream.LimitError
			if !errors.As(err, &e) || e.Limit != tt.limit ||
				e.RetryAt.IsZero() != (tt.limit == "") ||
				!errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want a LimitError of %q", err, tt.limit)
			}
			first.Wait()
			if want := []time.Duration{0, time.Second}; !slices.Equal(base.arrivals, want) {
				t.Errorf("sent at %v, want %v", base.arrivals, want)
			}
		})
	}
}

// TestEndedBefore: if the context has ended before the request, the error is neither a LimitError
// nor one of the store.
func TestEndedBefore(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		for _, noWait := range []bool{false, true} {
			rt := newTransport(t, store, upstream.Options{Base: newBase(), NoWait: noWait},
				ratelimit.PerSecond("maps", 1))
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			body := new(spyBody)
			r := get(ctx)
			r.Body = body
			_, err := rt.RoundTrip(r)
			limited := errors.As(err, new(*upstream.LimitError))
			if !errors.Is(err, context.Canceled) || errors.Is(err, ratelimit.ErrUnavailable) ||
				limited || body.closed != 1 {
				t.Errorf("%v, closed %d times", err, body.closed)
			}
		}
	})
}

// slowStore answers calls from the one with the number slow on only when their contexts end.
type slowStore struct {
	ratelimit.Store
	slow, calls int
}

func (s *slowStore) TakeAll(
	ctx context.Context, ds []driver.Demand, out []ratelimit.Result,
) error {
	if s.calls++; s.calls < s.slow {
		return s.Store.TakeAll(ctx, ds, out)
	}
	<-ctx.Done()
	return fmt.Errorf("%w: %w", ratelimit.ErrUnavailable, ctx.Err())
}

// TestEndedWhileAsked: if the context ends while the store is called, the request is undecided,
// also if it was refused before.
func TestEndedWhileAsked(t *testing.T) {
	for _, tt := range []struct {
		slow   int
		noWait bool
	}{{2, false}, {2, true}, {3, false}} {
		bubble(t, func(t *testing.T, memory ratelimit.Store) {
			base := newBase()
			rt := newTransport(t, &slowStore{Store: memory, slow: tt.slow},
				upstream.Options{Base: base, Cost: secretKey, NoWait: tt.noWait,
					Policy: ratelimit.FailOpen}, ratelimit.PerSecond("maps", 1))
			wantStatus(t.Context(), t, rt, 200)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := send(ctx, rt)
			if errors.As(err, new(*upstream.LimitError)) ||
				!errors.Is(err, ratelimit.ErrUnavailable) ||
				!errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%+v: %v", tt, err)
			}
			if took := time.Since(base.start); took != 5*time.Second || base.count() != 1 {
				t.Errorf("%+v: failed after %v, %d requests were sent", tt, took, base.count())
			}
		})
	}
}

// fullStore answers as a limiter does for whose key too many calls wait.
type fullStore struct{ ratelimit.Store }

func (fullStore) TakeAll(context.Context, []driver.Demand, []ratelimit.Result) error {
	return ratelimit.ErrQueueFull
}

// TestQueueFull: a request is not limited, but fails, if too many others wait.
func TestQueueFull(t *testing.T) {
	base := newBase()
	rt := newTransport(t, fullStore{}, upstream.Options{Base: base, Cost: secretKey},
		ratelimit.PerSecond("maps", 1))
	_, err := send(t.Context(), rt)
	if !errors.Is(err, ratelimit.ErrQueueFull) || errors.As(err, new(*upstream.LimitError)) ||
		base.count() != 0 {
		t.Errorf("%v, %d requests were sent", err, base.count())
	}
}

// TestNoWait: with NoWait a refused request fails at once, without an error of a context.
func TestNoWait(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		base := newBase()
		rt := newTransport(t, store, upstream.Options{Base: base, Cost: secretKey, NoWait: true},
			ratelimit.PerDay("day", 1))
		wantStatus(t.Context(), t, rt, 200)
		_, err := send(t.Context(), rt)
		e := wantLimited(t, err, "day", false, 24*time.Hour+upstream.DefaultMargin)
		if e.Err != nil {
			t.Errorf("the reason is %v", e.Err)
		}
	})
}

// TestCost: each route costs its own units under the key of an account, and a request that costs
// nothing is not limited.
func TestCost(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		base := newBase()
		bad := errors.New("no account")
		rt := newTransport(t, store, upstream.Options{
			Base: base, NoWait: true,
			Cost: func(r *http.Request) (string, int64, error) {
				account := r.Header.Get("Account")
				switch {
				case r.URL.Path == "/status":
					return "", 0, nil
				case r.URL.Path == "/export":
					return account, 4, nil
				case account == "bad":
					return "", 0, bad
				}
				return account, 1, nil
			},
		}, ratelimit.PerMinute("units", 5))
		for i, tt := range []struct {
			path, account string
			err           error
		}{
			{"/export", "ann", nil},
			{"/export", "ann", new(upstream.LimitError)},
			{"/list", "ann", nil},
			{"/list", "ann", new(upstream.LimitError)},
			{"/status", "ann", nil},
			{"/export", "bob", nil},
			{"/list", "bad", bad},
			{"/list", "", ratelimit.ErrInvalid},
		} {
			r := get(t.Context())
			r.URL.Path = tt.path
			r.Header.Set("Account", tt.account)
			_, err := rt.RoundTrip(r)
			limited := errors.As(err, new(*upstream.LimitError))
			_, want := tt.err.(*upstream.LimitError)
			if limited != want || !want && !errors.Is(err, tt.err) {
				t.Errorf("request %d: %v, want %v", i, err, tt.err)
			}
		}
		if base.count() != 4 {
			t.Errorf("%d requests were sent, want 4", base.count())
		}
		other := newTransport(t, store, upstream.Options{Base: base, NoWait: true,
			Cost: func(*http.Request) (string, int64, error) { return secret, 6, nil }},
			ratelimit.PerMinute("units", 5))
		_, err := send(t.Context(), other)
		if errors.As(err, new(*upstream.LimitError)) ||
			!errors.Is(err, ratelimit.ErrExceedsLimit) || strings.Contains(err.Error(), secret) {
			t.Errorf("more than the limit ever admits: %v", err)
		}
	})
}

// TestCostNothing: a request of no units begins no cool-down and does not wait for the end of one.
func TestCostNothing(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		base, units := newBase(), int64(0)
		rt := newTransport(t, store, upstream.Options{Base: base, NoWait: true,
			Cost: func(*http.Request) (string, int64, error) { return secret, units, nil },
		}, ratelimit.PerSecond("maps", 10))
		base.say(429, "Retry-After", "60")
		for _, units = range []int64{0, 1, 0} {
			wantStatus(t.Context(), t, rt, 429)
		}
		units = 1
		_, err := send(t.Context(), rt)
		wantLimited(t, err, "maps.cooldown", true, time.Minute)
	})
}

// TestPerHost: without Cost each host has limits of its own, however it is spelled.
func TestPerHost(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		base := newBase()
		rt, err := upstream.New(store, &upstream.Options{Base: base, NoWait: true},
			ratelimit.PerSecond("maps", 1))
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			url  string
			sent bool
		}{
			{"http://a.example", true}, {"http://A.Example", false},
			{"http://a.example:80", false}, {"https://a.example:443", false},
			{"http://a.example.", false}, {"http://a.example:", false},
			{"http://a.example:443", true}, {"https://a.example.:80", true},
			{"http://b.example", true},
			{"http://[2001:db8::80]", true}, {"https://[2001:DB8::80]:443", false},
		} {
			if _, err := rt.RoundTrip(getFrom(t.Context(), tt.url)); (err == nil) != tt.sent {
				t.Errorf("%s: %v", tt.url, err)
			}
		}
	})
}

// spyBody counts how often it is closed.
type spyBody struct {
	io.Reader
	closed int
}

func (b *spyBody) Close() error { b.closed++; return nil }

// TestContract: the body is closed even if the request is not sent, the request is not changed, and
// the answer or error of the base is returned as it is.
func TestContract(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		base := newBase()
		rt := newTransport(t, store, upstream.Options{Base: base, NoWait: true},
			ratelimit.PerSecond("maps", 2))
		post := func() (*http.Response, *spyBody, error) {
			body := &spyBody{Reader: strings.NewReader("tile")}
			r := get(t.Context())
			r.Method, r.Body = http.MethodPost, body
			before, header := *r, r.Header.Clone()
			res, err := rt.RoundTrip(r)
			if r.URL != before.URL || r.Body != before.Body || r.Context() != before.Context() ||
				len(r.Header) != len(header) {
				t.Error("the request was changed")
			}
			return res, body, err
		}
		base.say(503, "Retry-After", "nonsense", "Other", "1")
		res, body, err := post()
		if err != nil || res.StatusCode != 503 || res.Header.Get("Other") != "1" ||
			body.closed != 1 {
			t.Errorf("%v, %v, closed %d times", res, err, body.closed)
		}
		base.err = errors.New("reset by peer")
		if _, body, err = post(); err != base.err || body.closed != 1 {
			t.Errorf("%v, closed %d times", err, body.closed)
		}
		// A request that failed has spent its units.
		if _, body, err = post(); body.closed != 1 {
			t.Errorf("a refused request: closed %d times", body.closed)
		}
		wantLimited(t, err, "maps", false, time.Second+upstream.DefaultMargin)
		if base.count() != 2 {
			t.Errorf("%d requests were sent, want 2: nothing is repeated", base.count())
		}
		noURL := &http.Request{Body: &spyBody{}}
		if _, err := rt.RoundTrip(noURL); err == nil ||
			!strings.Contains(err.Error(), "URL") || noURL.Body.(*spyBody).closed != 1 {
			t.Errorf("a request without a URL: %v", err)
		}
	})
}

// idler keeps whether CloseIdleConnections was called.
type idler struct {
	http.RoundTripper
	told bool
}

func (i *idler) CloseIdleConnections() { i.told = true }

func TestCloseIdleConnections(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		base := &idler{RoundTripper: newBase()}
		for _, b := range []http.RoundTripper{base, base.RoundTripper} {
			rt := newTransport(t, store, upstream.Options{Base: b}, ratelimit.PerSecond("maps", 1))
			(&http.Client{Transport: rt}).CloseIdleConnections()
		}
		if !base.told {
			t.Error("CloseIdleConnections of the base was not called")
		}
	})
}

// switched is a store that can be unavailable.
type switched struct {
	ratelimit.Store
	mu   sync.Mutex
	away bool
}

func (s *switched) set(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

func (s *switched) TakeAll(
	ctx context.Context, demands []driver.Demand, results []ratelimit.Result,
) error {
	s.mu.Lock()
	away := s.away
	s.mu.Unlock()
	if away {
		return ratelimit.ErrUnavailable
	}
	return s.Store.TakeAll(ctx, demands, results)
}

// TestPolicy: while the store is unavailable, the policy decides.
func TestPolicy(t *testing.T) {
	for _, tt := range []struct {
		policy ratelimit.Policy
		noWait bool
		sent   bool
		after  time.Duration // at least
	}{
		{ratelimit.FailClosed, false, false, 0},
		{ratelimit.FailOpen, false, true, 0},
		{ratelimit.FailOpen, true, true, 0},
		{ratelimit.FailWait, false, true, 5 * time.Second},
		{ratelimit.FailWait, true, false, 0},
	} {
		bubble(t, func(t *testing.T, memory ratelimit.Store) {
			store := &switched{Store: memory, away: true}
			base := newBase()
			rt := newTransport(t, store, upstream.Options{Base: base, Cost: secretKey,
				Policy: tt.policy, NoWait: tt.noWait}, ratelimit.PerSecond("maps", 1))
			time.AfterFunc(5*time.Second, func() { store.set(false) })
			status, err := send(t.Context(), rt)
			limited := errors.As(err, new(*upstream.LimitError))
			switch {
			case tt.sent && (status != 200 || err != nil):
				t.Errorf("%+v: %v", tt, err)
			case !tt.sent && (!errors.Is(err, ratelimit.ErrUnavailable) || limited ||
				strings.Contains(err.Error(), secret)):
				t.Errorf("%+v: %v", tt, err)
			}
			if took := time.Since(base.start); took < tt.after || took > tt.after+2*time.Second {
				t.Errorf("%+v: took %v", tt, took)
			}
		})
	}
	bubble(t, func(t *testing.T, memory ratelimit.Store) {
		rt := newTransport(t, &switched{Store: memory, away: true},
			upstream.Options{Base: newBase(), Policy: ratelimit.FailWait},
			ratelimit.PerSecond("maps", 1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := send(ctx, rt)
		if errors.As(err, new(*upstream.LimitError)) ||
			!errors.Is(err, ratelimit.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("FailWait until the deadline: %v", err)
		}
	})
}

// TestShared counts what many workers of two transports on one store send in any window.
func TestShared(t *testing.T) {
	const (
		limit   = 20
		workers = 25
		each    = 8
	)
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		base := newBase()
		var all sync.WaitGroup
		for range 2 {
			rt := newTransport(t, store, upstream.Options{Base: base},
				ratelimit.PerSecond("maps", limit))
			for range workers {
				all.Go(func() {
					for range each {
						if _, err := send(t.Context(), rt); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		all.Wait()
		const window = time.Second + upstream.DefaultMargin
		if n := base.count(); n != 2*workers*each {
			t.Errorf("%d requests were sent, want %d", n, 2*workers*each)
		}
		if n := mostInWindow(base.arrivals, window); n != limit {
			t.Errorf("the fullest window held %d, want %d", n, limit)
		}
		if took, want := time.Since(base.start), (2*workers*each/limit-1)*window; took != want {
			t.Errorf("took %v, want %v", took, want)
		}
	})
}

// mostInWindow returns the most arrivals of any half-open window.
func mostInWindow(arrivals []time.Duration, window time.Duration) (most int) {
	slices.Sort(arrivals)
	first := 0
	for i, at := range arrivals {
		for arrivals[first] <= at-window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

func TestNewErrors(t *testing.T) {
	bubble(t, func(t *testing.T, store ratelimit.Store) {
		second := ratelimit.PerSecond("maps", 1)
		for i, tt := range []struct {
			store  ratelimit.Store
			opts   *upstream.Options
			limits []ratelimit.Limit
			want   error
		}{
			{store, nil, []ratelimit.Limit{second}, nil},
			{nil, nil, []ratelimit.Limit{second}, ratelimit.ErrInvalid},
			{store, nil, nil, ratelimit.ErrInvalid},
			{store, nil, []ratelimit.Limit{second, second}, ratelimit.ErrInvalid},
			{store, nil, []ratelimit.Limit{{Max: 1, Window: time.Second}},
				ratelimit.ErrInvalid},
			{store, nil, []ratelimit.Limit{ratelimit.PerSecond("a", 0)}, ratelimit.ErrInvalid},
			{store, nil, []ratelimit.Limit{{Name: "a", Max: 1}}, ratelimit.ErrInvalid},
			{store, nil, []ratelimit.Limit{{Name: "a", Max: 1, Window: driver.MaxWindow}},
				ratelimit.ErrInvalid},
			{store, nil, []ratelimit.Limit{ratelimit.PerSecond(strings.Repeat("a", 55), 1)}, nil},
			{store, nil, []ratelimit.Limit{ratelimit.PerSecond(strings.Repeat("a", 56), 1)},
				ratelimit.ErrInvalid},
			{store, &upstream.Options{Margin: driver.MaxWindow + 1}, []ratelimit.Limit{second},
				ratelimit.ErrInvalid},
			{store, &upstream.Options{MaxCoolDown: -1}, []ratelimit.Limit{second},
				ratelimit.ErrInvalid},
			{store, &upstream.Options{MaxCoolDown: driver.MaxWindow + 1},
				[]ratelimit.Limit{second}, ratelimit.ErrInvalid},
		} {
			rt, err := upstream.New(tt.store, tt.opts, tt.limits...)
			if !errors.Is(err, tt.want) || (rt == nil) != (err != nil) {
				t.Errorf("case %d: %v, want %v", i, err, tt.want)
			}
		}
	})
}
