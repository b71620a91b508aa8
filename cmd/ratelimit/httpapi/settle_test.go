package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

func TestSettle(t *testing.T) {
	settle := func(used, left string) step {
		return step{"/v1/settle", id(1, `"used":`+used), 204, "", left, 0}
	}
	for _, tt := range []struct {
		name, claims string // "" is of tokens 60, calls, blocked
		steps        []step
	}{
		{"less", "", []step{settle("20", "tokens=80 calls=2")}},
		{"more", "", []step{settle("130", "tokens=0 calls=2"),
			{"/v1/decide", of("tokens"), 429, "", "", 0}}},
		{"as held", "", []step{{"/v1/settle", id(1), 204, "", "tokens=40 calls=2", 0}}},
		{"nothing", "", []step{settle("0", "tokens=100 calls=2")}},
		{"by name", "", []step{settle(`[{"limit":"tokens","n":20}]`, "tokens=80 calls=2")}},
		{"by name and key", "", []step{
			settle(`[{"key":"secret-key","limit":"tokens","n":0}]`, "tokens=100 calls=2")}},
		{"two budgets", "requests 2, tokens 60", []step{
			{"/v1/settle", id(1, `"used":5`), 400, "invalid-request", "tokens=40", 0},
			settle(`[{"limit":"tokens","n":20},{"limit":"requests","n":1}]`,
				"requests=2 tokens=80")}},
		{"one of two budgets", "requests 2, tokens 60", []step{
			settle(`[{"limit":"requests","n":3}]`, "requests=0 tokens=40")}},
		{"nothing of two budgets", "requests 2, tokens 60", []step{
			settle("0", "requests=3 tokens=100")}},
		{"late", "", []step{{"/v1/settle", id(1, `"used":70`), 204, "", "tokens=30 calls=2",
			10 * time.Minute}}},
		{"never", "", []step{
			{"/v1/peek", of("tokens"), 200, "", "tokens=40 calls=1", time.Minute},
			{"/v1/peek", of("tokens"), 200, "", "tokens=100 calls=1", 8 * time.Second},
			{"/v1/peek", of("tokens"), 200, "", "calls=2", 10 * time.Minute}}},
		{"twice", "", []step{
			settle("20", "tokens=80"),
			{"/v1/settle", id(1, `"used":20`), 409, "already-settled", "tokens=80", 0},
			settle("0", "tokens=80"), // nothing is held afterwards, which is true
			{"/v1/renew", id(1, `"total":61`), 409, "already-settled", "tokens=80", 0},
			{"/v1/settle", id(1), 409, "already-settled", "tokens=100",
				10*time.Minute - time.Second}}},
		{"after a day", "", []step{
			{"/v1/settle", id(1), 409, "already-settled", "tokens=100", 25 * time.Hour}}},
		{"after a reset", "", []step{
			{"/v1/reset", `{"key":"secret-key"}`, 204, "", "tokens=100 calls=1", 0},
			{"/v1/settle", id(1), 409, "already-settled", "tokens=100 calls=2", 0}}},
		{"nothing, then something", "", []step{
			settle("0", "tokens=100"),
			{"/v1/settle", id(1), 409, "already-settled", "tokens=100", 0}}},
		{"two of one instant", "", []step{
			{"/v1/decide", hold("tokens 10"), 200, "", "tokens=30", 0},
			{"/v1/decide", hold("tokens 10"), 200, "", "tokens=20", 0},
			{"/v1/settle", id(2, `"used":4`), 204, "", "tokens=26", 0},
			{"/v1/settle", id(3, `"used":4`), 204, "", "tokens=32", 0}}},
		{"renewed", "", []step{
			{"/v1/renew", id(1), 200, "", "tokens=40 calls=1", 50 * time.Second},
			{"/v1/renew", id(1, `"hold_ms":120000`), 200, "", "tokens=40", 50 * time.Second},
			{"/v1/renew", id(1, `"hold_ms":0`), 200, "", "tokens=40", 110 * time.Second},
			{"/v1/settle", id(1), 204, "", "tokens=40 calls=2", 50 * time.Second}}},
		{"never shorter", "", []step{
			{"/v1/renew", id(1, `"hold_ms":37500`), 200, "", "", 0},
			{"/v1/peek", of("tokens"), 200, "", "tokens=40", 59 * time.Second}}},
		{"extended", "", []step{
			{"/v1/renew", id(1, `"total":90`), 200, "", "tokens=10", time.Second},
			{"/v1/renew", id(2, `"total":101`), 422, "ErrExceedsLimit", "tokens=10", 0},
			{"/v1/decide", of("tokens"), 200, "", "tokens=9", 0},
			{"/v1/renew", id(2, `"total":100`), 429, "", "tokens=9 calls=1", 0},
			{"/v1/renew", id(2, `"total":[{"limit":"tokens","n":99}]`), 200, "",
				"tokens=0 calls=1", time.Second},
			{"/v1/settle", id(3, `"used":55`), 204, "", "tokens=44 calls=2", 0},
			{"/v1/settle", id(1, `"used":55`), 409, "already-settled", "tokens=44", 0}}},
		{"extended again", "", []step{ // the old id, whose answer may have been lost
			{"/v1/renew", id(1, `"total":90`), 200, "", "tokens=10", 0},
			{"/v1/renew", id(1, `"total":90`), 200, "", "tokens=10", 0},
			{"/v1/renew", id(2, `"total":30`), 200, "", "tokens=10", 0}, // it never shrinks
			{"/v1/settle", id(1, `"used":90`), 204, "", "tokens=10", 0}}},
		{"the id before an extension", "", []step{
			{"/v1/renew", id(1, `"total":90`), 200, "", "tokens=10", 0},
			{"/v1/settle", id(1), 204, "", "tokens=40", 0}}},
		{"the id of an extension", "", []step{
			{"/v1/renew", id(1, `"total":90`), 200, "", "tokens=10", 0},
			{"/v1/settle", id(2), 204, "", "tokens=10", 0}}},
		{"extended by name", "requests 1, tokens 60", []step{
			{"/v1/renew", id(1, `"total":[{"limit":"tokens","n":70},{"limit":"requests","n":2}]`),
				200, "", "requests=1 tokens=30", 0},
			{"/v1/settle", id(2), 204, "", "requests=1 tokens=30", 0}}},
		{"calls in flight", "calls 2", []step{
			{"/v1/decide", hold("calls"), 429, "", "calls=0", 0},
			{"/v1/settle", id(1, `"used":1`), 422, "wrong-kind", "calls=0", 0},
			{"/v1/renew", id(1, `"total":1`), 422, "wrong-kind", "calls=0", 0},
			{"/v1/renew", id(1), 200, "", "calls=0", 9 * time.Minute},
			{"/v1/peek", of("calls"), 200, "", "calls=0", 9 * time.Minute},
			{"/v1/settle", id(1), 204, "", "calls=2", 0},
			{"/v1/settle", id(1), 204, "", "calls=2", 0}, // nothing is held afterwards
			{"/v1/renew", id(1), 409, "already-settled", "calls=2", 0}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(t)
			claims := tt.claims
			if claims == "" {
				claims = "tokens 60, calls, blocked"
			}
			s.play(step{"/v1/decide", hold(claims), 200, "", "", 0})
			s.play(tt.steps...)
		})
	}
}

