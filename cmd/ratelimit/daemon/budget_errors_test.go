package daemon

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

// checkTyped is checkProblem with what the problem's type ends with.
func checkTyped(t *testing.T, h http.Handler, r *http.Request, status int, typ string) {
	t.Helper()
	_, p := checkProblem(t, h, r, status)
	got, _ := p["type"].(string)
	if _, after, _ := strings.Cut(got, "#"); after != typ {
		t.Errorf("type %q, want %q: %v", got, typ, p)
	}
}

// goodBodies has a valid request for each path, except for its token.
func goodBodies(token string) map[string]string {
	return map[string]string{
		"/v1/take-all": of("tokens"),
		"/v1/peek-all": of("tokens"),
		"/v1/reserve":  of("tokens"),
		"/v1/extend":   `{"token":"` + token + `","n":[1]}`,
		"/v1/commit":   `{"token":"` + token + `","actual":[1]}`,
		"/v1/cancel":   `{"token":"` + token + `"}`,
		"/v1/acquire":  one("calls", ""),
		"/v1/release":  `{"token":"` + token + `"}`,
		"/v1/force":    one("tokens", `"n":1`),
		"/v1/block":    one("blocked", `"for_ms":1`),
		"/v1/unblock":  one("blocked", ""),
	}
}

// TestBudgetForms: the form of each request is checked before the store is called.
func TestBudgetForms(t *testing.T) {
	h := budgetAPI(t, budgetFlags(), asked{t})
	bodies := goodBodies("token")
	if len(bodies) != len(budgetPaths) {
		t.Fatalf("%d bodies for %d paths", len(bodies), len(budgetPaths))
	}
	long := strings.Repeat("k", maxBody)
	for path, good := range bodies {
		for _, tt := range []struct {
			name, method, contentType, body string
			status                          int
			typ                             string
		}{
			{"GET", "GET", "", ``, 405, ""},
			{"PUT", "PUT", "application/json", good, 405, ""},
			{"form", "POST", "application/x-www-form-urlencoded", good, 415, "invalid-request"},
			{"no content type", "POST", "", good, 415, "invalid-request"},
			{"bad content type", "POST", "application/json; =", good, 415, "invalid-request"},
			{"large", "POST", "application/json", `{"token":"` + long + `"}`, 413,
				"invalid-request"},
			{"empty", "POST", "application/json", ``, 400, "invalid-request"},
			{"no JSON", "POST", "application/json", `secret-key`, 400, "invalid-request"},
			{"list", "POST", "application/json", `[` + good + `]`, 400, "invalid-request"},
			{"null", "POST", "application/json", `null`, 400, "invalid-request"},
			{"no field", "POST", "application/json", `{}`, 400, "invalid-request"},
			{"cut off", "POST", "application/json", good[:len(good)-1], 400, "invalid-request"},
			{"trailing", "POST", "application/json", good + `{}`, 400, "invalid-request"},
			{"unknown field", "POST", "application/json", `{"secret-key":1,` + good[1:], 400,
				"invalid-request"},
			{"field twice", "POST", "application/json", good[:len(good)-1] + `,` + good[1:], 400,
				"invalid-request"},
			{"comma at the end", "POST", "application/json", good[:len(good)-1] + `,}`, 400,
				"invalid-request"},
		} {
			t.Run(path+" "+tt.name, func(t *testing.T) {
				r := request(tt.method, path, tt.body)
				r.Header.Set("Content-Type", tt.contentType)
				checkTyped(t, h, r, tt.status, tt.typ)
			})
		}
	}
}

// asked is a store that must not be called.
type asked struct{ t *testing.T }

func (a asked) Take(context.Context, driver.Demand) (ratelimit.Result, error) {
	a.t.Error("the store is asked")
	return ratelimit.Result{}, ratelimit.ErrUnavailable
}

func (a asked) TakeAll(context.Context, []driver.Demand, []ratelimit.Result) error {
	a.t.Error("the store is asked")
	return ratelimit.ErrUnavailable
}

