package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

// budgetFlags are the limits of the tests of budgets.
func budgetFlags() *serveCmd {
	return &serveCmd{
		Limit: []ratelimit.Limit{
			ratelimit.PerMinute("requests", 3), ratelimit.PerMinute("tokens", 100),
		},
		InFlight: []ratelimit.Limit{{Name: "calls", Max: 2, Window: 10 * time.Minute}},
		Block:    []blockFlag{{algorithm.Blocking("blocked", time.Hour)}},
	}
}

// A scene is an API with budgets, the tokens that it has returned, and the clock of its store.
type scene struct {
	*testing.T
	api     *api
	store   ratelimit.Store
	advance func(time.Duration)
	tokens  []string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	var now atomic.Int64
	now.Store(1_800_000_000_000_000)
	store, err := memorystore.New(&memorystore.Options{Now: now.Load})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &scene{T: t, api: budgetAPI(t, budgetFlags(), store), store: store,
		advance: func(d time.Duration) { now.Add(d.Microseconds()) }}
}

func budgetAPI(t *testing.T, c *serveCmd, store ratelimit.Store) *api {
	t.Helper()
	h := newAPI(testLimiter(t, store, c.Limit...), discard)
	b, err := c.newBudgets(store)
	if err != nil {
		t.Fatal(err)
	}
	h.budgets = b
	began := time.Now()
	h.top, err = c.newTopKeys(func() time.Time { return began })
	if err != nil {
		t.Fatal(err)
	}
	if h.top != nil {
		h.limiter = h.limiter.WithObserver(h.top.Observe)
		h.budgets.observe(h.top.Observe)
	}
	return h
}

// post sends a request in whose body $1 is the first token that was returned, $2 the second, and so
// on. It returns the parsed answer.
func (s *scene) post(path, body string) (status int, header http.Header, answer map[string]any) {
	s.Helper()
	return s.request(http.MethodPost, path, body)
}

// request is post with a method.
func (s *scene) request(
	method, path, body string,
) (status int, header http.Header, answer map[string]any) {
	s.Helper()
	for i, token := range s.tokens {
		body = strings.ReplaceAll(body, fmt.Sprintf("$%d", i+1), token)
	}
	status, header, text := call(s.T, s.api, request(method, path, body))
	if text != "" {
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			s.Fatalf("%v: %s", err, text)
		}
	}
	if token, ok := answer["token"].(string); ok {
		s.tokens = append(s.tokens, token)
	}
	return status, header, answer
}

