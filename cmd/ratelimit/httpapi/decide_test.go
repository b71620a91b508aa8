package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/driver"
)

// TestDecide: claims are taken together or not at all, and a key stands for a claim on each limit
// of --limit.
func TestDecide(t *testing.T) {
	newScene(t).play(
		step{"/v1/peek", of("requests 3, tokens 100"), 200, "", "requests=3 tokens=100", 0},
		step{"/v1/decide", of("requests, tokens 60, blocked"), 200, "", "requests=2 tokens=40", 0},
		step{"/v1/decide", of("requests, tokens 41"), 429, "", "requests=2 tokens=40", 0},
		step{"/v1/decide", of("requests, tokens 40"), 200, "", "requests=1 tokens=0", 0},
		step{"/v1/decide", of("requests, tokens 0"), 429, "", "requests=1 tokens=0", 0},
		step{"/v1/peek", of("requests, tokens"), 200, "", "requests=1 tokens=0", 0},
		step{"/v1/decide", of("requests, calls 0"), 200, "", "requests=0", 0},
		step{"/v1/decide", of("tokens 100"), 200, "", "requests=3 tokens=0", time.Minute},
		step{"/v1/decide", `{"key":"secret-key"}`, 429, "", "requests=3", 0},
		step{"/v1/decide", `{"key":"secret-key","n":0}`, 429, "", "requests=3", 0},
		step{"/v1/reset", `{"key":"secret-key"}`, 204, "", "requests=3 tokens=100", 0},
		step{"/v1/decide", `{"key":"secret-key","n":3}`, 200, "", "requests=0 tokens=97", 0},
		step{"/v1/peek", `{"key":"secret-key"}`, 200, "", "", 0},
	)
}

// TestDecision: admitted or refused, the answer has the limit that binds, and that of each claim.
func TestDecision(t *testing.T) {
	s := newScene(t)
	s.play(step{"/v1/block", one("blocked", `"for_ms":90500`), 200, "", "", 0})
	tokens := func(allowed bool, remaining, retry, reset int) string {
		return fmt.Sprintf(`"name":"tokens","window_ms":60000,"allowed":%t,"source":"store",`+
			`"limit":100,"remaining":%d,"retry_after_ms":%d,"reset_after_ms":%d`,
			allowed, remaining, retry, reset)
	}
	const requests = `"name":"requests","window_ms":60000,"allowed":true,"source":"store",` +
		`"limit":3,"remaining":2,"retry_after_ms":0,"reset_after_ms":60000`
	const blocked = `"name":"blocked","window_ms":3600000,"allowed":false,"source":"store",` +
		`"limit":3600000,"remaining":0,"retry_after_ms":90500,"reset_after_ms":90500,` +
		`"block":true`
	for _, tt := range []struct {
		path, body, want string
		status           int
		retryAfter       string
	}{
		{"/v1/decide", of("tokens 98, requests"), `{` + tokens(true, 2, 0, 60000) +
			`,"limits":[{` + tokens(true, 2, 0, 60000) + `},{` + requests + `}]}`, 200, ""},
		{"/v1/decide", of("tokens 3, blocked"), `{` + blocked + `,"limits":[{` +
			tokens(false, 2, 60000, 60000) + `},{` + blocked + `}]}`, 429, "91"},
		{"/v1/decide", hold("tokens 3, blocked"), `{` + blocked + `,"limits":[{` +
			tokens(false, 2, 60000, 60000) + `},{` + blocked + `}]}`, 429, "91"},
		{"/v1/peek", of("tokens 3, blocked"), `{` + blocked + `,"limits":[{` +
			tokens(false, 2, 60000, 60000) + `},{` + blocked + `}]}`, 200, ""},
	} {
		status, header, body := call(t, s.api, request(http.MethodPost, tt.path, tt.body))
		if status != tt.status || body != tt.want+"\n" ||
			header.Get("Retry-After") != tt.retryAfter ||
			header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %d %v\ngot  %s\nwant %s", tt.path, tt.body, status, header, body,
				tt.want)
		}
	}
}