// reserveToken returns the token of a reservation of claims, written as for of.
func reserveToken(t *testing.T, claims string) string {
	t.Helper()
	s := newScene(t)
	if status, _, answer := s.post("/v1/reserve", of(claims)); status != http.StatusOK {
		t.Fatal(answer)
	}
	return s.tokens[0]
}

// TestBudgetValues: values that no store could decide are refused before the store is called.
func TestBudgetValues(t *testing.T) {
	h := budgetAPI(t, budgetFlags(), asked{t})
	token := reserveToken(t, "tokens 5, blocked")
	claim := func(fields string) string { return `{"claims":[{` + fields + `}]}` }
	settle := func(fields string) string { return `{"token":"` + token + `"` + fields + `}` }
	var many []string
	for range maxClaims + 1 {
		many = append(many, "tokens")
	}
	most := driver.MaxUnits
	for _, tt := range []struct {
		name, path, body string
		status           int
		typ              string
	}{
		{"no claim", "/v1/take-all", `{"claims":[]}`, 400, "invalid-request"},
		{"claims are an object", "/v1/take-all", `{"claims":{}}`, 400, "invalid-request"},
		{"claims are null", "/v1/take-all", `{"claims":null}`, 400, "invalid-request"},
		{"claims are not closed", "/v1/take-all", `{"claims":[}`, 400, "invalid-request"},
		{"a claim is null", "/v1/take-all", `{"claims":[null]}`, 400, "invalid-request"},
		{"a claim is a list", "/v1/take-all", `{"claims":[[]]}`, 400, "invalid-request"},
		{"too many claims", "/v1/take-all", of(strings.Join(many, ", ")), 400, "invalid-request"},
		{"no limit", "/v1/reserve", claim(`"key":"secret-key"`), 400, "invalid-request"},
		{"limit is null", "/v1/reserve", claim(`"key":"secret-key","limit":null`), 400,
			"invalid-request"},
		{"no key", "/v1/reserve", claim(`"limit":"tokens"`), 400, "invalid-request"},
		{"empty key", "/v1/reserve", claim(`"limit":"tokens","key":""`), 400, "invalid-request"},
		{"key is no text", "/v1/reserve", claim(`"limit":"tokens","key":"` + "\xff" + `"`), 400,
			"invalid-request"},
		{"long key", "/v1/reserve",
			claim(`"limit":"tokens","key":"` + strings.Repeat("k", maxKey+1) + `"`),
			400, "invalid-request"},
		{"unknown field of a claim", "/v1/reserve", claim(`"limit":"tokens","key":"k","N":1`), 400,
			"invalid-request"},
		{"field of a claim twice", "/v1/reserve", claim(`"limit":"tokens","key":"k","key":"l"`),
			400, "invalid-request"},
		{"n is a fraction", "/v1/peek-all", of("tokens 1.5"), 400, "invalid-request"},
		{"n is text", "/v1/peek-all", of(`tokens "1"`), 400, "invalid-request"},
		{"n is null", "/v1/peek-all", of(`tokens null`), 400, "invalid-request"},
		{"n is negative", "/v1/peek-all", of("tokens -1"), 400, "invalid-request"},
		{"n is not JSON", "/v1/peek-all", of("tokens 01"), 400, "invalid-request"},
		{"n exceeds the limit", "/v1/peek-all", of("requests, tokens 101"), 422, "ErrExceedsLimit"},
		{"n exceeds the calls", "/v1/reserve", of("calls 3"), 422, "ErrExceedsLimit"},
		{"n of a block", "/v1/reserve", of("blocked 1"), 422, "wrong-kind"},
		{"unknown limit", "/v1/reserve", of("secret-key"), 422, "ErrUnknownLimit"},
		{"one budget twice", "/v1/reserve", of("tokens, tokens"), 422, "ErrInvalid"},
		{"calls without a token", "/v1/take-all", of("calls"), 422, "wrong-kind"},

		{"force of nothing", "/v1/force", one("tokens", `"n":0`), 400, "invalid-request"},
		{"force without n", "/v1/force", one("tokens", ``), 400, "invalid-request"},
		{"force of too much", "/v1/force", one("tokens", fmt.Sprintf(`"n":%d`, most+1)), 400,
			"invalid-request"},
		{"force of calls", "/v1/force", one("calls", `"n":1`), 422, "wrong-kind"},
		{"force of a block", "/v1/force", one("blocked", `"n":1`), 422, "wrong-kind"},
		{"force of an unknown limit", "/v1/force", one("x", `"n":1`), 422, "ErrUnknownLimit"},
		{"block for no time", "/v1/block", one("blocked", `"for_ms":0`), 400, "invalid-request"},
		{"block without a time", "/v1/block", one("blocked", ``), 400, "invalid-request"},
		{"block for too long", "/v1/block", one("blocked", `"for_ms":3600001`), 422,
			"ErrExceedsLimit"},
		{"block of a rate", "/v1/block", one("tokens", `"for_ms":1`), 422, "wrong-kind"},
		{"unblock of a rate", "/v1/unblock", one("tokens", ``), 422, "wrong-kind"},
		{"acquire of a rate", "/v1/acquire", one("tokens", ``), 422, "wrong-kind"},
		{"acquire of nothing known", "/v1/acquire", one("x", ``), 422, "ErrUnknownLimit"},
		{"wait is negative", "/v1/acquire", one("calls", `"wait_ms":-1`), 400, "invalid-request"},
		{"wait is too long", "/v1/acquire", one("calls", fmt.Sprintf(`"wait_ms":%d`, maxWait+1)),
			400, "invalid-request"},

		{"token is null", "/v1/cancel", `{"token":null}`, 400, "invalid-request"},
		{"token is a number", "/v1/cancel", `{"token":1}`, 400, "invalid-request"},
		{"actual is null", "/v1/commit", settle(`,"actual":null`), 400, "invalid-request"},
		{"actual is empty", "/v1/commit", settle(`,"actual":[]`), 400, "invalid-request"},
		{"actual of one claim", "/v1/commit", settle(`,"actual":[1]`), 400, "invalid-request"},
		{"actual of three claims", "/v1/commit", settle(`,"actual":[1,0,0]`), 400,
			"invalid-request"},
		{"actual is negative", "/v1/commit", settle(`,"actual":[-1,0]`), 400, "invalid-request"},
		{"an actual is null", "/v1/commit", settle(`,"actual":[null,0]`), 400, "invalid-request"},
		{"an actual is a list", "/v1/commit", settle(`,"actual":[[],0]`), 400, "invalid-request"},
		{"actual is too much", "/v1/commit", settle(fmt.Sprintf(`,"actual":[%d,0]`, most+1)), 400,
			"invalid-request"},
		{"actual of a block", "/v1/commit", settle(`,"actual":[5,1]`), 422, "wrong-kind"},
		{"extend without n", "/v1/extend", settle(``), 400, "invalid-request"},
		{"extend of one claim", "/v1/extend", settle(`,"n":[1]`), 400, "invalid-request"},
		{"extend of a block", "/v1/extend", settle(`,"n":[0,1]`), 422, "wrong-kind"},
		{"extend beyond the limit", "/v1/extend", settle(`,"n":[101,0]`), 422, "ErrExceedsLimit"},
		{"release of a reservation", "/v1/release", settle(``), 422, "wrong-kind"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkTyped(t, h, request(http.MethodPost, tt.path, tt.body), tt.status, tt.typ)
		})
	}
}

