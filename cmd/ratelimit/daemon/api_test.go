package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

// secret is a key that must be neither in the log nor in an answer.
const secret = "secret-key"

var discard = slog.New(slog.DiscardHandler)

// testAPI returns the API of a memory store whose clock moves only when advance is called.
func testAPI(t *testing.T, limits ...ratelimit.Limit) (h *api, advance func(time.Duration)) {
	t.Helper()
	var now atomic.Int64
	now.Store(1_800_000_000_000_000)
	store, err := memorystore.New(&memorystore.Options{Now: now.Load})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return newAPI(testLimiter(t, store, limits...), discard), func(d time.Duration) {
		now.Add(d.Microseconds())
	}
}

func testLimiter(
	t *testing.T, store ratelimit.Store, limits ...ratelimit.Limit,
) *ratelimit.Limiter {
	t.Helper()
	var algorithms []ratelimit.Algorithm
	for _, l := range limits {
		algorithms = append(algorithms, budgetOf(l))
	}
	limiter, err := ratelimit.New(store, algorithms...)
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

// broken is a store whose every call fails.
type broken struct{ err error }

func (b broken) Take(context.Context, driver.Demand) (ratelimit.Result, error) {
	return ratelimit.Result{}, b.err
}

func (b broken) TakeAll(context.Context, []driver.Demand, []ratelimit.Result) error {
	return b.err
}

func request(method, path, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// call answers a request and returns the status, the headers and the body, in which it looks for
// secret.
func call(t *testing.T, h http.Handler, r *http.Request) (int, http.Header, string) {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	res := rec.Result()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(fmt.Sprint(res.Header)+string(body), secret) {
		t.Errorf("the key is in the answer: %v %s", res.Header, body)
	}
	if got := res.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q", got)
	}
	return res.StatusCode, res.Header, string(body)
}

// checkProblem reports whether an answer is problem details of the status, and returns them.
func checkProblem(
	t *testing.T, h http.Handler, r *http.Request, status int,
) (http.Header, map[string]any) {
	t.Helper()
	got, header, body := call(t, h, r)
	if got != status {
		t.Errorf("status %d, want %d: %s", got, status, body)
	}
	if got := header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q: %s", got, body)
	}
	var p map[string]any
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if p["status"] != float64(status) || p["title"] == nil {
		t.Errorf("status %d: %s", status, body)
	}
	return header, p
}

func TestTake(t *testing.T) {
	h, advance := testAPI(t, ratelimit.Limit{Name: "1.5005s",
		Max: 3, Window: 1500*time.Millisecond + 500*time.Microsecond})
	steps := []struct {
		path, body string
		status     int
		want       string
		retry      string
		advance    time.Duration
	}{
		{"/v1/peek", `{"key":"secret-key"}`,
			200,
			`{W,"allowed":true,"source":"store","limit":3,"remaining":3,"retry_after_ms":0,` +
				`"reset_after_ms":0}`, "", 0},
		{"/v1/take", `{"key":"secret-key"}`,
			200,
			`{W,"allowed":true,"source":"store","limit":3,"remaining":2,"retry_after_ms":0,` +
				`"reset_after_ms":1501}`, "", 0},
		{"/v1/take", ` {"n":2,"key":"secret-key"} `,
			200,
			`{W,"allowed":true,"source":"store","limit":3,"remaining":0,"retry_after_ms":0,` +
				`"reset_after_ms":1501}`, "", 0},
		{"/v1/peek", `{"key":"secret-key"}`,
			200,
			`{W,"allowed":false,"source":"store","limit":3,"remaining":0,"retry_after_ms":1501,` +
				`"reset_after_ms":1501}`, "", 0},
		{"/v1/take", `{"key":"secret-key","n":1}`,
			429,
			`{W,"allowed":false,"source":"store","limit":3,"remaining":0,"retry_after_ms":1501,` +
				`"reset_after_ms":1501}`, "2", time.Second},
		{"/v1/take", `{"key":"secret-key"}`,
			429,
			`{W,"allowed":false,"source":"store","limit":3,"remaining":0,"retry_after_ms":501,` +
				`"reset_after_ms":501}`, "1", 500 * time.Millisecond},
		{"/v1/take", `{"key":"secret-key"}`,
			429,
			`{W,"allowed":false,"source":"store","limit":3,"remaining":0,"retry_after_ms":1,` +
				`"reset_after_ms":1}`, "1", 500 * time.Microsecond},
		{"/v1/peek", `{"key":"secret-key","n":3}`,
			200,
			`{W,"allowed":true,"source":"store","limit":3,"remaining":3,"retry_after_ms":0,` +
				`"reset_after_ms":0}`, "", 0},
		{"/v1/take", `{"key":"secret-key","n":3}`,
			200,
			`{W,"allowed":true,"source":"store","limit":3,"remaining":0,"retry_after_ms":0,` +
				`"reset_after_ms":1501}`, "", 0},
		{"/v1/reset", `{"key":"secret-key"}`, 204, ``, "", 0},
		{"/v1/take", `{"key":"secret-key"}`,
			200,
			`{W,"allowed":true,"source":"store","limit":3,"remaining":2,"retry_after_ms":0,` +
				`"reset_after_ms":1501}`, "", 0},
	}
	for i, step := range steps {
		status, header, body := call(t, h, request(http.MethodPost, step.path, step.body))
		want := ""
		if step.want != "" {
			one := strings.Replace(step.want, "W", `"name":"1.5005s","window_ms":1500.5`, 1)
			want = strings.TrimSuffix(one, "}") + `,"limits":[` + one + "]}\n"
		}
		if status != step.status || body != want {
			t.Errorf("step %d, %s %s:\ngot  %d %s\nwant %d %s", i, step.path, step.body, status,
				body, step.status, want)
		}
		if got := header.Get("Retry-After"); got != step.retry {
			t.Errorf("step %d: Retry-After %q, want %q", i, got, step.retry)
		}
		wantType := "application/json"
		if step.want == "" {
			wantType = ""
		}
		if got := header.Get("Content-Type"); got != wantType {
			t.Errorf("step %d: Content-Type %q", i, got)
		}
		advance(step.advance)
	}
}