// TestSettleKeys: an id that holds one limit for several keys needs the key.
func TestSettleKeys(t *testing.T) {
	s := newScene(t)
	s.play(
		step{"/v1/decide", `{"hold_ms":0,"claims":[{"limit":"tokens","key":"secret-key","n":60},` +
			`{"limit":"tokens","key":"other","n":5}]}`, 200, "", "tokens=40", 0},
		step{"/v1/settle", id(1, `"used":[{"limit":"tokens","n":20}]`), 400, "invalid-request",
			"tokens=40", 0},
		step{"/v1/settle", id(1, `"used":[{"limit":"tokens","key":"third","n":20}]`), 422,
			"wrong-kind", "tokens=40", 0},
		step{"/v1/settle", id(1, `"used":[{"limit":"tokens","key":"secret-key","n":20}]`), 204, "",
			"tokens=80", 0},
	)
}

// TestExtendKeys: an id that holds one limit for several keys is extended for the key of the total.
func TestExtendKeys(t *testing.T) {
	s := newScene(t)
	s.play(
		step{"/v1/decide", `{"hold_ms":0,"claims":[{"limit":"tokens","key":"other","n":60},` +
			`{"limit":"tokens","key":"secret-key","n":5}]}`, 200, "", "tokens=95", 0},
		step{"/v1/renew", id(1, `"total":[{"limit":"tokens","key":"secret-key","n":8}]`), 200, "",
			"tokens=92", 0},
		step{"/v1/renew", id(2, `"total":[{"limit":"tokens","key":"other","n":60}]`), 200, "",
			"tokens=92", 0},
	)
	if got := left(t, s.api, "tokens", "other").Remaining; got != 40 {
		t.Errorf("%d of the other key left, want 40", got)
	}
}