// TestNothingHeld: a decision that holds nothing has no id.
func TestNothingHeld(t *testing.T) {
	s := newScene(t)
	s.play(
		step{"/v1/decide", hold("tokens 0, blocked"), 200, "", "tokens=100", 0},
		step{"/v1/decide", `{"key":"secret-key","n":0,"hold_ms":60000}`, 200, "", "tokens=100", 0},
		step{"/v1/decide", hold("tokens 101"), 422, "ErrExceedsLimit", "", 0},
		step{"/v1/decide", hold("calls 2, tokens 0"), 200, "", "calls=0", 0},
		step{"/v1/decide", hold("calls, tokens"), 429, "", "tokens=100", 0},
		step{"/v1/settle", id(1, `"used":5`), 422, "wrong-kind", "calls=0", 0},
		step{"/v1/settle", id(1, `"used":0`), 204, "", "tokens=100 calls=2", 0},
	)
	if len(s.ids) != 1 {
		t.Errorf("%d ids, want that of the calls in flight", len(s.ids))
	}
}

// TestHoldTime: units are held for hold_ms, from 1/16 to 16 times the time-out of each limit that
// holds, and up to an eighth longer.
func TestHoldTime(t *testing.T) {
	for _, tt := range []struct {
		claims, hold string
		held         time.Duration // 0: the hold_ms is refused
	}{
		{"tokens", "0", time.Minute},
		{"tokens", "3750", 3750 * time.Millisecond},
		{"tokens", "3749", 0},
		{"tokens", "960000", 16 * time.Minute},
		{"tokens", "960001", 0},
		{"calls", "0", 10 * time.Minute},
		{"calls", "37500", 37500 * time.Millisecond},
		{"calls", "9600000", 160 * time.Minute},
		{"tokens, calls", "9600000", 0},
		{"tokens, calls", "37499", 0},
		{"tokens 0, calls, blocked", "9600000", 160 * time.Minute},
		{"blocked", "1", 0},
	} {
		t.Run(tt.claims+" "+tt.hold, func(t *testing.T) {
			s := newScene(t)
			body := of(tt.claims, `"hold_ms":`+tt.hold)
			if tt.held == 0 && tt.claims != "blocked" {
				s.api = flagsAPI(t, testFlags(), untouched{t})
				s.play(step{"/v1/decide", body, 422, "ErrInvalid", "", 0})
				s.ids = []string{heldID(t, tt.claims)}
				s.play(step{"/v1/renew", id(1, `"hold_ms":`+tt.hold), 422, "ErrInvalid", "", 0})
				return
			}
			left, free := "tokens=99", "tokens=100"
			switch tt.claims {
			case "calls", "tokens 0, calls, blocked":
				left, free = "calls=1", "calls=2"
			case "blocked":
				left = free
			}
			s.play(
				step{"/v1/decide", body, 200, "", left, 0},
				step{"/v1/peek", of("blocked"), 200, "", left, tt.held - 1},
				step{"/v1/peek", of("blocked"), 200, "", free, tt.held/8 + 1},
			)
		})
	}
}

// inBubble plays f with a store whose clock is that of a bubble of synctest.
func inBubble(t *testing.T, f func(t *testing.T, s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		f(t, &scene{T: t, api: flagsAPI(t, testFlags(), store), store: store,
			advance: time.Sleep})
	})
}

// TestWaitInOrder: requests that wait for calls in flight are admitted in the order of arrival, and
// one whose client leaves is not admitted.
func TestWaitInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scene) {
		const waiting, leaves = 20, 7
		s.play(
			step{"/v1/decide", hold("calls"), 200, "", "", 0},
			step{"/v1/decide", hold("calls"), 200, "", "calls=0", 0},
		)
		type arrival struct {
			number, status int
			id             string
		}
		answered := make(chan arrival, waiting)
		ctx, leave := context.WithCancel(t.Context())
		for i := range waiting {
			go func() {
				r := request(http.MethodPost, "/v1/decide",
					of("calls", `"hold_ms":0`, `"wait_ms":5000`))
				if i == leaves {
					r = r.WithContext(ctx)
				}
				status, _, body := call(t, s.api, r)
				var held renewal
				if err := json.Unmarshal([]byte(body), &held); err != nil {
					t.Error(err)
				}
				answered <- arrival{i, status, held.ID}
			}()
			synctest.Wait()
		}
		leave()
		synctest.Wait()
		if a := <-answered; a.number != leaves || a.status != http.StatusTooManyRequests {
			t.Errorf("the client that left: %+v", a)
		}
		free := s.ids
		var order []int
		for len(order) < waiting-1 {
			s.ids = free[:1]
			free = free[1:]
			s.play(step{"/v1/settle", id(1), 204, "", "", 0})
			synctest.Wait()
			select {
			case a := <-answered:
				order = append(order, a.number)
				free = append(free, a.id)
			default:
				t.Fatalf("after %v nobody was admitted", order)
			}
		}
		want := make([]int, waiting)
		for i := range want {
			want[i] = i
		}
		if want = slices.Delete(want, leaves, leaves+1); !slices.Equal(order, want) {
			t.Errorf("admitted in the order %v", order)
		}
		for _, text := range free {
			s.ids = []string{text}
			s.play(step{"/v1/settle", id(1), 204, "", "", 0})
		}
		s.checkLeft("calls=2")
	})
}