func TestTakeOfSeveralLimits(t *testing.T) {
	h, advance := testAPI(t, ratelimit.PerSecond("burst", 2), ratelimit.PerMinute("minute", 3))
	type state struct {
		Name      string
		Allowed   bool
		Remaining int64
		Retry     int64 `json:"retry_after_ms"`
	}
	var got struct {
		state
		Limits []state
	}
	for i, step := range []struct {
		status int
		bind   state
		limits []state
	}{
		{200, state{"burst", true, 1, 0}, []state{{"burst", true, 1, 0}, {"minute", true, 2, 0}}},
		{200, state{"burst", true, 0, 0}, []state{{"burst", true, 0, 0}, {"minute", true, 1, 0}}},
		{429, state{"burst", false, 0, 1000},
			[]state{{"burst", false, 0, 1000}, {"minute", true, 1, 0}}},
	} {
		status, _, body := call(t, h, request(http.MethodPost, "/v1/take", `{"key":"k"}`))
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		if status != step.status || got.state != step.bind ||
			fmt.Sprint(got.Limits) != fmt.Sprint(step.limits) {
			t.Errorf("step %d: %d %s", i, status, body)
		}
	}
	advance(time.Second)
	_, header, body := call(t, h, request(http.MethodPost, "/v1/take", `{"key":"k","n":2}`))
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if want := (state{"minute", false, 1, 59000}); got.state != want ||
		header.Get("Retry-After") != "59" {
		t.Errorf("%v, Retry-After %q", got, header.Get("Retry-After"))
	}
}