// TestRenewKeepsID: the id changes only if more units are held.
func TestRenewKeepsID(t *testing.T) {
	s := newScene(t)
	s.play(
		step{"/v1/decide", hold("tokens 60, calls"), 200, "", "", 0},
		step{"/v1/renew", id(1), 200, "", "", 0},
		step{"/v1/renew", id(1, `"total":60`), 200, "", "", 0},
		step{"/v1/renew", id(1, `"total":61`), 200, "", "", 0},
	)
	if s.ids[1] != s.ids[0] || s.ids[2] != s.ids[0] || s.ids[3] == s.ids[0] {
		t.Errorf("ids %v", s.ids)
	}
}

// TestStoreCalls: each request makes one call of the store, and a renewal that extends makes two.
func TestStoreCalls(t *testing.T) {
	s := newScene(t)
	store := &faltering{Store: s.store}
	s.api = flagsAPI(t, testFlags(), store)
	for _, tt := range []struct {
		path, body string
		want       int64
	}{
		{"/v1/decide", `{"key":"secret-key"}`, 1},
		{"/v1/decide", hold("tokens 5, calls, blocked"), 1},
		{"/v1/renew", id(1), 1},
		{"/v1/renew", id(1, `"total":6`), 2},
		{"/v1/settle", id(1, `"used":3`), 1},
		{"/v1/decide", of("tokens 5", `"hold_ms":120000`), 1},
		{"/v1/settle", id(4), 1},
		{"/v1/reset", `{"key":"secret-key"}`, 1},
	} {
		before := store.calls.Load()
		if status, _, answer := s.post(tt.path, tt.body); status > 204 {
			t.Errorf("%s: %d %v", tt.path, status, answer)
		}
		if got := store.calls.Load() - before; got != tt.want {
			t.Errorf("%s %s: %d calls, want %d", tt.path, tt.body, got, tt.want)
		}
	}
}

// TestSettledOnce: of many requests that settle one id at once, one does.
func TestSettledOnce(t *testing.T) {
	s := newScene(t)
	s.play(
		step{"/v1/decide", hold("tokens 60"), 200, "", "", 0},
		// The settlement adds to this record, which is of the same instant.
		step{"/v1/decide", of("tokens 40"), 200, "", "tokens=0", 0},
	)
	body := fmt.Sprintf(`{"id":%q,"used":50}`, s.ids[0])
	var statuses [600]atomic.Int64
	var wg sync.WaitGroup
	const requests = 40
	for range requests {
		wg.Go(func() {
			status, _, _ := call(t, s.api, request(http.MethodPost, "/v1/settle", body))
			statuses[status].Add(1)
		})
	}
	wg.Wait()
	if done, late := statuses[204].Load(), statuses[409].Load(); done != 1 || late != requests-1 {
		t.Errorf("%d settled and %d were late", done, late)
	}
	s.checkLeft("tokens=10")
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
			s.api = flagsAPI(t, testFlags(), store)
			s.play(step{"/v1/decide", hold("tokens 60"), 200, "", "tokens=40", 0})
			store.errs, store.recorded = []error{tt.err}, tt.recorded
			status, _, answer := s.post("/v1/settle", id(1, `"used":10`))
			typ, _ := answer["type"].(string)
			detail, _ := answer["detail"].(string)
			if _, typ, _ = strings.Cut(typ, "#"); status != 503 || typ != tt.typ ||
				strings.Contains(detail, "twice") {
				t.Errorf("%d %v", status, answer)
			}
			status, _, answer = s.post("/v1/settle", id(1, `"used":10`))
			if status != tt.again {
				t.Errorf("again: %d %v, want %d", status, answer, tt.again)
			}
			s.checkLeft("tokens=90")
		})
	}
}