// checkLeft compares what remains of the budgets of the key secret, as in "requests=2 tokens=40".
func (s *scene) checkLeft(want string) {
	s.Helper()
	var got []string
	for part := range strings.FieldsSeq(want) {
		name, _, _ := strings.Cut(part, "=")
		res, err := s.api.budgets.byName[name].Peek(s.Context(), secret)
		if err != nil {
			s.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s=%d", name, res.Remaining))
	}
	if left := strings.Join(got, " "); left != want {
		s.Errorf("left %s, want %s", left, want)
	}
}

// step is one request of a sequence, and what remains after it.
type step struct {
	path, body string
	status     int
	typ        string // of a problem, after the #
	left       string
	advance    time.Duration // before it
}

func (s *scene) play(steps []step) {
	s.Helper()
	for i, step := range steps {
		s.advance(step.advance)
		status, _, answer := s.post(step.path, step.body)
		typ, _ := answer["type"].(string)
		if _, typ, _ = strings.Cut(typ, "#"); status != step.status || typ != step.typ {
			s.Errorf("step %d, %s %s: %d %v, want %d %s",
				i, step.path, step.body, status, answer, step.status, step.typ)
		}
		if step.left != "" {
			s.checkLeft(step.left)
		}
		if s.Failed() {
			s.Fatalf("step %d", i)
		}
	}
}

// of returns a request for the claims, written as "tokens 40, requests 1".
func of(claims string) string {
	var parts []string
	for c := range strings.SplitSeq(claims, ", ") {
		name, n, ok := strings.Cut(c, " ")
		if ok {
			n = `,"n":` + n
		}
		parts = append(parts, fmt.Sprintf(`{"limit":%q,"key":%q%s}`, name, secret, n))
	}
	return `{"claims":[` + strings.Join(parts, ",") + `]}`
}

// one returns a request for one limit with another field, if it is not empty.
func one(limit, field string) string {
	if field != "" {
		field = "," + field
	}
	return fmt.Sprintf(`{"limit":%q,"key":%q%s}`, limit, secret, field)
}

func TestTakeAll(t *testing.T) {
	newScene(t).play([]step{
		{"/v1/peek-all", of("requests 3, tokens 100"), 200, "", "requests=3 tokens=100", 0},
		{"/v1/take-all", of("requests, tokens 60, blocked"), 200, "", "requests=2 tokens=40", 0},
		{"/v1/take-all", of("requests, tokens 41"), 429, "quota-exceeded",
			"requests=2 tokens=40", 0},
		{"/v1/take-all", of("requests, tokens 40"), 200, "", "requests=1 tokens=0", 0},
		{"/v1/take-all", of("requests, tokens 0"), 429, "quota-exceeded", "requests=1 tokens=0", 0},
		{"/v1/peek-all", of("requests, tokens"), 200, "", "requests=1 tokens=0", 0},
		{"/v1/take-all", of("requests, calls 0"), 200, "", "requests=0", 0},
		{"/v1/take-all", of("tokens 100"), 200, "", "requests=3 tokens=0", time.Minute},
		// The old requests are on the same histories.
		{"/v1/take", `{"key":"secret-key"}`, 429, "", "requests=3", 0},
		{"/v1/reset", `{"key":"secret-key"}`, 204, "", "requests=3 tokens=100", 0},
	})
}

// TestTakeAllAnswer: the answer has the limit that binds, and that of each claim.
func TestTakeAllAnswer(t *testing.T) {
	s := newScene(t)
	r := request(http.MethodPost, "/v1/take-all", of("tokens 98, requests"))
	_, _, body := call(t, s.api, r)
	want := `{"name":"tokens","window_ms":60000,"allowed":true,"source":"store","limit":100,` +
		`"remaining":2,"retry_after_ms":0,"reset_after_ms":60000,"limits":[` +
		`{"name":"tokens","window_ms":60000,"allowed":true,"source":"store","limit":100,` +
		`"remaining":2,"retry_after_ms":0,"reset_after_ms":60000},` +
		`{"name":"requests","window_ms":60000,"allowed":true,"source":"store","limit":3,` +
		`"remaining":2,"retry_after_ms":0,"reset_after_ms":60000}]}` + "\n"
	if body != want {
		t.Errorf("got  %s\nwant %s", body, want)
	}
}

// TestRefusal: problem details name each limit that refuses, and no other.
func TestRefusal(t *testing.T) {
	s := newScene(t)
	s.play([]step{
		{"/v1/take-all", of("requests 2, tokens 90"), 200, "", "", 0},
		{"/v1/acquire", one("calls", ""), 200, "", "", 0},
		{"/v1/block", one("blocked", `"for_ms":90500`), 200, "", "", 29500 * time.Millisecond},
	})
	for _, path := range []string{"/v1/take-all", "/v1/reserve"} {
		r := request(http.MethodPost, path, of("requests, tokens 11, blocked"))
		header, p := checkProblem(t, s.api, r, http.StatusTooManyRequests)
		if got := header.Get("Retry-After"); got != "91" {
			t.Errorf("Retry-After %q", got)
		}
		got, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		want := `{"detail":"Nothing was recorded.","refused":[` +
			`{"allowed":false,"claim":1,"limit":100,"name":"tokens","remaining":10,` +
			`"reset_after_ms":30500,"retry_after_ms":30500,"source":"store","window_ms":60000},` +
			`{"allowed":false,"claim":2,"limit":3600000,"name":"blocked","remaining":0,` +
			`"reset_after_ms":90500,"retry_after_ms":90500,"source":"store",` +
			`"window_ms":3600000}],` +
			`"retry_after_ms":90500,"status":429,"title":"Quota Exceeded",` +
			`"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
			`"violated-policies":["tokens","blocked"]}`
		if string(got) != want {
			t.Errorf("%s:\ngot  %s\nwant %s", path, got, want)
		}
	}
}

func TestReserveAndSettle(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"less", []step{
			{"/v1/commit", `{"token":"$1","actual":[1,20,0,0]}`, 204, "",
				"requests=2 tokens=80 calls=2", 0}}},
		{"more", []step{
			{"/v1/commit", `{"token":"$1","actual":[1,130,9,0]}`, 204, "",
				"requests=2 tokens=0 calls=2", 0},
			{"/v1/take-all", of("tokens"), 429, "quota-exceeded", "", 0}}},
		{"as reserved", []step{
			{"/v1/commit", `{"token":"$1"}`, 204, "", "requests=2 tokens=40 calls=2", 0}}},
		{"nothing", []step{
			{"/v1/cancel", `{"token":"$1"}`, 204, "", "requests=3 tokens=100 calls=2", 0}}},
		{"late", []step{
			{"/v1/commit", `{"token":"$1","actual":[1,70,0,0]}`, 204, "",
				"requests=2 tokens=30 calls=2", 10 * time.Minute}}},
		{"never", []step{
			{"/v1/peek-all", of("tokens"), 200, "", "tokens=40 calls=1", time.Minute},
			{"/v1/peek-all", of("tokens"), 200, "", "requests=3 tokens=100 calls=1",
				8 * time.Second},
			{"/v1/peek-all", of("tokens"), 200, "", "calls=2", 10 * time.Minute}}},
		{"twice", []step{
			{"/v1/commit", `{"token":"$1","actual":[1,20,0,0]}`, 204, "", "requests=2 tokens=80",
				0},
			{"/v1/commit", `{"token":"$1","actual":[1,20,0,0]}`, 409, "already-settled",
				"tokens=80", 0},
			{"/v1/cancel", `{"token":"$1"}`, 204, "", "tokens=80 requests=2", 0},
			{"/v1/extend", `{"token":"$1","n":[0,1,0,0]}`, 409, "already-settled", "tokens=80", 0},
			{"/v1/commit", `{"token":"$1"}`, 409, "already-settled", "tokens=100",
				10*time.Minute - time.Second}}},
		{"after a day", []step{
			{"/v1/commit", `{"token":"$1"}`, 409, "already-settled", "tokens=100",
				25 * time.Hour}}},
		{"after a reset", []step{
			{"/v1/reset", `{"key":"secret-key"}`, 204, "", "tokens=100", 0},
			{"/v1/commit", `{"token":"$1"}`, 409, "already-settled", "tokens=100", 0}}},
		{"canceled, then committed", []step{
			{"/v1/cancel", `{"token":"$1"}`, 204, "", "tokens=100", 0},
			{"/v1/commit", `{"token":"$1"}`, 409, "already-settled", "requests=3 tokens=100", 0}}},
		{"two of one instant", []step{
			{"/v1/reserve", of("tokens 10"), 200, "", "tokens=30", 0},
			{"/v1/reserve", of("tokens 10"), 200, "", "tokens=20", 0},
			{"/v1/commit", `{"token":"$2","actual":[4]}`, 204, "", "tokens=26", 0},
			{"/v1/commit", `{"token":"$3","actual":[4]}`, 204, "", "tokens=32", 0}}},
		{"extended", []step{
			{"/v1/extend", `{"token":"$1","n":[0,30,0,0]}`, 200, "", "tokens=10", time.Second},
			{"/v1/extend", `{"token":"$2","n":[0,11,0,0]}`, 422, "ErrExceedsLimit", "tokens=10", 0},
			{"/v1/extend", `{"token":"$2","n":[0,10,1,0]}`, 422, "wrong-kind", "tokens=10", 0},
			{"/v1/take-all", of("tokens"), 200, "", "tokens=9", 0},
			{"/v1/extend", `{"token":"$2","n":[0,10,0,0]}`, 429, "quota-exceeded", "tokens=9", 0},
			{"/v1/extend", `{"token":"$2","n":[1,9,0,0]}`, 200, "", "requests=1 tokens=0 calls=1",
				time.Second},
			{"/v1/commit", `{"token":"$3","actual":[1,55,0,0]}`, 204, "",
				"requests=2 tokens=44 calls=2", 0},
			{"/v1/commit", `{"token":"$1"}`, 409, "already-settled", "tokens=44", 0},
			{"/v1/cancel", `{"token":"$3"}`, 204, "", "tokens=44", 0}}},
		{"kept by extensions", []step{
			{"/v1/extend", `{"token":"$1","n":[0,1,0,0]}`, 200, "", "tokens=39", 50 * time.Second},
			{"/v1/extend", `{"token":"$2","n":[0,1,0,0]}`, 200, "", "tokens=38", 50 * time.Second},
			{"/v1/commit", `{"token":"$3"}`, 204, "", "tokens=38", 0}}},
		{"extended by nothing", []step{
			{"/v1/extend", `{"token":"$1","n":[0,0,0,0]}`, 400, "invalid-request", "tokens=40",
				0}}},
		{"refused", []step{
			{"/v1/reserve", of("requests, tokens 41"), 429, "quota-exceeded",
				"requests=2 tokens=40", 0},
			{"/v1/reserve", of("calls 2"), 429, "quota-exceeded", "calls=1", 0}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(t)
			s.play(append([]step{{"/v1/reserve", of("requests, tokens 60, calls, blocked"),
				200, "", "requests=2 tokens=40 calls=1", 0}}, tt.steps...))
		})
	}
}

// TestSettledOnce: of many requests that settle one token at once, one does.
func TestSettledOnce(t *testing.T) {
	s := newScene(t)
	s.play([]step{
		{"/v1/reserve", of("tokens 60"), 200, "", "", 0},
		{"/v1/take-all", of("tokens 40"), 200, "", "tokens=0", 0}, // the record of the same instant
	})
	body := fmt.Sprintf(`{"token":%q,"actual":[50]}`, s.tokens[0])
	var statuses [600]atomic.Int64
	var wg sync.WaitGroup
	const requests = 40
	for range requests {
		wg.Go(func() {
			status, _, _ := call(t, s.api, request(http.MethodPost, "/v1/commit", body))
			statuses[status].Add(1)
		})
	}
	wg.Wait()
	if done, late := statuses[204].Load(), statuses[409].Load(); done != 1 || late != requests-1 {
		t.Errorf("%d settled and %d were late", done, late)
	}
	s.checkLeft("tokens=10")
}

func TestForce(t *testing.T) {
	s := newScene(t)
	s.play([]step{
		{"/v1/force", one("tokens", `"n":90`), 200, "", "tokens=10", 0},
		{"/v1/force", one("tokens", `"n":250`), 200, "", "tokens=0", 0},
		{"/v1/peek-all", of("tokens"), 200, "", "tokens=100", time.Minute},
	})
	_, _, body := call(t, s.api, request(http.MethodPost, "/v1/force", one("tokens", `"n":1`)))
	if want := `{"name":"tokens","window_ms":60000,"allowed":true,"source":"store","limit":100,` +
		`"remaining":99,"retry_after_ms":0,"reset_after_ms":60000}` + "\n"; body != want {
		t.Errorf("got  %s\nwant %s", body, want)
	}
}

func TestBlock(t *testing.T) {
	s := newScene(t)
	s.play([]step{
		{"/v1/take-all", of("requests, blocked"), 200, "", "requests=2", 0},
		{"/v1/block", one("blocked", `"for_ms":5000`), 200, "", "", 0},
		{"/v1/take-all", of("requests, blocked"), 429, "quota-exceeded", "requests=2", 0},
		{"/v1/reserve", of("requests, blocked 0"), 429, "quota-exceeded", "requests=2",
			4999 * time.Millisecond},
		{"/v1/take-all", of("requests, blocked"), 200, "", "requests=1", time.Millisecond},
		{"/v1/block", one("blocked", `"for_ms":3600000`), 200, "", "", 0},
		{"/v1/unblock", one("blocked", ""), 204, "", "", 0},
		{"/v1/unblock", one("blocked", ""), 204, "", "", 0},
		{"/v1/take-all", of("requests, blocked"), 200, "", "requests=0", 0},
	})
	for _, tt := range []struct{ ms, left int64 }{{5000, 5000}, {1, 5000}, {7000, 7000}} {
		body := one("blocked", fmt.Sprintf(`"for_ms":%d`, tt.ms))
		_, _, answer := call(t, s.api, request(http.MethodPost, "/v1/block", body))
		want := fmt.Sprintf(`{"name":"blocked","source":"store","reset_after_ms":%d}`+"\n", tt.left)
		if answer != want {
			t.Errorf("block for %d ms: %s, want %s", tt.ms, answer, want)
		}
	}
}

func TestAcquireAndRelease(t *testing.T) {
	newScene(t).play([]step{
		{"/v1/acquire", one("calls", ""), 200, "", "calls=1", 0},
		{"/v1/acquire", one("calls", `"wait_ms":0`), 200, "", "calls=0", time.Second},
		{"/v1/acquire", one("calls", ""), 429, "quota-exceeded", "calls=0", 0},
		{"/v1/release", `{"token":"$1"}`, 204, "", "calls=1", 0},
		{"/v1/release", `{"token":"$1"}`, 204, "", "calls=1", 0}, // it does nothing
		{"/v1/acquire", one("calls", ""), 200, "", "calls=0", 0},
		{"/v1/cancel", `{"token":"$3"}`, 204, "", "calls=1", 0},
		{"/v1/peek-all", of("calls"), 200, "", "calls=2", 12 * time.Minute}, // $2 has ended
		{"/v1/reserve", of("calls 2"), 200, "", "calls=0", 0},
		{"/v1/release", `{"token":"$4"}`, 204, "", "calls=2", 0},
	})
}

// TestNothingHeld: a reservation of no units has no token.
func TestNothingHeld(t *testing.T) {
	s := newScene(t)
	s.play([]step{
		{"/v1/reserve", of("tokens 0, blocked"), 200, "", "tokens=100", 0},
		{"/v1/reserve", of("tokens 0, calls"), 200, "", "calls=1", 0},
		{"/v1/commit", `{"token":"$1","actual":[5,0]}`, 400, "invalid-request", "calls=1", 0},
		{"/v1/commit", `{"token":"$1","actual":[0,0]}`, 204, "", "tokens=100 calls=2", 0},
	})
	if len(s.tokens) != 1 {
		t.Errorf("%d tokens, want that of the call in flight", len(s.tokens))
	}
}
