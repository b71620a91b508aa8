package edge_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/internal/testkit/limittest"
)

// limiters are on one memory store.
type limiters struct {
	one    *ratelimit.Limiter // 2 a minute
	two    *ratelimit.Limiter // 2 a second and 3 a minute
	budget *ratelimit.Limiter // a Budget of 2 a minute
	calls  *ratelimit.Limiter // 1 in flight
}

// withLimiters runs test in a bubble of synctest.
func withLimiters(t *testing.T, name string, test func(*testing.T, limiters)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store, err := memorystore.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			test(t, limiters{
				limittest.NewLimiter(t, store, ratelimit.PerMinute("one", 2)),
				limittest.NewLimiter(t, store, ratelimit.PerSecond("second", 2),
					ratelimit.PerMinute("minute", 3)),
				limittest.NewBudget(t, store, ratelimit.PerMinute("budget", 2)),
				limittest.NewInFlight(t, store, 1),
			})
		})
	})
}

// claims returns a claim of one unit for each limiter.
func claims(limiters ...*ratelimit.Limiter) []ratelimit.Claim {
	var claims []ratelimit.Claim
	for _, l := range limiters {
		claims = append(claims, ratelimit.Claim{Limiter: l, Key: "k", N: 1})
	}
	return claims
}

// TestDecide: the last of some calls has a result for each limit, also if a wait gave up.
func TestDecide(t *testing.T) {
	settle, wait := edge.Options{Settle: true}, edge.Options{Wait: true}
	both := edge.Options{Settle: true, Wait: true}
	one := func(l limiters) []ratelimit.Claim { return claims(l.one) }
	two := func(l limiters) []ratelimit.Claim { return claims(l.two) }
	budget := func(l limiters) []ratelimit.Claim { return claims(l.budget) }
	calls := func(l limiters) []ratelimit.Claim { return claims(l.calls) }
	all := func(l limiters) []ratelimit.Claim { return claims(l.one, l.two, l.calls) }
	for _, tt := range []struct {
		name    string
		claims  func(limiters) []ratelimit.Claim
		opts    edge.Options
		calls   int
		patient time.Duration
		results int
		allowed bool
		settles bool
		after   time.Duration
		err     error
	}{
		{"one limit", one, edge.Options{}, 2, 0, 1, true, false, 0, nil},
		{"one limit, refused", one, edge.Options{}, 3, 0, 1, false, false, 0, nil},
		{"a Budget, to be settled", budget, settle, 2, 0, 1, true, true, 0, nil},
		{"one limit, waited for", one, wait, 3, time.Hour, 1, true, false, time.Minute, nil},
		{"a Budget, to be settled, waited for", budget, both, 3, time.Hour, 1, true, true,
			time.Minute, nil},
		{"one limit, in vain", one, wait, 3, time.Second, 1, false, false, 0,
			context.DeadlineExceeded},
		{"a Budget, to be settled, in vain", budget, both, 3, time.Second, 1, false, true,
			time.Second, context.DeadlineExceeded},
		{"two limits", two, edge.Options{}, 2, 0, 2, true, false, 0, nil},
		{"two limits, refused", two, edge.Options{}, 3, 0, 2, false, false, 0, nil},
		{"two limits, waited for", two, wait, 3, time.Hour, 2, true, false, time.Second, nil},
		{"two limits, in vain", two, wait, 4, 3 * time.Second, 2, false, false, time.Second,
			context.DeadlineExceeded},
		{"in flight", calls, edge.Options{}, 1, 0, 1, true, true, 0, nil},
		{"in flight, refused", calls, edge.Options{}, 2, 0, 1, false, true, 0, nil},
		{"in flight, in vain", calls, wait, 2, time.Second, 1, false, true, time.Second,
			context.DeadlineExceeded},
		{"several claims", all, edge.Options{}, 1, 0, 4, true, true, 0, nil},
		{"several claims, refused", all, edge.Options{}, 2, 0, 4, false, true, 0, nil},
		{"no Budget, to be settled", func(l limiters) []ratelimit.Claim {
			return claims(l.one, l.calls)
		}, settle, 1, 0, 0, false, false, 0, ratelimit.ErrInvalid},
		{"no units, to be settled", func(l limiters) []ratelimit.Claim {
			return []ratelimit.Claim{{Limiter: l.one, Key: "k"}}
		}, settle, 1, 0, 1, true, true, 0, nil},
		{"calls, to be settled", calls, settle, 1, 0, 1, true, true, 0, nil},
		{"no claim", func(limiters) []ratelimit.Claim { return nil },
			edge.Options{}, 1, 0, 0, false, false, 0, ratelimit.ErrInvalid},
		{"in flight, not to be settled", func(l limiters) []ratelimit.Claim {
			return claims(l.one, l.calls)
		}, edge.Options{Unsettled: true}, 1, 0, 0, false, false, 0, ratelimit.ErrInvalid},
		{"no key", func(l limiters) []ratelimit.Claim {
			return append(claims(l.one), ratelimit.Claim{Limiter: l.two, N: 1})
		}, edge.Options{}, 1, 0, 0, false, false, 0, edge.ErrNoKey},
		{"no limiter", func(l limiters) []ratelimit.Claim { return claims(l.one, nil) },
			edge.Options{}, 1, 0, 0, false, false, 0, ratelimit.ErrInvalid},
		{"beyond the limit", func(l limiters) []ratelimit.Claim {
			return []ratelimit.Claim{{Limiter: l.one, Key: "k", N: 3}}
		}, wait, 1, 0, 0, false, false, 0, ratelimit.ErrExceedsLimit},
	} {
		withLimiters(t, tt.name, func(t *testing.T, l limiters) {
			ctx := t.Context()
			if tt.patient > 0 {
				var cancel func()
				ctx, cancel = context.WithTimeout(ctx, tt.patient)
				defer cancel()
			}
			began := time.Now()
			var call edge.Call
			var err error
			for range tt.calls {
				if tt.opts.Settle {
					call.Settle(ctx, true)
				}
				call = edge.Call{}
				err = call.Decide(ctx, tt.claims(l), tt.opts)
			}
			if !errors.Is(err, tt.err) || len(call.Results) != tt.results ||
				call.Allowed() != tt.allowed {
				t.Errorf("%+v, %v", call.Results, err)
			}
			if call.Settles() != tt.settles {
				t.Errorf("Settles is %t", call.Settles())
			}
			most := tt.after
			if tt.opts.Settle { // a wait for holds asks again and again
				most += 200 * time.Millisecond
			}
			if took := time.Since(began); took < tt.after || took > most {
				t.Errorf("took %v, want %v", took, tt.after)
			}
		})
	}
}