// TestTokens: a text that is not a token of this daemon's limits is refused before the store is
// called.
func TestTokens(t *testing.T) {
	h := budgetAPI(t, budgetFlags(), asked{t})
	good := reserveToken(t, "tokens")
	_, rest, _ := strings.Cut(good, ".")
	claimOf := func(limit, more string) string {
		return base64.RawURLEncoding.EncodeToString(
			[]byte(`{"v":2,"i":7,"c":[{"k":"aw==","l":["` + limit + `"],"a":["log3h"],"n":1}]}` +
				more))
	}
	for _, tt := range []struct{ name, token, typ string }{
		{"empty", "", "ErrInvalidToken"},
		{"garbage", "secret-key", "ErrInvalidToken"},
		{"only the claims", "h", "ErrInvalidToken"},
		{"nothing after the claims", "h.", "ErrInvalidToken"},
		{"without the claims", rest, "ErrInvalidToken"},
		{"no claim", "." + rest, "ErrInvalidToken"},
		{"another claim", "-." + rest, "ErrInvalidToken"},
		{"a claim too many", "hh." + rest, "ErrInvalidToken"},
		{"too many claims", "h" + strings.Repeat("-", maxClaims) + "." + rest, "ErrInvalidToken"},
		{"unknown form", "r." + rest, "ErrInvalidToken"},
		{"cut", good[:len(good)-5], "ErrInvalidToken"},
		{"line end", good + `\n`, "ErrInvalidToken"},
		{"too long", "h." + claimOf("tokens", strings.Repeat(" ", maxToken*3/4)),
			"ErrInvalidToken"},
		{"unknown limit", "h." + claimOf("elsewhere", ""), "ErrUnknownLimit"},
	} {
		for _, path := range []string{"/v1/extend", "/v1/commit", "/v1/cancel", "/v1/release"} {
			t.Run(tt.name+path, func(t *testing.T) {
				r := request(http.MethodPost, path, goodBodies(tt.token)[path])
				checkTyped(t, h, r, 422, tt.typ)
			})
		}
	}
}