func TestBadRequests(t *testing.T) {
	h, _ := testAPI(t, ratelimit.PerSecond("second", 10))
	long := strings.Repeat("k", maxBody)
	for _, tt := range []struct {
		name, method, path, contentType, body string
		status                                int
	}{
		{"empty body", "POST", "/v1/take", "application/json", ``, 400},
		{"no JSON", "POST", "/v1/take", "application/json", `secret-key`, 400},
		{"no object", "POST", "/v1/take", "application/json", `["secret-key"]`, 400},
		{"null", "POST", "/v1/take", "application/json", `null`, 400},
		{"cut off", "POST", "/v1/take", "application/json", `{"key":"secret-key"`, 400},
		{"cut off in the key", "POST", "/v1/take", "application/json", `{"key":"secret-key`, 400},
		{"cut off in a name", "POST", "/v1/take", "application/json", `{"key`, 400},
		{"no comma", "POST", "/v1/take", "application/json", `{"key":"secret-key" "n":1}`, 400},
		{"comma at the end", "POST", "/v1/take", "application/json", `{"key":"secret-key",}`, 400},
		{"wrong bracket", "POST", "/v1/take", "application/json", `{"key":"secret-key"]`, 400},
		{"trailing data", "POST", "/v1/take", "application/json", `{"key":"secret-key"} x`, 400},
		{"second object", "POST", "/v1/take", "application/json",
			`{"key":"secret-key"}{"key":"secret-key"}`, 400},
		{"unknown field", "POST", "/v1/take", "application/json",
			`{"key":"secret-key","secret-key":1}`, 400},
		{"name in another case", "POST", "/v1/take", "application/json",
			`{"Key":"secret-key"}`, 400},
		{"key twice", "POST", "/v1/take", "application/json",
			`{"key":"a","key":"secret-key"}`, 400},
		{"n twice", "POST", "/v1/take", "application/json", `{"key":"a","n":1,"n":2}`, 400},
		{"no key", "POST", "/v1/take", "application/json", `{"n":1}`, 400},
		{"empty key", "POST", "/v1/take", "application/json", `{"key":"","n":1}`, 400},
		{"key is null", "POST", "/v1/take", "application/json", `{"key":null}`, 400},
		{"key is a number", "POST", "/v1/take", "application/json", `{"key":7}`, 400},
		{"key is an object", "POST", "/v1/take", "application/json",
			`{"key":{"a":"secret-key"}}`, 400},
		{"key is no UTF-8", "POST", "/v1/take", "application/json",
			"{\"key\":\"secret-key\xff\"}", 400},
		{"key has half a surrogate pair", "POST", "/v1/take", "application/json",
			`{"key":"secret-key\ud800"}`, 400},
		{"n is zero", "POST", "/v1/take", "application/json", `{"key":"secret-key","n":0}`, 400},
		{"n is zero in a peek", "POST", "/v1/peek", "application/json",
			`{"key":"secret-key","n":0}`, 400},
		{"n is negative", "POST", "/v1/take", "application/json",
			`{"key":"secret-key","n":-1}`, 400},
		{"n is a fraction", "POST", "/v1/take", "application/json",
			`{"key":"secret-key","n":1.5}`, 400},
		{"n is a string", "POST", "/v1/take", "application/json",
			`{"key":"secret-key","n":"1"}`, 400},
		{"n is null", "POST", "/v1/take", "application/json", `{"key":"secret-key","n":null}`, 400},
		{"n is no int64", "POST", "/v1/take", "application/json",
			`{"key":"secret-key","n":9223372036854775808}`, 400},
		{"n in a reset", "POST", "/v1/reset", "application/json",
			`{"key":"secret-key","n":1}`, 400},
		{"empty reset", "POST", "/v1/reset", "application/json", `{}`, 400},
		{"n beyond the limit", "POST", "/v1/take", "application/json",
			`{"key":"secret-key","n":11}`, 422},
		{"n beyond the limit in a peek", "POST", "/v1/peek", "application/json",
			`{"key":"secret-key","n":11}`, 422},
		{"n beyond any limit", "POST", "/v1/take", "application/json",
			fmt.Sprintf(`{"key":"secret-key","n":%d}`, int64(math.MaxInt64)), 422},
		{"large body", "POST", "/v1/take", "application/json", `{"key":"` + long + `"}`, 413},
		{"large body of a reset", "POST", "/v1/reset", "application/json",
			`{"key":"` + long + `"}`, 413},
		{"GET of take", "GET", "/v1/take", "", ``, 405},
		{"PUT of peek", "PUT", "/v1/peek", "application/json", `{"key":"secret-key"}`, 405},
		{"DELETE of reset", "DELETE", "/v1/reset", "", ``, 405},
		{"POST of healthz", "POST", "/healthz", "", ``, 405},
		{"unknown path", "POST", "/v1/take/secret-key", "application/json",
			`{"key":"secret-key"}`, 404},
		{"root", "GET", "/", "", ``, 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := request(tt.method, tt.path, tt.body)
			r.Header.Set("Content-Type", tt.contentType)
			header, _ := checkProblem(t, h, r, tt.status)
			wantAllow := ""
			if tt.status == http.StatusMethodNotAllowed {
				wantAllow = "POST"
				if tt.path == "/healthz" {
					wantAllow = "GET, HEAD"
				}
			}
			if got := header.Get("Allow"); got != wantAllow {
				t.Errorf("Allow %q, want %q", got, wantAllow)
			}
		})
	}
	res, err := h.limiter.Peek(t.Context(), secret)
	if err != nil || res.Remaining != 10 {
		t.Errorf("%d units remain (%v), want 10", res.Remaining, err)
	}
}