// TestSettle: units under Budgets are kept or not by the outcome of the call, those under other
// limits are kept, and calls in flight are released in both cases.
func TestSettle(t *testing.T) {
	settle := edge.Options{Settle: true}
	for _, tt := range []struct {
		name string
		keep bool
		left int64 // of the Budget
	}{{"kept", true, 1}, {"not kept", false, 2}} {
		withLimiters(t, tt.name, func(t *testing.T, l limiters) {
			var call edge.Call
			ctx, cancel := context.WithCancel(t.Context())
			if err := call.Decide(ctx, claims(l.one, l.budget, l.calls), settle); err != nil {
				t.Fatal(err)
			}
			wantLeft(t, l, 1, 2, 1, 0)
			cancel()
			call.Settle(ctx, tt.keep)
			wantLeft(t, l, 1, 2, tt.left, 1)
			call.Settle(ctx, !tt.keep) // does nothing
			wantLeft(t, l, 1, 2, tt.left, 1)
		})
	}
	withLimiters(t, "not to be settled", func(t *testing.T, l limiters) {
		for _, limiter := range []*ratelimit.Limiter{l.one, l.two} {
			var call edge.Call
			if err := call.Decide(t.Context(), claims(limiter), edge.Options{}); err != nil {
				t.Fatal(err)
			}
			call.Settle(t.Context(), false)
		}
		wantLeft(t, l, 1, 1, 2, 1)
	})
	withLimiters(t, "refused", func(t *testing.T, l limiters) {
		var first, second edge.Call
		for _, call := range []*edge.Call{&first, &second} {
			if err := call.Decide(t.Context(), claims(l.calls, l.budget), settle); err != nil {
				t.Fatal(err)
			}
		}
		if second.Allowed() {
			t.Error("a second call is in flight")
		}
		second.Settle(t.Context(), true)
		second.Settle(t.Context(), false)
		wantLeft(t, l, 2, 2, 1, 0)
		first.Settle(t.Context(), false)
		wantLeft(t, l, 2, 2, 2, 1)
	})
}

// unsettled is a store on which settlements fail until a time.
type unsettled struct {
	driver.Store
	until time.Time
}

func (s *unsettled) TakeAll(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) error {
	if ds[0].Op == driver.OpSettle && time.Now().Before(s.until) {
		return driver.ErrUnavailable
	}
	return s.Store.TakeAll(ctx, ds, out)
}