// TestNoBudgets: an API without named limits refuses every name.
func TestNoBudgets(t *testing.T) {
	h := newAPI(testLimiter(t, asked{t}, ratelimit.PerMinute("tokens", 1)), discard)
	for path, body := range goodBodies(reserveToken(t, "tokens")) {
		checkTyped(t, h, request(http.MethodPost, path, body), 422, "ErrUnknownLimit")
	}
}

// TestTokenBounds: the largest reservation has a token that can be extended and settled.
func TestTokenBounds(t *testing.T) {
	c := &serveCmd{}
	var claims []string
	key := strings.Repeat("k", maxKey)
	for i := range maxClaims {
		name := fmt.Sprintf("%064d", i)
		c.Limit = append(c.Limit, ratelimit.PerDay(name, driver.MaxUnits))
		claims = append(claims, fmt.Sprintf(`{"limit":%q,"key":%q,"n":%d}`, name, key,
			driver.MaxUnits/1000))
	}
	store, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	s := &scene{T: t, api: budgetAPI(t, c, store), store: store}
	n := strings.TrimSuffix(strings.Repeat("1099511627,", maxClaims), ",")
	for _, r := range []struct {
		path, body string
		status     int
	}{
		{"/v1/reserve", `{"claims":[` + strings.Join(claims, ",") + `]}`, 200},
		{"/v1/extend", `{"token":"$1","n":[` + n + `]}`, 200},
		{"/v1/commit", `{"token":"$2"}`, 204},
	} {
		if status, _, answer := s.post(r.path, r.body); status != r.status {
			t.Fatalf("%s: %d %v", r.path, status, answer)
		}
	}
	if got := len(s.tokens[1]); got > maxToken || got < maxToken/2 {
		t.Errorf("the largest token has %d bytes, and maxToken is %d", got, maxToken)
	}
}

// TestBudgetUndecided: each failure of a store has a type of its own, and answers to settlements
// say whether the request may be sent again.
func TestBudgetUndecided(t *testing.T) {
	token := reserveToken(t, "tokens")
	leases := newScene(t)
	leases.post("/v1/acquire", one("calls", ""))
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
		{ratelimit.ErrQueueFull, 503, "ErrQueueFull"},
		{driver.ErrNoScript, 500, ""},
		{fmt.Errorf("several slots: %w", errors.ErrUnsupported), 422, "claims-not-together"},
		{errors.New(secret), 500, ""},
	} {
		h := budgetAPI(t, budgetFlags(), broken{tt.err})
		for path, body := range goodBodies(token) {
			if path == "/v1/release" {
				body = goodBodies(leases.tokens[0])[path]
			}
			t.Run(tt.err.Error()+path, func(t *testing.T) {
				checkTyped(t, h, request(http.MethodPost, path, body), tt.status, tt.typ)
			})
		}
	}
}

