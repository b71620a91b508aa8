package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit"
	"github.com/truewindow/ratelimit/httplimit/headers"
	"github.com/truewindow/ratelimit/layer"
)

// claiming returns a Choose of claims.
func claiming(claims ...ratelimit.Claim) httplimit.Choose {
	return func(*http.Request) ([]ratelimit.Claim, error) { return claims, nil }
}

func one(l *ratelimit.Limiter) ratelimit.Claim {
	return ratelimit.Claim{Limiter: l, Key: secret, N: 1}
}

func wantField(t *testing.T, res *http.Response, name, want string) {
	t.Helper()
	if got := res.Header.Get(name); got != want {
		t.Errorf("%s: %s\nwant %s", name, got, want)
	}
}

func remaining(t *testing.T, l *ratelimit.Limiter, want int64) {
	t.Helper()
	res, err := l.Peek(t.Context(), secret)
	if err != nil || res.Remaining != want {
		t.Errorf("%d units remain (%v), want %d", res.Remaining, err, want)
	}
}

// TestNewByRoute: plans, costs and exemptions by the pattern of a ServeMux and the request.
func TestNewByRoute(t *testing.T) {
	store := newStore(t, newClock())
	plans := map[string]*ratelimit.Limiter{
		"free": newLimiter(t, store, ratelimit.PerMinute("free", 10)),
		"paid": newLimiter(t, store, ratelimit.PerMinute("paid", 100)),
	}
	limit := httplimit.New(func(r *http.Request) ([]ratelimit.Claim, error) {
		plan, ok := plans[r.Header.Get("Plan")]
		switch {
		case r.Pattern == "GET /health":
			return nil, nil
		case !ok:
			return nil, errors.New(secret)
		}
		return []ratelimit.Claim{{Limiter: plan, Key: secret, N: map[string]int64{
			"GET /items/{id}": 1, "POST /export": 8}[r.Pattern]}}, nil
	})
	mux := http.NewServeMux()
	for _, pattern := range []string{"GET /health", "GET /items/{id}", "POST /export"} {
		mux.Handle(pattern, limit(passed))
	}
	for i, tt := range []struct {
		method, path, plan string
		status             int
		limits             string
	}{
		{"GET", "/items/1", "free", 200, `"free";r=9;t=60`},
		{"POST", "/export", "free", 200, `"free";r=1;t=60`},
		{"POST", "/export", "free", 429, `"free";r=1;t=60`},
		{"POST", "/export", "paid", 200, `"paid";r=92;t=60`},
		{"GET", "/items/2", "free", 200, `"free";r=0;t=60`},
		{"GET", "/items/3", "free", 429, `"free";r=0;t=60`},
		{"GET", "/items/3", "", 400, ""},
		{"GET", "/health", "", 200, ""},
	} {
		r := get()
		r.Method, r.URL.Path = tt.method, tt.path
		r.Header.Set("Plan", tt.plan)
		res := serve(mux, r)
		if tt.status != 200 {
			checkProblem(t, res, tt.status)
		} else if res.Header.Get("Passed") == "" {
			t.Errorf("request %d: status %d, want it to be passed on", i, res.StatusCode)
		}
		wantField(t, res, "RateLimit", tt.limits)
	}
}

// TestNewTogether: claims are decided together, and the fields describe every limit of every claim.
func TestNewTogether(t *testing.T) {
	store := newStore(t, newClock())
	user := newLimiter(t, store, ratelimit.PerSecond("burst", 5), ratelimit.PerHour("hour", 2))
	tenant := newLimiter(t, store, ratelimit.PerHour("tenant", 3))
	h := httplimit.New(func(r *http.Request) ([]ratelimit.Claim, error) {
		return []ratelimit.Claim{{Limiter: user, Key: r.Header.Get("User"), N: 1},
			{Limiter: tenant, Key: "t", N: 1}}, nil
	}, httplimit.WithUnit("tenant", headers.ContentBytes))(passed)
	as := func(name string) *http.Response {
		r := get()
		r.Header.Set("User", name)
		return serve(h, r)
	}
	res := as("ann")
	wantField(t, res, "RateLimit-Policy",
		`"burst";q=5;w=1, "hour";q=2;w=3600, "tenant";q=3;w=3600;qu="content-bytes"`)
	wantField(t, res, "RateLimit", `"burst";r=4;t=1, "hour";r=1;t=3600, "tenant";r=2;t=3600`)
	as("ann")
	res = as("ann")
	if p := checkProblem(t, res, 429); fmt.Sprint(p["violated-policies"]) != "[hour]" {
		t.Errorf("violated-policies %v", p["violated-policies"])
	}
	wantField(t, res, "RateLimit", `"burst";r=3;t=1, "hour";r=0;t=3600, "tenant";r=1;t=3600`)
	if res := as("bob"); res.StatusCode != 200 {
		t.Errorf("bob: %d", res.StatusCode)
	}
	if p := checkProblem(t, as("bob"), 429); fmt.Sprint(p["violated-policies"]) != "[tenant]" {
		t.Errorf("violated-policies %v", p["violated-policies"])
	}
	checkProblem(t, as(""), 400)
}

