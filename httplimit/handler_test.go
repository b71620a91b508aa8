package httplimit_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit"
	"github.com/truewindow/ratelimit/internal/testkit/limittest"
)

var (
	newClock   = limittest.NewClock
	newStore   = limittest.NewStore
	newLimiter = limittest.NewLimiter
)

// broken is a store whose every call fails.
type broken struct{ err error }

func (b broken) Take(context.Context, driver.Demand) (ratelimit.Result, error) {
	return ratelimit.Result{}, b.err
}

func (b broken) TakeAll(context.Context, []driver.Demand, []ratelimit.Result) error {
	return b.err
}

// secret is a key that must not be in any answer.
const secret = "secret-key"

func secretKey(*http.Request) (string, error) { return secret, nil }

var passed = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Passed", "yes")
})

func serve(h http.Handler, r *http.Request) *http.Response {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Result()
}

func get() *http.Request { return httptest.NewRequest(http.MethodGet, "/path", nil) }

// checkProblem reports whether res is problem details that no cache may store, and returns them.
func checkProblem(t *testing.T, res *http.Response, status int) map[string]any {
	t.Helper()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != status {
		t.Errorf("status %d, want %d: %s", res.StatusCode, status, body)
	}
	if got := res.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	if got := res.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q", got)
	}
	if res.Header.Get("Passed") != "" {
		t.Error("the request was passed on")
	}
	if strings.Contains(fmt.Sprint(res.Header)+string(body), secret) {
		t.Errorf("the key is in the answer: %v %s", res.Header, body)
	}
	var p map[string]any
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if p["status"] != float64(status) {
		t.Errorf("status %v in the body, want %d", p["status"], status)
	}
	return p
}

func TestHandlerAdmitsUpToTheLimit(t *testing.T) {
	c := newClock()
	h := httplimit.Handler(newLimiter(t, newStore(t, c), ratelimit.PerMinute("minute", 2)),
		secretKey, passed)
	for i := range 2 {
		if res := serve(h, get()); res.StatusCode != http.StatusOK ||
			res.Header.Get("Passed") != "yes" {
			t.Fatalf("request %d: status %d", i, res.StatusCode)
		}
		c.Advance(10 * time.Second)
	}

	res := serve(h, get())
	p := checkProblem(t, res, http.StatusTooManyRequests)
	if got := res.Header.Get("Retry-After"); got != "40" {
		t.Errorf("Retry-After %q, want 40", got)
	}
	if p["type"] != "https://iana.org/assignments/http-problem-types#quota-exceeded" ||
		p["title"] != "Quota Exceeded" {
		t.Errorf("type %v, title %v", p["type"], p["title"])
	}
	if got := fmt.Sprint(p["violated-policies"]); got != "[minute]" {
		t.Errorf("violated-policies %v", got)
	}

	c.Advance(40*time.Second - time.Microsecond)
	res = serve(h, get())
	checkProblem(t, res, http.StatusTooManyRequests)
	if got := res.Header.Get("Retry-After"); got != "1" {
		t.Errorf("one microsecond before the end: Retry-After %q, want 1", got)
	}
	c.Advance(time.Microsecond)
	if res := serve(h, get()); res.StatusCode != http.StatusOK {
		t.Errorf("after Retry-After: status %d", res.StatusCode)
	}
}