// TestNothingRenewsItself: the daemon renews what an id holds only when it is asked to.
func TestNothingRenewsItself(t *testing.T) {
	for path, errs := range map[string][]error{
		"/v1/settle": {ratelimit.ErrUnavailable},
		"/v1/renew":  {nil, ratelimit.ErrUnavailable},
	} {
		inBubble(t, func(t *testing.T, s *scene) {
			store := &faltering{Store: s.store}
			s.api = flagsAPI(t, testFlags(), store)
			s.play(step{"/v1/decide", hold("tokens 60"), 200, "", "tokens=40", 0})
			store.errs = errs
			body := id(1)
			if path == "/v1/renew" {
				body = id(1, `"total":61`)
			}
			s.play(
				step{path, body, 503, "ErrUnavailable", "tokens=40", 0},
				step{"/v1/peek", of("tokens"), 200, "", "tokens=100", 68 * time.Second},
			)
		})
	}
}

// TestRenewalFails: whichever call of the store fails, the id settles what was used.
func TestRenewalFails(t *testing.T) {
	for calls := range 2 {
		s := newScene(t)
		store := &faltering{Store: s.store}
		s.api = flagsAPI(t, testFlags(), store)
		s.play(step{"/v1/decide", hold("tokens 60"), 200, "", "tokens=40", 0})
		store.errs = append(make([]error, calls), ratelimit.ErrUnavailable)
		s.play(
			step{"/v1/renew", id(1, `"total":80`), 503, "ErrUnavailable", "", 0},
			step{"/v1/settle", id(1, `"used":30`), 204, "", "tokens=70", 0},
		)
	}
}

// TestPolicies: a policy applies to decisions, and not to settlements, renewals, blocks and resets.
// What it admits is not held, so there is no id.
func TestPolicies(t *testing.T) {
	s := newScene(t)
	store := &faltering{Store: s.store}
	s.api = flagsAPI(t, testFlags(), store, decision.WithPolicy(ratelimit.FailOpen))
	s.play(step{"/v1/decide", hold("tokens 70, blocked"), 200, "", "", 0})
	store.errs = slices.Repeat([]error{ratelimit.ErrUnavailable}, 100)
	s.play(
		step{"/v1/decide", of("requests 3, tokens"), 200, "", "", 0},
		step{"/v1/decide", hold("tokens 30, blocked"), 200, "", "", 0},
		step{"/v1/decide", of("calls", `"hold_ms":0`, `"wait_ms":10`), 200, "", "", 0},
		step{"/v1/renew", id(1, `"total":75`), 503, "ErrUnavailable", "", 0},
		step{"/v1/settle", id(1), 503, "ErrUnavailable", "", 0},
		step{"/v1/block", one("blocked", `"for_ms":1`), 503, "ErrUnavailable", "", 0},
		step{"/v1/reset", one("blocked", ``), 503, "ErrUnavailable", "", 0},
		step{"/v1/reset", `{"key":"secret-key"}`, 503, "ErrUnavailable", "", 0},
	)
	store.errs = nil
	if len(s.ids) != 1 {
		t.Errorf("%d ids, want that of the store", len(s.ids))
	}
	s.play(step{"/v1/settle", id(1, `"used":30`), 204, "", "tokens=70 requests=3 calls=2", 0})
}