// faltering is a store that fails with the next of its errors, if that is not nil.
type faltering struct {
	ratelimit.Store
	errs     []error
	recorded bool // whether a Take that fails is recorded all the same
}

func (f *faltering) next() error {
	if len(f.errs) == 0 {
		return nil
	}
	err := f.errs[0]
	f.errs = f.errs[1:]
	return err
}

func (f *faltering) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	if err := f.next(); err != nil {
		if f.recorded {
			_, _ = f.Store.Take(ctx, d)
		}
		return ratelimit.Result{}, err
	}
	return f.Store.Take(ctx, d)
}

func (f *faltering) TakeAll(
	ctx context.Context, ds []driver.Demand, out []ratelimit.Result,
) error {
	if err := f.next(); err != nil {
		return err
	}
	return f.Store.TakeAll(ctx, ds, out)
}

// TestSettlementFails: a settlement that failed can be sent again, and settles nothing twice.
func TestSettlementFails(t *testing.T) {
	for _, tt := range []struct {
		name     string
		recorded bool
		err      error
		typ      string
		again    int // the status of the same request after it
	}{
		{"unavailable", false, ratelimit.ErrUnavailable, "ErrUnavailable", 204},
		{"unknown, not recorded", false, ratelimit.ErrOutcomeUnknown, "ErrOutcomeUnknown", 204},
		{"unknown, recorded", true, ratelimit.ErrOutcomeUnknown, "ErrOutcomeUnknown", 409},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(t)
			store := &faltering{Store: s.store}
			s.api = budgetAPI(t, budgetFlags(), store)
			const body = `{"token":"$1","actual":[10]}`
			s.play([]step{{"/v1/reserve", of("tokens 60"), 200, "", "tokens=40", 0}})
			store.errs, store.recorded = []error{tt.err}, tt.recorded
			s.play([]step{{"/v1/commit", body, 503, tt.typ, "", 0}})
			if status, _, answer := s.post("/v1/commit", body); status != tt.again {
				t.Errorf("again: %d %v, want %d", status, answer, tt.again)
			}
			s.checkLeft("tokens=90")
		})
	}
}

// leaving is a store during whose decisions the client disconnects or closes its half of the
// connection.
type leaving struct {
	ratelimit.Store
	leave context.CancelFunc
}

func (s *leaving) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	s.leave()
	if ctx.Err() != nil {
		return ratelimit.Result{}, fmt.Errorf("%w: %w", ratelimit.ErrUnavailable, ctx.Err())
	}
	return s.Store.Take(ctx, d)
}

// TestEndedContextIsAnswered: a request whose context ends before or during its decision gets the
// same answer as any other. net/http ends it also for a client that still reads.
func TestEndedContextIsAnswered(t *testing.T) {
	for _, when := range []string{"before", "during"} {
		for path, want := range map[string]int{
			"/v1/take": 200, "/v1/peek": 200, "/v1/reset": 204, "/v1/take-all": 200,
			"/v1/peek-all": 200, "/v1/reserve": 200, "/v1/extend": 200, "/v1/commit": 204,
			"/v1/cancel": 204, "/v1/acquire": 200, "/v1/release": 204, "/v1/force": 200,
			"/v1/block": 200, "/v1/unblock": 204,
		} {
			s := newScene(t)
			if path == "/v1/release" {
				s.post("/v1/reserve", of("calls"))
			} else {
				s.post("/v1/reserve", of("tokens"))
			}
			body, named := goodBodies(s.tokens[0])[path]
			switch {
			case !named:
				body = `{"key":"k"}`
			case path == "/v1/acquire":
				body = one("calls", `"wait_ms":500`)
			case path == "/v1/commit":
				body = `{"token":"` + s.tokens[0] + `"}`
			}
			ctx, cancel := context.WithCancel(t.Context())
			store := &leaving{Store: s.store, leave: cancel}
			s.api = budgetAPI(t, budgetFlags(), store)
			if when == "before" {
				cancel()
			}
			status, _, answer := call(t, s.api,
				request(http.MethodPost, path, body).WithContext(ctx))
			if status != want || want == 200 && len(answer) == 0 {
				t.Errorf("%s, ended %s the decision: %d %s", path, when, status, answer)
			}
			cancel()
		}
	}
}