func TestHandlerOfSeveralLimits(t *testing.T) {
	c := newClock()
	limiter := newLimiter(t, newStore(t, c),
		ratelimit.PerSecond("burst", 1), ratelimit.PerMinute("steady", 2),
		ratelimit.PerDay("day", 1000))
	h := httplimit.Handler(limiter, secretKey, passed)
	violated := func(retryAfter string) []any {
		t.Helper()
		res := serve(h, get())
		p := checkProblem(t, res, http.StatusTooManyRequests)
		if got := res.Header.Get("Retry-After"); got != retryAfter {
			t.Errorf("Retry-After %q, want %q", got, retryAfter)
		}
		list, _ := p["violated-policies"].([]any)
		return list
	}

	serve(h, get())
	if got := violated("1"); !slices.Equal(got, []any{"burst"}) {
		t.Errorf("violated-policies %v, want burst", got)
	}
	c.Advance(time.Second)
	serve(h, get())
	if got := violated("59"); !slices.Equal(got, []any{"burst", "steady"}) {
		t.Errorf("violated-policies %v, want burst and steady", got)
	}
	c.Advance(time.Second)
	if got := violated("58"); !slices.Equal(got, []any{"steady"}) {
		t.Errorf("violated-policies %v, want steady", got)
	}
}

func TestHandlerUndecided(t *testing.T) {
	for _, tt := range []struct {
		err    error
		policy ratelimit.Policy
		status int
	}{
		{ratelimit.ErrUnavailable, ratelimit.FailClosed, 503},
		{ratelimit.ErrUnavailable, ratelimit.FailOpen, 200},
		{fmt.Errorf("%w: dial tcp", ratelimit.ErrOutcomeUnknown), ratelimit.FailClosed, 503},
		{fmt.Errorf("%w: dial tcp", ratelimit.ErrOutcomeUnknown), ratelimit.FailOpen, 200},
		{driver.ErrCapacity, ratelimit.FailClosed, 503},
		{driver.ErrCapacity, ratelimit.FailOpen, 503},
		{driver.ErrContended, ratelimit.FailOpen, 503},
		{driver.ErrCorruptState, ratelimit.FailOpen, 503},
		{driver.ErrNoScript, ratelimit.FailClosed, 500},
		{driver.ErrNoScript, ratelimit.FailOpen, 500},
		{ratelimit.ErrExceedsLimit, ratelimit.FailOpen, 422},
		{errors.New(secret), ratelimit.FailClosed, 500},
	} {
		t.Run(fmt.Sprint(tt.err, tt.policy), func(t *testing.T) {
			for _, limits := range [][]ratelimit.Limit{{ratelimit.PerSecond("second", 1)},
				{ratelimit.PerSecond("second", 1), ratelimit.PerDay("day", 1)}} {
				limiter := newLimiter(t, broken{tt.err}, limits...).WithPolicy(tt.policy)
				h := httplimit.Handler(limiter,
					secretKey, passed)
				res := serve(h, get())
				if tt.status == http.StatusOK {
					if res.StatusCode != http.StatusOK || res.Header.Get("Passed") != "yes" {
						t.Errorf("status %d, want the request to be passed on", res.StatusCode)
					}
					continue
				}
				checkProblem(t, res, tt.status)
				wantRetry := ""
				if tt.status == http.StatusServiceUnavailable {
					wantRetry = "1"
				}
				if got := res.Header.Get("Retry-After"); got != wantRetry {
					t.Errorf("Retry-After %q, want %q", got, wantRetry)
				}
			}
		})
	}
}

// TestHandlerContextCanceled: a client that closes its half of the connection is decided like any
// other, and no policy admits more. Its context is canceled before or while the store decides.
func TestHandlerContextCanceled(t *testing.T) {
	for _, policy := range []ratelimit.Policy{ratelimit.FailClosed, ratelimit.FailOpen} {
		for _, during := range []bool{false, true} {
			store := &canceling{Store: newStore(t, newClock())}
			limiter := newLimiter(t, store, ratelimit.PerSecond("second", 2)).WithPolicy(policy)
			h := httplimit.Handler(limiter, secretKey, passed)
			for _, want := range []int{200, 200, 429, 429} {
				ctx, cancel := context.WithCancel(t.Context())
				store.cancel = cancel
				if !during {
					cancel()
				}
				if res := serve(h, get().WithContext(ctx)); res.StatusCode != want {
					t.Errorf("policy %v, during %v: status %d, want %d", policy, during,
						res.StatusCode, want)
				}
				cancel()
			}
		}
	}
}