// TestLeftHoldsNothing: a client that leaves when another process has freed a call holds nothing.
func TestLeftHoldsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scene) {
		s.play(step{"/v1/decide", hold("calls 2"), 200, "", "calls=0", 0})
		ctx, leave := context.WithCancel(t.Context())
		status := make(chan int)
		go func() {
			got, _, _ := call(t, s.api, request(http.MethodPost, "/v1/decide",
				of("calls", `"hold_ms":0`, `"wait_ms":5000`)).WithContext(ctx))
			status <- got
		}()
		time.Sleep(time.Second)
		other := &scene{T: t, api: flagsAPI(t, testFlags(), s.store), ids: s.ids,
			advance: s.advance}
		other.play(step{"/v1/settle", id(1), 204, "", "", 0})
		leave()
		if got := <-status; got != http.StatusTooManyRequests {
			t.Errorf("status %d", got)
		}
		s.checkLeft("calls=2")
	})
}

// TestWait: a request waits for a settlement, and no longer than its wait_ms; or until its client
// may have left.
func TestWait(t *testing.T) {
	for _, tt := range []struct {
		name           string
		settled, leave time.Duration // 0 is never
		wait           int64
		status         int
		took           time.Duration
		retry          string // Retry-After
	}{
		{"settled", 2 * time.Second, 0, maxWait, 200, 2 * time.Second, ""},
		{"too late", 0, 0, 3000, 429, 3 * time.Second, "615"},
		{"no wait", time.Second, 0, 0, 429, 0, "618"},
		{"left", 2 * time.Second, time.Second, maxWait, 429, time.Second, "617"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *scene) {
				s.play(
					step{"/v1/decide", hold("calls"), 200, "", "", 0},
					step{"/v1/decide", hold("calls"), 200, "", "", 0},
				)
				if tt.settled > 0 {
					go func() {
						time.Sleep(tt.settled)
						own := &scene{T: t, api: s.api, ids: s.ids[:1]}
						if status, _, _ := own.post("/v1/settle", id(1)); status != 204 {
							t.Errorf("settle: %d", status)
						}
					}()
				}
				ctx := t.Context()
				if tt.leave > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.leave)
					defer cancel()
				}
				began := time.Now()
				status, header, body := call(t, s.api, request(http.MethodPost, "/v1/decide",
					of("calls", `"hold_ms":0`, fmt.Sprintf(`"wait_ms":%d`, tt.wait))).
					WithContext(ctx))
				if took := time.Since(began); status != tt.status || took != tt.took {
					t.Errorf("%d after %v: %v", status, took, body)
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

// TestWaitForTheStore: if wait_ms ends during a call of the store, an admission by that call is
// returned, and an unknown outcome is an error. After a refusal or another error, the store is
// called once more.
func TestWaitForTheStore(t *testing.T) {
	for _, tt := range []struct {
		held   int64
		err    error
		status int
		typ    string
		took   time.Duration
		left   string
	}{
		{1, nil, 200, "", time.Second, "calls=0"},
		{2, nil, 429, "", 2 * time.Second, "calls=0"},
		{0, ratelimit.ErrOutcomeUnknown, 503, "ErrOutcomeUnknown", time.Second, "calls=2"},
		{0, ratelimit.ErrUnavailable, 503, "ErrUnavailable", 2 * time.Second, "calls=2"},
	} {
		inBubble(t, func(t *testing.T, s *scene) {
			direct := s.api
			if tt.held > 0 {
				s.post("/v1/decide", hold(fmt.Sprint("calls ", tt.held)))
			}
			s.api = flagsAPI(t, testFlags(), slow{s.store, tt.err})
			began := time.Now()
			s.play(step{"/v1/decide", of("calls", `"hold_ms":0`, `"wait_ms":500`),
				tt.status, tt.typ, "", 0})
			if took := time.Since(began); took != tt.took {
				t.Errorf("%d held, %v: it took %v, want %v", tt.held, tt.err, took, tt.took)
			}
			s.api = direct
			s.checkLeft(tt.left)
		})
	}
}

// TestHeldWithoutAnswer: what the store may hold for a request that the policy has admitted, and
// that has no id, is free at once.
func TestHeldWithoutAnswer(t *testing.T) {
	s := newScene(t)
	lost := slices.Repeat([]error{ratelimit.ErrOutcomeUnknown}, 2) // it is asked twice
	s.api = flagsAPI(t, testFlags(),
		&faltering{Store: s.store, errs: lost, recorded: true},
		decision.WithPolicy(ratelimit.FailOpen))
	s.play(step{"/v1/decide", hold("calls"), 200, "", "calls=2", 0})
	if len(s.ids) > 0 {
		t.Errorf("%d ids", len(s.ids))
	}
}

// TestForce: units are recorded even beyond the limit.
func TestForce(t *testing.T) {
	s := newScene(t)
	s.play(
		step{"/v1/force", one("tokens", `"n":90`), 200, "", "tokens=10", 0},
		step{"/v1/force", one("tokens", `"n":250`), 200, "", "tokens=0", 0},
		step{"/v1/peek", of("tokens"), 200, "", "tokens=100", time.Minute},
	)
	_, _, body := call(t, s.api, request(http.MethodPost, "/v1/force", one("tokens", `"n":1`)))
	if want := `{"name":"tokens","window_ms":60000,"allowed":true,"source":"store","limit":100,` +
		`"remaining":99,"retry_after_ms":0,"reset_after_ms":60000}` + "\n"; body != want {
		t.Errorf("got  %s\nwant %s", body, want)
	}
}

// TestBlock: a block refuses claims on it until it ends or is reset.
func TestBlock(t *testing.T) {
	s := newScene(t)
	s.play(
		step{"/v1/decide", of("requests, blocked"), 200, "", "requests=2", 0},
		step{"/v1/block", one("blocked", `"for_ms":5000`), 200, "", "", 0},
		step{"/v1/decide", of("requests, blocked"), 429, "", "requests=2", 0},
		step{"/v1/decide", hold("requests, blocked 0"), 429, "", "requests=2",
			4999 * time.Millisecond},
		step{"/v1/decide", of("requests, blocked"), 200, "", "requests=1", time.Millisecond},
		step{"/v1/block", one("blocked", `"for_ms":3600000`), 200, "", "", 0},
		step{"/v1/reset", `{"key":"secret-key"}`, 204, "", "requests=3 blocked=0", 0},
		step{"/v1/reset", one("blocked", ""), 204, "", "", 0},
		step{"/v1/reset", one("blocked", ""), 204, "", "", 0},
		step{"/v1/decide", of("requests 3, blocked"), 200, "", "requests=0", 0},
	)
	for _, tt := range []struct{ ms, left int64 }{{5000, 5000}, {1, 5000}, {7000, 7000}} {
		body := one("blocked", fmt.Sprintf(`"for_ms":%d`, tt.ms))
		_, _, answer := call(t, s.api, request(http.MethodPost, "/v1/block", body))
		want := fmt.Sprintf(`{"name":"blocked","source":"store","reset_after_ms":%d}`+"\n", tt.left)
		if answer != want {
			t.Errorf("block for %d ms: %s, want %s", tt.ms, answer, want)
		}
	}
}

// TestOnFailureOfLimit: claims on a limit have its on_failure, as descriptors have.
func TestOnFailureOfLimit(t *testing.T) {
	const file = "limits:\n  - {name: open, key: [a], max: 1/1m, on_failure: open}\n" +
		"  - {name: closed, key: [b], max: 1/1m}\n"
	failing := &faltering{}
	for range 4 {
		failing.errs = append(failing.errs, ratelimit.ErrUnavailable)
	}
	h := fileAPI(t, file, failing)
	for body, want := range map[string]int{
		`{"claims":[{"limit":"open","key":"x"}]}`:   http.StatusOK,
		`{"claims":[{"limit":"closed","key":"x"}]}`: http.StatusServiceUnavailable,
		`{"descriptor":{"a":"x"}}`:                  http.StatusOK,
		`{"descriptor":{"b":"x"}}`:                  http.StatusServiceUnavailable,
	} {
		status, _, answer := call(t, h, request(http.MethodPost, "/v1/decide", body))
		if status != want {
			t.Errorf("%s: %d %s, want %d", body, status, answer, want)
		}
	}
}