// TestAcquireStopsWaiting: a request does not wait for a client that may have disconnected.
func TestAcquireStopsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		s := &scene{T: t, api: budgetAPI(t, budgetFlags(), store), store: store}
		s.post("/v1/acquire", one("calls", ""))
		s.post("/v1/acquire", one("calls", ""))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		checkTyped(t, s.api, request(http.MethodPost, "/v1/acquire",
			one("calls", `"wait_ms":5000`)).WithContext(ctx), 429, "quota-exceeded")
		if took := time.Since(began); took != time.Second {
			t.Errorf("it waited for %v", took)
		}
	})
}

// TestAcquireWaits: a request waits for a release, and no longer than its wait_ms.
func TestAcquireWaits(t *testing.T) {
	for _, tt := range []struct {
		name     string
		released time.Duration // 0 is never
		wait     int64
		status   int
		took     time.Duration
		retry    string // Retry-After
	}{
		{"released", 2 * time.Second, maxWait, 200, 2 * time.Second, ""},
		{"too late", 0, 3000, 429, 3 * time.Second, "615"},
		{"no wait", time.Second, 0, 429, 0, "618"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, err := memorystore.New(nil)
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close()
				s := &scene{T: t, api: budgetAPI(t, budgetFlags(), store), store: store}
				s.post("/v1/acquire", one("calls", ""))
				s.post("/v1/acquire", one("calls", ""))
				if tt.released > 0 {
					body := `{"token":"` + s.tokens[0] + `"}`
					go func() {
						time.Sleep(tt.released)
						if status, _, _ := call(t, s.api,
							request(http.MethodPost, "/v1/release", body)); status != 204 {
							t.Errorf("release: %d", status)
						}
					}()
				}
				began := time.Now()
				status, header, answer := s.post("/v1/acquire",
					one("calls", fmt.Sprintf(`"wait_ms":%d`, tt.wait)))
				if took := time.Since(began); status != tt.status || took != tt.took {
					t.Errorf("%d after %v: %v", status, took, answer)
				}
				if got := header.Get("Retry-After"); got != tt.retry {
					t.Errorf("Retry-After %q", got)
				}
				time.Sleep(5 * time.Second) // until all goroutines have ended
			})
		})
	}
}

// slow is a store that takes a second to answer, and fails with err if the context ends before.
type slow struct {
	ratelimit.Store
	err error // of every call, if it is not nil
}

func (s slow) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return ratelimit.Result{}, ratelimit.ErrOutcomeUnknown
	}
	if s.err != nil {
		return ratelimit.Result{}, s.err
	}
	return s.Store.Take(ctx, d)
}

// TestAcquireWaitsForTheStore: if wait_ms ends during a call of the store, an admission by that
// call is returned, and an unknown outcome is an error. After a refusal or another error, the store
// is called once more.
func TestAcquireWaitsForTheStore(t *testing.T) {
	for _, tt := range []struct {
		held   int64
		err    error
		status int
		typ    string
		took   time.Duration
		left   string
	}{
		{1, nil, 200, "", 2 * time.Second, "calls=0"}, // the token holds it again
		{2, nil, 429, "quota-exceeded", 2 * time.Second, "calls=0"},
		{0, ratelimit.ErrOutcomeUnknown, 503, "ErrOutcomeUnknown", time.Second, "calls=2"},
		{0, ratelimit.ErrUnavailable, 503, "ErrUnavailable", 2 * time.Second, "calls=2"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			direct := s.api
			if tt.held > 0 {
				s.post("/v1/reserve", of(fmt.Sprint("calls ", tt.held)))
			}
			store := slow{s.store, tt.err}
			s.api = budgetAPI(t, budgetFlags(), store)
			began := time.Now()
			s.play([]step{{"/v1/acquire", one("calls", `"wait_ms":500`), tt.status, tt.typ, "", 0}})
			if took := time.Since(began); took != tt.took {
				t.Errorf("%d held, %v: it took %v, want %v", tt.held, tt.err, took, tt.took)
			}
			s.api = direct
			s.checkLeft(tt.left)
		})
	}
}