// canceling is a store during whose calls the client disconnects.
type canceling struct {
	ratelimit.Store
	cancel func()
}

func (s *canceling) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	s.cancel()
	return s.Store.Take(ctx, d)
}

// TestHandlerDeadlinePassed: no policy admits a request whose deadline has passed, whether its
// units are held or not.
func TestHandlerDeadlinePassed(t *testing.T) {
	store := newStore(t, newClock())
	for _, policy := range []ratelimit.Policy{ratelimit.FailClosed, ratelimit.FailOpen} {
		for _, limiter := range []*ratelimit.Limiter{
			newLimiter(t, store, ratelimit.PerSecond("second", 1)), newInFlight(t, store, 1),
		} {
			h := httplimit.Handler(limiter.WithPolicy(policy), secretKey, passed)
			ctx, cancel := context.WithTimeout(t.Context(), 0)
			defer cancel()
			res := serve(h, get().WithContext(ctx))
			if p := checkProblem(t, res, http.StatusServiceUnavailable); p["type"] != nil {
				t.Errorf("type %v", p["type"])
			}
			wantField(t, res, "Retry-After", "")
			remaining(t, limiter, 1)
		}
	}
}

// TestDeadlineWhileDeciding: the deadline of the request's context ends the decision, unless units
// are to be held: then the answer of the store counts, however late.
func TestDeadlineWhileDeciding(t *testing.T) {
	counting := httplimit.WithCounting(func(int) bool { return true })
	for _, tt := range []struct {
		name   string
		make   func(testing.TB, ratelimit.Store) *ratelimit.Limiter
		opts   []httplimit.Option
		status int
		after  time.Duration
	}{
		{"a rate", newSecond, nil, 503, time.Minute},
		{"a Budget", newMinute, nil, 503, time.Minute},
		{"a Budget by the outcome", newMinute, []httplimit.Option{counting}, 200, time.Hour},
		{"calls in flight", newCall, nil, 200, time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hesitant{newStore(t, nil), time.Now().Add(time.Hour)}
				limiter := tt.make(t, store).WithPolicy(ratelimit.FailOpen)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				res := serve(httplimit.New(claiming(one(limiter)), tt.opts...)(passed),
					get().WithContext(ctx))
				if took := time.Since(began); took != tt.after || res.StatusCode != tt.status {
					t.Errorf("status %d after %v, want %d after %v", res.StatusCode, took,
						tt.status, tt.after)
				}
				if res.StatusCode == http.StatusOK {
					return
				}
				if p := checkProblem(t, res, tt.status); p["type"] != nil {
					t.Errorf("type %v", p["type"])
				}
			})
		})
	}
}

func newSecond(tb testing.TB, store ratelimit.Store) *ratelimit.Limiter {
	return newLimiter(tb, store, ratelimit.PerSecond("second", 1))
}

func newMinute(tb testing.TB, store ratelimit.Store) *ratelimit.Limiter {
	return newBudget(tb, store, ratelimit.PerMinute("minute", 1))
}

func newCall(tb testing.TB, store ratelimit.Store) *ratelimit.Limiter {
	return newInFlight(tb, store, 1)
}

// hesitant is a store that answers from a time on, or when the context ends.
type hesitant struct {
	ratelimit.Store
	from time.Time
}

func (s hesitant) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	select {
	case <-ctx.Done():
		return ratelimit.Result{}, fmt.Errorf("%w: %w", ratelimit.ErrUnavailable, ctx.Err())
	case <-time.After(time.Until(s.from)):
		return s.Store.Take(ctx, d)
	}
}