// TestSettleFails: a settlement that fails is repeated in the background. If all attempts fail,
// what is held is free at the time-out.
func TestSettleFails(t *testing.T) {
	for _, tt := range []struct {
		name  string
		keep  bool
		away  time.Duration
		after time.Duration
		left  int64 // of the Budget
	}{
		{"kept", true, 5 * time.Second, 8 * time.Second, 1},
		{"not kept", false, 5 * time.Second, 8 * time.Second, 2},
		{"kept, in vain", true, time.Hour, 68 * time.Second, 2},
		{"not kept, in vain", false, time.Hour, 68 * time.Second, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, err := memorystore.New(nil)
				if err != nil {
					t.Fatal(err)
				}
				defer memory.Close()
				store := &unsettled{memory, time.Now().Add(tt.away)}
				l := limiters{
					one:    limittest.NewLimiter(t, store, ratelimit.PerMinute("one", 2)),
					two:    limittest.NewLimiter(t, store, ratelimit.PerMinute("two", 2)),
					budget: limittest.NewBudget(t, store, ratelimit.PerHour("budget", 2)),
					calls:  limittest.NewInFlight(t, store, 1),
				}
				var call edge.Call
				settle := edge.Options{Settle: true}
				err = call.Decide(t.Context(), claims(l.budget, l.calls), settle)
				if err != nil || !call.Allowed() {
					t.Fatalf("%+v, %v", call.Results, err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				call.Settle(ctx, tt.keep)
				wantLeft(t, l, 2, 2, 1, 0)
				time.Sleep(tt.after)
				wantLeft(t, l, 2, 2, tt.left, 1)
				if !call.Settles() { // the program may still refer to the call
					t.Error("the call has no reservation")
				}
			})
		})
	}
}

// wantLeft checks how many units are left under each limiter.
func wantLeft(t *testing.T, l limiters, want ...int64) {
	t.Helper()
	for i, limiter := range []*ratelimit.Limiter{l.one, l.two, l.budget, l.calls} {
		if res, err := limiter.Peek(t.Context(), "k"); err != nil || res.Remaining != want[i] {
			t.Errorf("%+v, %v; want %d left", res, err, want[i])
		}
	}
}

// awayStore counts its calls, and answers none.
type awayStore struct{ calls int }

func (s *awayStore) Take(context.Context, driver.Demand) (ratelimit.Result, error) {
	s.calls++
	return ratelimit.Result{}, ratelimit.ErrUnavailable
}

func (s *awayStore) TakeAll(context.Context, []driver.Demand, []ratelimit.Result) error {
	s.calls++
	return ratelimit.ErrUnavailable
}

// TestUnavailable: a call that the policy admits is not settled, and one that it does not admit has
// no results.
func TestUnavailable(t *testing.T) {
	store := new(awayStore)
	l := limittest.NewBudget(t, store, ratelimit.PerMinute("one", 2))
	settle := edge.Options{Settle: true}
	var open, closed edge.Call
	err := open.Decide(t.Context(), claims(l.WithPolicy(ratelimit.FailOpen)), settle)
	if err != nil || !open.Allowed() || open.Results[0].Source != ratelimit.SourceOpen {
		t.Errorf("%+v, %v", open.Results, err)
	}
	open.Settle(t.Context(), true)
	open.Settle(t.Context(), false)
	if store.calls != 1 {
		t.Errorf("%d calls of the store, want that of the decision", store.calls)
	}
	for _, opts := range []edge.Options{{}, settle, {Wait: true}} {
		err = closed.Decide(t.Context(), claims(l), opts)
		if !errors.Is(err, ratelimit.ErrUnavailable) || closed.Results != nil ||
			closed.Allowed() || closed.Settles() {
			t.Errorf("%+v, %v", closed.Results, err)
		}
		closed.Settle(t.Context(), true)
	}
}

// lossyStore loses its answers.
type lossyStore struct{ ratelimit.Store }

func (s lossyStore) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	_, _ = s.Store.Take(ctx, d)
	return ratelimit.Result{}, ratelimit.ErrOutcomeUnknown
}

// TestLostAnswer: what the store may hold for a call that the policy has admitted is free when the
// call has ended.
func TestLostAnswer(t *testing.T) {
	store := limittest.NewStore(t, limittest.NewClock())
	l := limittest.NewInFlight(t, store, 1)
	lossy := limittest.NewInFlight(t, lossyStore{store}, 1).WithPolicy(ratelimit.FailOpen)
	for _, keep := range []bool{true, false} {
		var call edge.Call
		err := call.Decide(t.Context(), claims(lossy), edge.Options{})
		if err != nil || !call.Allowed() {
			t.Fatalf("%+v, %v", call.Results, err)
		}
		if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != 0 {
			t.Errorf("%+v, %v; want the unit held", res, err)
		}
		call.Settle(t.Context(), keep)
		if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != 1 {
			t.Errorf("keep %v: %+v, %v; want the unit free", keep, res, err)
		}
	}
}

// TestDecideLeast: a claim of which a part is enough gets it, alone too.
func TestDecideLeast(t *testing.T) {
	for _, wait := range []bool{false, true} {
		withLimiters(t, "", func(t *testing.T, l limiters) {
			var c edge.Call
			err := c.Decide(t.Context(),
				[]ratelimit.Claim{{Limiter: l.one, Key: "k", N: 9, Least: 1}},
				edge.Options{Wait: wait})
			if err != nil || c.Results[0].Units != 2 {
				t.Errorf("%+v, %v; want 2 units", c.Results, err)
			}
		})
	}
}