// TestNewMonthly: the fields of a limit of calendar months have the length of the longest, and the
// times at which the month ends.
func TestNewMonthly(t *testing.T) {
	clock := newClock()
	clock.Advance(16*24*time.Hour + 16*time.Hour) // to 1 February 2027
	limiter, err := ratelimit.New(newStore(t, clock), algorithm.Monthly("month", 1))
	if err != nil {
		t.Fatal(err)
	}
	h := httplimit.New(claiming(one(limiter)))(passed)
	for _, status := range []int{200, 429} {
		res := serve(h, get())
		if res.StatusCode != status {
			t.Errorf("status %d, want %d", res.StatusCode, status)
		}
		wantField(t, res, "RateLimit-Policy", `"month";q=1;w=2678400`)
		wantField(t, res, "RateLimit", `"month";r=0;t=2419200`)
		if status == 429 {
			wantField(t, res, "Retry-After", "2419200")
		}
	}
}

// TestNewChained: middlewares in a chain, as in chi, describe all their limits.
func TestNewChained(t *testing.T) {
	store := newStore(t, newClock())
	outer := httplimit.New(claiming(one(newLimiter(t, store, ratelimit.PerHour("outer", 9)))))
	inner := httplimit.New(claiming(one(newLimiter(t, store, ratelimit.PerHour("inner", 1)))))
	var got httplimit.Decision
	var h http.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got, _ = httplimit.FromContext(r.Context())
	})
	for _, middleware := range []func(http.Handler) http.Handler{inner, outer} {
		h = middleware(h)
	}
	res := serve(h, get())
	if lines := res.Header.Values("RateLimit"); !slices.Equal(lines,
		[]string{`"outer";r=8;t=3600`, `"inner";r=0;t=3600`}) {
		t.Errorf("RateLimit %q", lines)
	}
	if lines := res.Header.Values("RateLimit-Policy"); !slices.Equal(lines,
		[]string{`"outer";q=9;w=3600`, `"inner";q=1;w=3600`}) {
		t.Errorf("RateLimit-Policy %q", lines)
	}
	if len(got.Results) != 1 || got.Results[0].Limit.Name != "inner" {
		t.Errorf("the decision is not that of the inner middleware: %+v", got)
	}
	checkProblem(t, serve(h, get()), 429)
}