// TestBudgetPolicies: a policy applies to takes, and not to settlements and blocks. What it admits
// is not held, so there is no token.
func TestBudgetPolicies(t *testing.T) {
	c := budgetFlags()
	c.OnFailure = failOpen
	s := newScene(t)
	store := &faltering{Store: s.store}
	s.api = budgetAPI(t, c, store)
	s.play([]step{{"/v1/reserve", of("tokens 70, blocked"), 200, "", "", 0}})
	store.errs = slices.Repeat([]error{ratelimit.ErrUnavailable}, 100)
	s.play([]step{
		{"/v1/take-all", of("requests 3, tokens"), 200, "", "", 0},
		{"/v1/reserve", of("tokens 30, blocked"), 200, "", "", 0},
		{"/v1/acquire", one("calls", `"wait_ms":10`), 200, "", "", 0},
		{"/v1/extend", `{"token":"$1","n":[5,0]}`, 503, "ErrUnavailable", "", 0},
		{"/v1/commit", `{"token":"$1"}`, 503, "ErrUnavailable", "", 0},
		{"/v1/block", one("blocked", `"for_ms":1`), 503, "ErrUnavailable", "", 0},
		{"/v1/unblock", one("blocked", ``), 503, "ErrUnavailable", "", 0},
	})
	store.errs = nil
	if len(s.tokens) != 1 {
		t.Errorf("%d tokens, want that of the store", len(s.tokens))
	}
	s.play([]step{
		{"/v1/commit", `{"token":"$1","actual":[30,0]}`, 204, "",
			"tokens=70 requests=3 calls=2", 0},
	})
}

// TestBudgetsLocally: local decisions apply to takes, to settlements of what was reserved locally
// and to blocks, not to unblocks.
func TestBudgetsLocally(t *testing.T) {
	url, _, _ := start(t, "--store=redis://"+unusedAddr(t), "--on-failure=local",
		"--instances=2", "--limit=tokens=100/1h", "--in-flight=calls=4/1h", "--block=blocked=1h")
	status, body := post(t, url+"/v1/reserve", of("tokens 30, calls, blocked"))
	var answer struct{ Token, Source string }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK ||
		answer.Source != "local" {
		t.Fatalf("%d %s", status, body)
	}
	token := `{"token":"` + answer.Token + `"}`
	for _, step := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/take-all", of("tokens 21"), 429, `"source":"local","limit":50,"remaining":20,`},
		{"/v1/extend", strings.TrimSuffix(token, "}") + `,"n":[20,0,0]}`, 200, `"remaining":0,`},
		{"/v1/commit", strings.TrimSuffix(token, "}") + `,"actual":[10,0,0]}`, 204, ""},
		{"/v1/commit", token, 503, "Nothing was settled"},
		{"/v1/take-all", of("tokens 41"), 429, `"source":"local","limit":50,"remaining":40,`},
		{"/v1/block", one("blocked", `"for_ms":1800000`), 200,
			`{"name":"blocked","source":"local","reset_after_ms":1800000}`},
		{"/v1/unblock", one("blocked", ""), 503, "#ErrUnavailable"},
		{"/v1/take-all", of("tokens, blocked"), 429, `"violated-policies":["blocked"]`},
	} {
		if status, body := post(t, url+step.path, step.body); status != step.status ||
			!strings.Contains(body, step.want) {
			t.Errorf("%s: %d %s", step.path, status, body)
		}
	}
}