// TestIDBounds: the largest request has an id that can be renewed and settled.
func TestIDBounds(t *testing.T) {
	var c config.Flags
	var claims, totals []string
	key := strings.Repeat("k", maxKey)
	for i := range maxClaims {
		name := fmt.Sprintf("%064d", i)
		c.Limit = append(c.Limit,
			config.LimitFlag{Limit: ratelimit.PerDay(name, driver.MaxUnits)})
		claims = append(claims, fmt.Sprintf(`{"limit":%q,"key":%q,"n":%d}`, name, key,
			driver.MaxUnits/1000))
		totals = append(totals, fmt.Sprintf(`{"limit":%q,"n":%d}`, name, driver.MaxUnits))
	}
	s := newScene(t)
	s.api = flagsAPI(t, c, s.store)
	for _, r := range []struct {
		path, body string
		status     int
	}{
		{"/v1/decide", `{"hold_ms":0,"claims":[` + strings.Join(claims, ",") + `]}`, 200},
		{"/v1/renew", id(1, `"total":[`+strings.Join(totals, ",")+`]`), 200},
		{"/v1/settle", id(2), 204},
	} {
		if status, _, answer := s.post(r.path, r.body); status != r.status {
			t.Fatalf("%s: %d %v", r.path, status, answer)
		}
	}
	if got := len(s.ids[1]); got > maxID || got < maxID/2 {
		t.Errorf("the largest id has %d bytes, and maxID is %d", got, maxID)
	}
	c.Limit = append(c.Limit, config.LimitFlags(ratelimit.PerDay("another", 1))...)
	s.api = flagsAPI(t, c, s.store)
	s.play(
		step{"/v1/decide", `{"key":"k"}`, 200, "", "", 0},
		step{"/v1/decide", `{"key":"l","hold_ms":0}`, 400, "invalid-request", "", 0},
	)
}

// TestSettlementsLeaveNothing: settlements leave no key and no hold on the store, beside a block of
// a day and what is still in the window. It settles 100 requests a second, in its long form for an
// hour.
func TestSettlementsLeaveNothing(t *testing.T) {
	lasts := depth.Of(20*time.Second, time.Hour)
	inBubble(t, func(t *testing.T, s *scene) {
		const rate, open, window = 100, 10, time.Second
		s.api = flagsAPI(t, config.Flags{
			Limit:    config.LimitFlags(ratelimit.Limit{Name: "tokens", Max: 1000, Window: window}),
			InFlight: []ratelimit.Limit{{Name: "calls", Max: open + 1, Window: time.Hour}},
			Block:    []config.BlockFlag{{Block: algorithm.Blocking("blocked", 24*time.Hour)}},
		}, s.store)
		store := s.store.(*memorystore.Store)
		s.play(step{"/v1/block", one("blocked", `"for_ms":86400000`), 200, "", "", 0})
		var held []string
		most := 0
		for i := range int(lasts.Seconds()) * rate {
			s.advance(time.Second / rate)
			s.ids = nil
			if status, _, answer := s.post("/v1/decide", fmt.Sprintf(`{"hold_ms":0,"claims":[`+
				`{"limit":"tokens","key":"user:%d","n":5},{"limit":"calls","key":"all"},`+
				`{"limit":"blocked","key":"all"}]}`, i)); status != http.StatusOK {
				t.Fatal(answer)
			}
			if held = append(held, s.ids[0]); len(held) > open {
				s.ids, held = held[:1], held[1:]
				s.play(step{"/v1/settle", id(1, `"used":3`), 204, "", "", 0})
			}
			most = max(most, store.Stats().Keys)
		}
		for _, text := range held {
			s.ids = []string{text}
			s.play(step{"/v1/settle", id(1, `"used":3`), 204, "", "", 0})
		}
		// Each open id holds tokens, and each settled one leaves a record of them until the window
		// is over and the store's cleaner has been there. The calls of all are on one key, which
		// holds no more than its Max.
		if bound := 2 + open + 1 + 4*rate; most > bound {
			t.Errorf("the store had %d keys, at most %d are open or in the window", most, bound)
		}
		s.advance(time.Minute)
		if got := store.Stats().Keys; got != 1 {
			t.Errorf("%d keys are left, want that of the block", got)
		}
		t.Logf("%v: at most %d keys, and %d at the end", lasts, most, store.Stats().Keys)
	})
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
		for path, bodies := range goodBodies("$1") {
			for _, body := range bodies {
				s := newScene(t)
				s.play(step{"/v1/decide", hold("tokens"), 200, "", "", 0})
				ctx, cancel := context.WithCancel(t.Context())
				s.api = flagsAPI(t, testFlags(), &leaving{Store: s.store, leave: cancel})
				if when == "before" {
					cancel()
				}
				status, _, answer := call(t, s.api, request(http.MethodPost, path,
					strings.ReplaceAll(body, "$1", s.ids[0])).WithContext(ctx))
				if status != 204 && status != 200 || status == 200 && len(answer) == 0 {
					t.Errorf("%s %s, ended %s the decision: %d %s",
						path, body, when, status, answer)
				}
				cancel()
			}
		}
	}
}

