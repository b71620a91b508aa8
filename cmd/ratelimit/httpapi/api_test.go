package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
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

// testAPI returns the API of a memory store whose clock moves only when advance is called.
func testAPI(t *testing.T, limits ...ratelimit.Limit) (h *API, advance func(time.Duration)) {
	t.Helper()
	var now atomic.Int64
	now.Store(1_800_000_000_000_000)
	store, err := memorystore.New(&memorystore.Options{Now: now.Load})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return limitsAPI(t, store, limits...), func(d time.Duration) { now.Add(d.Microseconds()) }
}

// broken is a store whose every call fails.
type broken struct{ err error }

func (b broken) Take(context.Context, driver.Demand) (ratelimit.Result, error) {
	return ratelimit.Result{}, b.err
}

func (b broken) TakeAll(context.Context, []driver.Demand, []ratelimit.Result) error {
	return b.err
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

func TestDecideOneLimit(t *testing.T) {
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
		{"/v1/decide", `{"key":"secret-key"}`,
			200,
			`{W,"allowed":true,"source":"store","limit":3,"remaining":2,"retry_after_ms":0,` +
				`"reset_after_ms":1501}`, "", 0},
		{"/v1/decide", ` {"n":2,"key":"secret-key"} `,
			200,
			`{W,"allowed":true,"source":"store","limit":3,"remaining":0,"retry_after_ms":0,` +
				`"reset_after_ms":1501}`, "", 0},
		{"/v1/peek", `{"key":"secret-key"}`,
			200,
			`{W,"allowed":false,"source":"store","limit":3,"remaining":0,"retry_after_ms":1501,` +
				`"reset_after_ms":1501}`, "", 0},
		{"/v1/decide", `{"key":"secret-key","n":1}`,
			429,
			`{W,"allowed":false,"source":"store","limit":3,"remaining":0,"retry_after_ms":1501,` +
				`"reset_after_ms":1501}`, "2", time.Second},
		{"/v1/decide", `{"key":"secret-key"}`,
			429,
			`{W,"allowed":false,"source":"store","limit":3,"remaining":0,"retry_after_ms":501,` +
				`"reset_after_ms":501}`, "1", 500 * time.Millisecond},
		{"/v1/decide", `{"key":"secret-key"}`,
			429,
			`{W,"allowed":false,"source":"store","limit":3,"remaining":0,"retry_after_ms":1,` +
				`"reset_after_ms":1}`, "1", 500 * time.Microsecond},
		{"/v1/peek", `{"key":"secret-key","n":3}`,
			200,
			`{W,"allowed":true,"source":"store","limit":3,"remaining":3,"retry_after_ms":0,` +
				`"reset_after_ms":0}`, "", 0},
		{"/v1/decide", `{"key":"secret-key","n":3}`,
			200,
			`{W,"allowed":true,"source":"store","limit":3,"remaining":0,"retry_after_ms":0,` +
				`"reset_after_ms":1501}`, "", 0},
		{"/v1/reset", `{"key":"secret-key"}`, 204, ``, "", 0},
		{"/v1/decide", `{"key":"secret-key"}`,
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

func TestDecideSeveralLimits(t *testing.T) {
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
		status, _, body := call(t, h, request(http.MethodPost, "/v1/decide", `{"key":"k"}`))
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		if status != step.status || got.state != step.bind ||
			fmt.Sprint(got.Limits) != fmt.Sprint(step.limits) {
			t.Errorf("step %d: %d %s", i, status, body)
		}
	}
	advance(time.Second)
	_, header, body := call(t, h, request(http.MethodPost, "/v1/decide", `{"key":"k","n":2}`))
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if want := (state{"minute", false, 1, 59000}); got.state != want ||
		header.Get("Retry-After") != "59" {
		t.Errorf("%v, Retry-After %q", got, header.Get("Retry-After"))
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
			`{"key":"` + strings.Repeat("k", maxKey) + `"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := request(http.MethodPost, "/v1/decide", tt.body)
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
		r := request(http.MethodPost, "/v1/decide", `{"key":"secret-key"}`)
		r.Header.Set(header, value)
		checkProblem(t, h, r, http.StatusForbidden)
	}
	if res := left(t, h, "second", secret); res.Remaining != 10 {
		t.Errorf("%d units remain, want 10", res.Remaining)
	}
}

func TestHealth(t *testing.T) {
	h := limitsAPI(t, broken{ratelimit.ErrUnavailable}, ratelimit.PerSecond("second", 1))
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		if status, _, _ := call(t, h, request(method, "/healthz", "")); status != http.StatusOK {
			t.Errorf("%s: status %d", method, status)
		}
	}
}

func TestConcurrentDecisions(t *testing.T) {
	const limit, requests = 50, 400
	h, _ := testAPI(t, ratelimit.PerHour("hour", limit), ratelimit.PerDay("day", limit))
	var statuses [600]atomic.Int64
	var wg sync.WaitGroup
	for range requests {
		wg.Go(func() {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, request(http.MethodPost, "/v1/decide", `{"key":"k"}`))
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
	h := limitsAPI(t, broken{ratelimit.ErrUnavailable}, ratelimit.PerSecond("second", 1))
	h.log = slog.New(slog.NewTextHandler(&out, nil))
	for range 3 {
		checkProblem(t, h, request(http.MethodPost, "/v1/decide", `{"key":"secret-key"}`), 503)
	}
	if got := out.String(); strings.Count(got, "\n") != 1 ||
		!strings.Contains(got, "store unavailable") || strings.Contains(got, secret) ||
		!strings.Contains(got, "path=/v1/decide limits=[second]") {
		t.Errorf("the log is %q, want one line without the key", got)
	}
}

// TestPaths: each path has a right, and one answer.
func TestPaths(t *testing.T) {
	for path := range rightOf {
		if (posts[path] == nil) == (others[path] == nil) {
			t.Errorf("%s has no answer, or two", path)
		}
	}
	if len(rightOf) != len(posts)+len(others) {
		t.Error("a path has no right")
	}
}