func TestGoodRequests(t *testing.T) {
	h, _ := testAPI(t, ratelimit.PerSecond("second", 10))
	for _, tt := range []struct{ name, contentType, body string }{
		{"no content type", "", `{"key":"a"}`},
		{"charset", "application/json; charset=utf-8", `{"key":"b"}`},
		{"what curl -d says", "application/x-www-form-urlencoded", `{"key":"f"}`},
		{"content type in another case", "Application/JSON", `{"key":"c"}`},
		{"escapes", "application/json", `{"key":"d\u0000\ud83d\ude00{}\n"}`},
		{"all units", "application/json", `{"key":"e","n":10}`},
		{"longest key", "application/json",
			`{"key":"` + strings.Repeat("k", maxBody-len(`{"key":""}`)) + `"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := request(http.MethodPost, "/v1/take", tt.body)
			r.Header.Set("Content-Type", tt.contentType)
			if tt.contentType == "" {
				r.Header.Del("Content-Type")
			}
			if status, _, body := call(t, h, r); status != http.StatusOK {
				t.Errorf("status %d: %s", status, body)
			}
		})
	}
}

func TestCrossOrigin(t *testing.T) {
	h, _ := testAPI(t, ratelimit.PerSecond("second", 10))
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site",
		"Origin": "https://elsewhere.example"} {
		r := request(http.MethodPost, "/v1/take", `{"key":"secret-key"}`)
		r.Header.Set(header, value)
		checkProblem(t, h, r, http.StatusForbidden)
	}
	if res, err := h.limiter.Peek(t.Context(), secret); err != nil || res.Remaining != 10 {
		t.Errorf("%d units remain (%v), want 10", res.Remaining, err)
	}
}

func TestUndecided(t *testing.T) {
	for _, tt := range []struct {
		err    error
		status int
		typ    string
	}{
		{ratelimit.ErrUnavailable, 503, "ErrUnavailable"},
		{driver.ErrClosed, 503, "ErrUnavailable"},
		{fmt.Errorf("%w: read tcp", ratelimit.ErrOutcomeUnknown), 503, "ErrOutcomeUnknown"},
		{driver.ErrCapacity, 503, "ErrCapacity"},
		{driver.ErrCorruptState, 503, "ErrCorruptState"},
		{ratelimit.ErrExceedsLimit, 422, "ErrExceedsLimit"},
		{driver.ErrNoScript, 500, ""},
		{errors.New(secret), 500, ""},
	} {
		for _, path := range []string{"/v1/take", "/v1/peek", "/v1/reset"} {
			t.Run(tt.err.Error()+path, func(t *testing.T) {
				h := newAPI(testLimiter(t, broken{tt.err}, ratelimit.PerSecond("second", 1),
					ratelimit.PerDay("day", 1)), discard)
				header, p := checkProblem(t, h,
					request(http.MethodPost, path, `{"key":"secret-key"}`), tt.status)
				var want any
				if tt.typ != "" {
					want = "https://pkg.go.dev/github.com/truewindow/ratelimit/driver#" + tt.typ
				}
				if p["type"] != want {
					t.Errorf("type %v, want %v", p["type"], want)
				}
				if got := header.Get("Retry-After"); got != "" {
					t.Errorf("got Retry-After %q, want none", got)
				}
			})
		}
	}
}

func TestHealth(t *testing.T) {
	h := newAPI(testLimiter(t, broken{ratelimit.ErrUnavailable}, ratelimit.PerSecond("second", 1)),
		discard)
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		if status, _, _ := call(t, h, request(method, "/healthz", "")); status != http.StatusOK {
			t.Errorf("%s: status %d", method, status)
		}
	}
}

func TestConcurrentTakes(t *testing.T) {
	const limit, requests = 50, 400
	h, _ := testAPI(t, ratelimit.PerHour("hour", limit), ratelimit.PerDay("day", limit))
	var statuses [600]atomic.Int64
	var wg sync.WaitGroup
	for range requests {
		wg.Go(func() {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, request(http.MethodPost, "/v1/take", `{"key":"k"}`))
			statuses[rec.Code].Add(1)
		})
	}
	wg.Wait()
	if ok, refused := statuses[200].Load(), statuses[429].Load(); ok != limit ||
		refused != requests-limit {
		t.Errorf("%d admitted and %d refused, want %d and %d", ok, refused, limit, requests-limit)
	}
}

func TestFailuresAreLogged(t *testing.T) {
	var out strings.Builder
	h := newAPI(testLimiter(t, broken{ratelimit.ErrUnavailable}, ratelimit.PerSecond("second", 1)),
		slog.New(slog.NewTextHandler(&out, nil)))

	for range 3 {
		checkProblem(t, h, request(http.MethodPost, "/v1/take", `{"key":"secret-key"}`), 503)
	}
	if got := out.String(); strings.Count(got, "\n") != 1 ||
		!strings.Contains(got, "store unavailable") || strings.Contains(got, secret) ||
		!strings.Contains(got, "path=/v1/take limits=[second]") {
		t.Errorf("the log is %q, want one line without the key", got)
	}
}

func TestGate(t *testing.T) {
	var g gate
	at := time.Unix(1_800_000_000, 0)
	for i, step := range []struct {
		after time.Duration
		open  bool
		held  int
	}{
		{0, true, 0},
		{0, false, 0},
		{time.Second - 1, false, 0},
		{time.Second, true, 2},
		{2 * time.Second, true, 0},
	} {
		if open, held := g.pass(at.Add(step.after)); open != step.open || held != step.held {
			t.Errorf("step %d: %v, %d; want %v, %d", i, open, held, step.open, step.held)
		}
	}
}