// TestBudgetFlags: errors in the flags of named limits.
func TestBudgetFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--limit=a=1/1m", "--in-flight=a=1/1m"}, exitError, `"a" is taken`},
		{[]string{"--limit=10/1m", "--in-flight=5/1m"}, exitError, `"1m0s" is taken`},
		{[]string{"--in-flight=a=1/1m,a=2/1h"}, exitError, `"a" is taken`},
		{[]string{"--limit=a=1/1m", "--block=a=1m"}, exitError, `"a" is taken`},
		{[]string{"--in-flight=a=1/300d"}, exitError, "time-out"},
		{[]string{"--in-flight=5"}, exitUsage, "MAX/WINDOW"},
		{[]string{"--block=24h"}, exitUsage, "NAME=LONGEST"},
		{[]string{"--block==24h"}, exitUsage, "NAME=LONGEST"},
		{[]string{"--block=a=1/24h"}, exitUsage, "NAME=LONGEST"},
		{[]string{"--block=a=400d"}, exitUsage, "Window"},
		{[]string{"--block=a b=1h"}, exitUsage, "NAME=LONGEST"},
	} {
		var stderr bytes.Buffer
		args := append([]string{"serve", "--addr=no address"}, tt.args...)
		if code := run(t.Context(), args, io.Discard, &stderr); code != tt.code ||
			!strings.Contains(stderr.String(), tt.want) {
			t.Errorf("%v: exit code %d: %s", tt.args, code, &stderr)
		}
	}
}

// TestServeBudgets starts the command with limits of each kind, from flags and the environment.
func TestServeBudgets(t *testing.T) {
	t.Setenv("RATELIMIT_IN_FLIGHT", "calls=1/1h")
	t.Setenv("RATELIMIT_BLOCK", "x=y=1d,blocked=24h")
	url, log, _ := start(t, "--limit=tokens=10/1h,5/1h30m")
	for _, step := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/take-all", of("tokens 10, 1h30m0s 5, x=y, blocked"), 200, `"name":"tokens"`},
		{"/v1/block", one("x=y", `"for_ms":86400000`), 200, `"reset_after_ms":86400000`},
		{"/v1/acquire", one("calls", ""), 200, `"token":"h.`},
		{"/v1/reserve", of("calls, tokens, x=y"), 429,
			`"violated-policies":["calls","tokens","x=y"]`},
		{"/v1/nothing", `{}`, 404, "/v1/take-all, /v1/unblock."},
	} {
		if status, body := post(t, url+step.path, step.body); status != step.status ||
			!strings.Contains(body, step.want) {
			t.Errorf("%s %s: %d %s", step.path, step.body, status, body)
		}
	}
	if got := log.String(); !strings.Contains(got, `"in-flight":"[calls=1/1h0m0s]"`) ||
		!strings.Contains(got, `"blocks":"[x=y=24h0m0s blocked=24h0m0s]"`) ||
		strings.Contains(got, secret) {
		t.Errorf("log: %s", got)
	}
}

// TestExtendFails: whichever call of the store fails, the old token settles what was used.
func TestExtendFails(t *testing.T) {
	for calls := range 3 {
		s := newScene(t)
		store := &faltering{Store: s.store}
		s.api = budgetAPI(t, budgetFlags(), store)
		s.play([]step{{"/v1/reserve", of("tokens 60"), 200, "", "tokens=40", 0}})
		store.errs = append(make([]error, calls), ratelimit.ErrUnavailable)
		s.play([]step{
			{"/v1/extend", `{"token":"$1","n":[20]}`, 503, "ErrUnavailable", "", 0},
			{"/v1/commit", `{"token":"$1","actual":[30]}`, 204, "", "tokens=70", 0},
		})
	}
}

// TestAcquireWithoutAnswer: what the store may hold for a call that the policy has admitted, and
// that has no token, is free at once.
func TestAcquireWithoutAnswer(t *testing.T) {
	c := budgetFlags()
	c.OnFailure = failOpen
	s := newScene(t)
	lost := slices.Repeat([]error{ratelimit.ErrOutcomeUnknown}, 2) // it is asked twice
	s.api = budgetAPI(t, c, &faltering{Store: s.store, errs: lost, recorded: true})
	s.play([]step{{"/v1/acquire", one("calls", ""), 200, "", "calls=2", 0}})
	if len(s.tokens) > 0 {
		t.Errorf("%d tokens", len(s.tokens))
	}
}