// TestUndecided: each failure of a store has a type of its own.
func TestUndecided(t *testing.T) {
	held := heldID(t, "tokens")
	for _, tt := range []struct {
		err    error
		status int
		typ    string
	}{
		{ratelimit.ErrUnavailable, 503, "ErrUnavailable"},
		{driver.ErrClosed, 503, "ErrUnavailable"},
		{fmt.Errorf("%w: read tcp", ratelimit.ErrOutcomeUnknown), 503, "ErrOutcomeUnknown"},
		{driver.ErrCapacity, 503, "ErrCapacity"},
		{fmt.Errorf("%w: %w", driver.ErrContended, ratelimit.ErrUnavailable), 503, "ErrContended"},
		{driver.ErrCorruptState, 503, "ErrCorruptState"},
		{ratelimit.ErrQueueFull, 503, "ErrQueueFull"},
		{driver.ErrNoScript, 500, ""},
		{fmt.Errorf("several slots: %w", errors.ErrUnsupported), 422, "claims-not-together"},
		{errors.New(secret), 500, ""},
	} {
		h := flagsAPI(t, testFlags(), broken{tt.err})
		for path, bodies := range goodBodies(held) {
			for _, body := range bodies {
				header := checkTyped(t, h, request(http.MethodPost, path, body), tt.status, tt.typ)
				if got := header.Get("Retry-After"); got != "" {
					t.Errorf("%s: Retry-After %q, want none", path, got)
				}
			}
		}
	}
}

// TestUndecidedStaysUndecided: a settlement that got 503 is not made later, unless it is sent
// again.
func TestUndecidedStaysUndecided(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scene) {
		store := &faltering{Store: s.store}
		s.api = flagsAPI(t, testFlags(), store)
		s.play(step{"/v1/decide", hold("tokens 60, requests 2, calls"), 200, "", "", 0})
		store.errs = []error{ratelimit.ErrUnavailable}
		s.play(step{"/v1/settle", id(1, `"used":0`), 503, "ErrUnavailable", "", 0})
		time.Sleep(2 * time.Minute)
		s.play(
			step{"/v1/settle", id(1, `"used":[{"limit":"tokens","n":20}]`), 204, "",
				"tokens=80 requests=1 calls=2", 0},
			step{"/v1/settle", id(1, `"used":0`), 204, "", "tokens=80 requests=1 calls=2", 0})
	})
}

// TestRenewUnderShadow: a limit that has become one in shadow mode refuses no renewal.
func TestRenewUnderShadow(t *testing.T) {
	const limit = "limits:\n  - {name: tokens, key: [tenant], max: 10/1h, holds: 1m%s}\n"
	s := fileScene(t, fmt.Sprintf(limit, ""))
	s.post("/v1/decide", `{"descriptor":{"tenant":"acme"},"n":4,"hold_ms":0}`)
	for _, total := range []string{"9", "11"} {
		s.post("/v1/decide", `{"descriptor":{"tenant":"acme"},"n":2}`) // leaves 4 and then 2
		c, err := config.Source{
			Path: apitest.ConfigFile(t, fmt.Sprintf(limit, ", mode: shadow"))}.Load()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.api.decider.Use(c.Set); err != nil {
			t.Fatal(err)
		}
		body := id(1, `"total":[{"limit":"tokens","n":`+total+`}]`)
		if status, _, answer := s.post("/v1/renew", body); status != http.StatusOK {
			t.Errorf("a total of %s: %d %v", total, status, answer)
		}
	}
}