// TestHalfClosed: a client that has closed its half of the connection, and still reads, gets the
// decision of its limits.
func TestHalfClosed(t *testing.T) {
	limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerSecond("second", 1))
	h := httplimit.Handler(limiter, secretKey, passed)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done() // the server has seen the end of the client's half
		h.ServeHTTP(w, r)
	}))
	defer server.Close()
	for _, want := range []int{200, 429} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("status %d, want %d", res.StatusCode, want)
		}
	}
}

// TestChooseStatus: an error of Choose can set the status of the answer.
func TestChooseStatus(t *testing.T) {
	for _, tt := range []struct {
		status, want int
	}{
		{401, 401}, {403, 403}, {429, 429}, {400, 400}, {499, 499}, {503, 503}, {500, 500},
		{599, 599}, {200, 500}, {302, 500}, {0, 500}, {399, 500}, {600, 500}, {-1, 500}, {101, 500},
	} {
		for _, err := range []error{
			&httplimit.StatusError{Status: tt.status},
			fmt.Errorf("wrapped: %w", &httplimit.StatusError{
				Status: tt.status, Err: fmt.Errorf("%s: %w", secret, ratelimit.ErrUnavailable)}),
		} {
			var seen error
			h := httplimit.New(func(*http.Request) ([]ratelimit.Claim, error) { return nil, err },
				httplimit.WithRefusal(func(w http.ResponseWriter, _ *http.Request,
					d httplimit.Decision) {
					seen = d.Err
					httplimit.Refuse(w, d)
				}))(passed)
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // by a client that has closed its half
			res := serve(h, get().WithContext(ctx))
			if p := checkProblem(t, res, tt.want); p["type"] != nil {
				t.Errorf("status %d: type %v", tt.status, p["type"])
			}
			wantField(t, res, "Retry-After", "")
			if !errors.Is(seen, httplimit.ErrUnattributed) || !errors.Is(seen, err) {
				t.Errorf("%v", seen)
			}
		}
	}
}

// TestChooseContextEnded: if Choose fails because the context has ended, the answer does not blame
// the client.
func TestChooseContextEnded(t *testing.T) {
	h := httplimit.New(func(r *http.Request) ([]ratelimit.Claim, error) {
		return nil, r.Context().Err()
	})(passed)
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	res := serve(h, get().WithContext(ctx))
	if p := checkProblem(t, res, http.StatusServiceUnavailable); p["type"] != nil {
		t.Errorf("type %v", p["type"])
	}
	wantField(t, res, "Retry-After", "")
}

func TestHandlerUnattributed(t *testing.T) {
	for name, key := range map[string]httplimit.KeyFunc{
		"error":     func(*http.Request) (string, error) { return secret, errors.New(secret) },
		"empty key": func(*http.Request) (string, error) { return "", nil },
	} {
		t.Run(name, func(t *testing.T) {
			h := httplimit.Handler(newLimiter(t, newStore(t, nil),
				ratelimit.PerSecond("second", 1)), key, passed)
			checkProblem(t, serve(h, get()), http.StatusBadRequest)
		})
	}
}

func TestHandlerConcurrent(t *testing.T) {
	const limit, requests = 50, 400
	var admitted atomic.Int64
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { admitted.Add(1) })
	limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerHour("hour", limit),
		ratelimit.PerDay("day", limit))
	h := httplimit.Handler(limiter, secretKey, next)
	var wg sync.WaitGroup
	for range requests {
		wg.Go(func() { serve(h, get()) })
	}
	wg.Wait()
	if got := admitted.Load(); got != limit {
		t.Errorf("%d requests of %d were passed on, want %d", got, requests, limit)
	}
}

func TestHandlerPanics(t *testing.T) {
	limiter := newLimiter(t, broken{}, ratelimit.PerSecond("second", 1))
	for name, f := range map[string]func(){
		"no limiter": func() { httplimit.Handler(nil, secretKey, passed) },
		"no key":     func() { httplimit.Handler(limiter, nil, passed) },
		"no next":    func() { httplimit.Handler(limiter, secretKey, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}