// TestNewFormats: the fields of one format at a time, and CORS.
func TestNewFormats(t *testing.T) {
	for f, want := range map[headers.Format][]string{
		headers.Draft11: {"Ratelimit", "Ratelimit-Policy"},
		headers.Draft06: {"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"},
		headers.XDelta:  {"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
		headers.XEpoch:  {"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
		headers.None:    nil,
	} {
		limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerHour("hour", 9))
		h := httplimit.New(claiming(one(limiter)), httplimit.WithFormat(f),
			httplimit.WithExposed())(passed)
		res := serve(h, get())
		exposed := http.Header{}
		headers.Expose(exposed, f)
		wantField(t, res, "Access-Control-Expose-Headers",
			exposed.Get("Access-Control-Expose-Headers"))
		res.Header.Del("Access-Control-Expose-Headers")
		res.Header.Del("Passed")
		var got []string
		for name := range res.Header {
			got = append(got, name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%v: %q, want %q", f, got, want)
		}
	}
}

// TestNewLongFields: a field that is longer than the memory reserved for it is not cut.
func TestNewLongFields(t *testing.T) {
	var limits []ratelimit.Limit
	var want string
	for i := range 12 {
		limits = append(limits, ratelimit.PerHour(fmt.Sprintf("limit-%d", i), 1000))
		want += fmt.Sprintf(`, "limit-%d";r=999;t=3600`, i)
	}
	h := httplimit.New(claiming(one(newLimiter(t, newStore(t, newClock()), limits...))))(passed)
	wantField(t, serve(h, get()), "RateLimit", want[2:])
}

// TestNewBlocks: the problem's type shows a block, and the fields do not.
func TestNewBlocks(t *testing.T) {
	store := newStore(t, newClock())
	blocked, err := ratelimit.New(store, algorithm.Blocking("blocked", 24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	rate := newLimiter(t, store, ratelimit.PerHour("hour", 9))
	h := httplimit.New(claiming(one(blocked), one(rate)), httplimit.WithBlocks("blocked"))(passed)
	res := serve(h, get())
	wantField(t, res, "RateLimit", `"hour";r=8;t=3600`)
	wantField(t, res, "RateLimit-Policy", `"hour";q=9;w=3600`)
	_, err = blocked.Force(t.Context(), secret, algorithm.BlockFor(15*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	res = serve(h, get())
	p := checkProblem(t, res, 429)
	if p["type"] != "https://iana.org/assignments/http-problem-types#abnormal-usage-detected" ||
		fmt.Sprint(p["violated-policies"]) != "[blocked]" {
		t.Errorf("%v", p)
	}
	wantField(t, res, "Retry-After", "900")
	h = httplimit.New(claiming(one(blocked)), httplimit.WithBlocks("blocked"))(passed)
	wantField(t, serve(h, get()), "RateLimit-Policy", "")
}

// flaky is a store that fails while away is set.
type flaky struct {
	ratelimit.Store
	away atomic.Bool
}

func (f *flaky) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	if f.away.Load() {
		return ratelimit.Result{}, ratelimit.ErrUnavailable
	}
	return f.Store.Take(ctx, d)
}

func (f *flaky) TakeAll(
	ctx context.Context, ds []driver.Demand, out []ratelimit.Result,
) error {
	if f.away.Load() {
		return ratelimit.ErrUnavailable
	}
	return f.Store.TakeAll(ctx, ds, out)
}

// TestNewDegraded: a refusal by the reduced share of a limit is the server's fault (503). A refusal
// by a share that is the whole limit is not (429).
func TestNewDegraded(t *testing.T) {
	const reduced = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	for _, tt := range []struct {
		instances, status int
		policy, limits    string
	}{
		{1, 429, `"hour";q=4;w=3600`, `"hour";r=0;t=3600`},
		{2, 503, `"hour";q=2;w=3600`, `"hour";r=0;t=3600`},
	} {
		inside := &flaky{Store: newStore(t, newClock())}
		store, err := layer.NewDegraded(inside, &layer.DegradedOptions{Instances: tt.instances})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		limiter := newLimiter(t, store, ratelimit.PerHour("hour", 4))
		h := httplimit.New(claiming(one(limiter)))(passed)
		inside.away.Store(true)
		var res *http.Response
		for range 1 + 4/tt.instances {
			res = serve(h, get())
		}
		p := checkProblem(t, res, tt.status)
		if tt.status == 503 && p["type"] != reduced ||
			fmt.Sprint(p["violated-policies"]) != "[hour]" {
			t.Errorf("%v", p)
		}
		if got := res.Header.Get("Retry-After"); got < "3590" {
			t.Errorf("Retry-After %q", got)
		}
		wantField(t, res, "RateLimit-Policy", tt.policy)
	}

	h := httplimit.New(claiming(one(newLimiter(t, broken{ratelimit.ErrUnavailable},
		ratelimit.PerHour("hour", 4)))))(passed)
	if p := checkProblem(t, serve(h, get()), 503); p["type"] != reduced {
		t.Errorf("undecided: %v", p)
	}
}

// TestNewUndecidable: requests with invalid claims are not passed on.
func TestNewUndecidable(t *testing.T) {
	limiter := newBudget(t, newStore(t, newClock()), ratelimit.PerHour("hour", 9))
	other := newLimiter(t, newStore(t, newClock()), ratelimit.PerHour("other", 9))
	for _, tt := range []struct {
		name   string
		claims []ratelimit.Claim
		status int
	}{
		{"no limiter", []ratelimit.Claim{{Key: secret, N: 1}}, 500},
		{"negative", []ratelimit.Claim{{Limiter: limiter, Key: secret, N: -1}}, 500},
		{"two stores", []ratelimit.Claim{one(limiter), one(other)}, 500},
		{"twice the same", []ratelimit.Claim{one(limiter), one(limiter)}, 500},
		{"too much", []ratelimit.Claim{{Limiter: limiter, Key: secret, N: 10}}, 422},
		{"more than any limit", []ratelimit.Claim{
			{Limiter: limiter, Key: secret, N: driver.MaxUnits + 1}}, 422},
		{"no key", []ratelimit.Claim{one(limiter), {Limiter: limiter, N: 1}}, 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, opts := range [][]httplimit.Option{nil, {httplimit.WithCounting(
				func(int) bool { return true })}} {
				res := serve(httplimit.New(claiming(tt.claims...), opts...)(passed), get())
				checkProblem(t, res, tt.status)
				wantField(t, res, "Retry-After", "")
				wantField(t, res, "RateLimit", "")
			}
		})
	}
	remaining(t, limiter, 9)
}

// TestNewOpen: if the policy admits a request, the fields have only the limits.
func TestNewOpen(t *testing.T) {
	limiter := newLimiter(t, broken{ratelimit.ErrUnavailable}, ratelimit.PerHour("hour", 4))
	h := httplimit.New(claiming(one(limiter.WithPolicy(ratelimit.FailOpen))))(passed)
	res := serve(h, get())
	if res.StatusCode != 200 || res.Header.Get("RateLimit") != "" {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
	wantField(t, res, "RateLimit-Policy", `"hour";q=4;w=3600`)
}

// TestNewManyLimiters: limiters that are made for each request have the right fields and are not
// kept.
func TestNewManyLimiters(t *testing.T) {
	const requests = 600
	store := newStore(t, newClock())
	limiters := make([]weak.Pointer[ratelimit.Limiter], requests)
	n := 0
	h := httplimit.New(func(*http.Request) ([]ratelimit.Claim, error) {
		limiter := newLimiter(t, store, ratelimit.PerHour("hour", int64(n+1)))
		limiters[n] = weak.Make(limiter)
		n++
		return []ratelimit.Claim{{N: 1, Key: fmt.Sprint("k", n), Limiter: limiter}}, nil
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, _ := httplimit.FromContext(r.Context())
		want := fmt.Sprintf(`"hour";q=%d;w=3600`, d.Results[0].Limit.Max)
		if got := w.Header().Get("RateLimit-Policy"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}))
	for range requests {
		serve(h, get())
	}
	runtime.GC()
	held := 0
	for _, p := range limiters {
		if p.Value() != nil {
			held++
		}
	}
	if held > 1 {
		t.Errorf("%d limiters are kept", held)
	}
	runtime.KeepAlive(h)
}

// TestVisibleOutside: middleware around this one sees what inner handlers set on the request, even
// if they panic.
func TestVisibleOutside(t *testing.T) {
	limiter := newBudget(t, newStore(t, newClock()), ratelimit.PerHour("hour", 100))
	limit := httplimit.New(claiming(one(limiter)))
	counting := httplimit.New(claiming(one(limiter)),
		httplimit.WithCounting(func(int) bool { return true }))
	mux := http.NewServeMux()
	const pattern = "POST /users/{id}/files/{path...}"
	mux.HandleFunc(pattern, func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		if r.URL.Query().Has("panic") {
			panic("planned")
		}
	})
	for name, h := range map[string]http.Handler{
		"mux alone": mux, "limited": limit(mux), "twice": limit(counting(mux)),
	} {
		for _, query := range []string{"q=1", "q=1&panic"} {
			type key struct{}
			r := httptest.NewRequest("POST", "/users/7/files/a/b?"+query, nil)
			r = r.WithContext(context.WithValue(r.Context(), key{}, "outer"))
			serveAnyway(h, r)
			got := []any{r.Pattern, r.PathValue("id"), r.PathValue("path"), r.Form.Get("q"),
				r.Context().Value(key{})}
			want := []any{pattern, "7", "a/b", "1", "outer"}
			if !slices.Equal(got, want) {
				t.Errorf("%s, %s: %s", name, query, got)
			}
			if _, ok := httplimit.FromContext(r.Context()); ok {
				t.Errorf("%s: the context of the outer request has changed", name)
			}
		}
	}
}

func TestNewPanics(t *testing.T) {
	choose := claiming()
	for name, f := range map[string]func(){
		"no choose":      func() { httplimit.New(nil) },
		"no next":        func() { httplimit.New(choose)(nil) },
		"unknown format": func() { httplimit.New(choose, httplimit.WithFormat(99)) },
		"no refusal":     func() { httplimit.New(choose, httplimit.WithRefusal(nil)) },
		"a share of 2":   func() { httplimit.New(choose, httplimit.WithRetryJitter(2)) },
		"no keys":        func() { httplimit.Join() },
		"a nil key":      func() { httplimit.Join(secretKey, nil) },
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
