package edge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/internal/testkit/limittest"
)

// TestDo: however f ends, calls in flight are released, and units under Budgets are kept unless f
// returns an error.
func TestDo(t *testing.T) {
	failed := errors.New("failed")
	for _, tt := range []struct {
		name  string
		f     func(context.Context) error
		err   error
		panic any
		left  int64 // of the Budget
	}{
		{"succeeds", func(context.Context) error { return nil }, nil, nil, 1},
		{"fails", func(context.Context) error { return failed }, failed, nil, 2},
		{"panics", func(context.Context) error { panic("f") }, nil, "f", 1},
	} {
		withLimiters(t, tt.name, func(t *testing.T, l limiters) {
			func() {
				defer func() {
					if r := recover(); r != tt.panic {
						t.Errorf("panic %v", r)
					}
				}()
				err := edge.Do(t.Context(), claims(l.one, l.budget, l.calls),
					edge.Options{Settle: true}, func(ctx context.Context) error {
						wantLeft(t, l, 1, 2, 1, 0)
						return tt.f(ctx)
					})
				if err != tt.err {
					t.Errorf("%v, want %v", err, tt.err)
				}
			}()
			wantLeft(t, l, 1, 2, tt.left, 1)
		})
	}
}

// TestDoNot: a call that is not admitted is not made, and RetryAfter says whether and after how
// long it may be.
func TestDoNot(t *testing.T) {
	withLimiters(t, "all", func(t *testing.T, l limiters) {
		away, err := ratelimit.New(new(awayStore), l.one.Algorithms()...)
		if err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		other := limittest.NewLimiter(t, limittest.NewStore(t, nil), ratelimit.PerHour("other", 1))
		for range 2 {
			if _, err := l.one.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		held, err := l.calls.Reserve(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		defer held.Cancel(t.Context())
		for _, tt := range []struct {
			name   string
			ctx    context.Context
			claims []ratelimit.Claim
			reason edge.Reason
			wait   time.Duration // 0: it does not help
			err    error
			text   string
		}{
			{"refused", t.Context(), claims(l.one), edge.Exceeded, time.Minute, nil,
				"rate limit exceeded: one"},
			{"in flight", t.Context(), claims(l.calls), edge.Exceeded, time.Second, nil,
				"rate limit exceeded: calls"},
			{"away", t.Context(), claims(away), edge.Undecided, time.Second,
				ratelimit.ErrUnavailable, ""},
			{"never", t.Context(), []ratelimit.Claim{{Limiter: l.one, Key: "k", N: 3}}, edge.Never,
				0, ratelimit.ErrExceedsLimit, ""},
			{"no key", t.Context(), []ratelimit.Claim{{Limiter: l.one, N: 1}}, edge.Unattributed, 0,
				edge.ErrNoKey, ""},
			{"two stores", t.Context(), claims(l.one, other), edge.Misconfigured, 0,
				ratelimit.ErrInvalid, ""},
			{"ended", ended, claims(l.one), edge.Ended, 0, context.Canceled, ""},
		} {
			err := edge.Do(tt.ctx, tt.claims, edge.Options{}, func(context.Context) error {
				t.Errorf("%s: f was called", tt.name)
				return nil
			})
			var refused *edge.RefusedError
			if !errors.As(err, &refused) || refused.Refusal.Reason != tt.reason ||
				!errors.Is(err, tt.err) && tt.err != nil {
				t.Errorf("%s: %v", tt.name, err)
				continue
			}
			want := tt.text
			if want == "" {
				want = fmt.Sprintf("edge: %v: %v", tt.reason, refused.Err)
			}
			if err.Error() != want {
				t.Errorf("%s: %v, want %s", tt.name, err, want)
			}
			wait, ok := edge.RetryAfter(fmt.Errorf("a job: %w", err))
			if wait != tt.wait || ok != (tt.wait > 0) {
				t.Errorf("%s: wait %v, %t; want %v", tt.name, wait, ok, tt.wait)
			}
		}
	})
	for _, err := range []error{nil, ratelimit.ErrUnavailable} {
		if wait, ok := edge.RetryAfter(err); ok || wait != 0 {
			t.Errorf("%v: wait %v, %t", err, wait, ok)
		}
	}
}

// TestDoWithoutClaims: a call without claims is made.
func TestDoWithoutClaims(t *testing.T) {
	failed := errors.New("failed")
	err := edge.Do(t.Context(), nil, edge.Options{}, func(context.Context) error { return failed })
	if err != failed {
		t.Error(err)
	}
}

// TestManyRefused: of many calls that come back after exactly RetryAfter, all come back for each
// unit that is free. If they come back at a random time in the window after that, each asks some
// times, and none waits much longer.
func TestManyRefused(t *testing.T) {
	const calls, most = 300, 60
	tries := func(spread time.Duration) (tries int, took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			limiter := limittest.NewLimiter(t, limittest.NewStore(t, nil),
				ratelimit.PerMinute("minute", most))
			for range most {
				time.Sleep(time.Minute / most)
				if _, err := limiter.Allow(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			var asked atomic.Int64
			var wg sync.WaitGroup
			for range calls {
				wg.Go(func() {
					later := true
					for later {
						asked.Add(1)
						err := edge.Do(t.Context(), claims(limiter), edge.Options{},
							func(context.Context) error { return nil })
						var wait time.Duration
						if wait, later = edge.RetryAfter(err); later {
							time.Sleep(wait + time.Duration(rand.Int64N(int64(spread))))
						}
					}
				})
			}
			wg.Wait()
			tries, took = int(asked.Load()), time.Since(began)
		})
		return tries, took
	}
	exact, soon := tries(1)
	spread, late := tries(time.Minute)
	t.Logf("%d calls, %d a minute: after RetryAfter, %d tries in %v; in the minute after it, %d "+
		"tries in %v", calls, most, exact, soon, spread, late)
	if exact < calls*calls/4 || spread > calls*30 {
		t.Errorf("%d and %d tries", exact, spread)
	}
	if late > soon+2*time.Minute {
		t.Errorf("%v and %v", soon, late)
	}
}
