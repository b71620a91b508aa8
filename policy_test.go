package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

// failing is a store that returns the same result and error for every demand.
type failing struct {
	res ratelimit.Result
	err error
}

func (s failing) Take(context.Context, driver.Demand) (ratelimit.Result, error) {
	return s.res, s.err
}

func (s failing) TakeAll(_ context.Context, _ []driver.Demand, out []ratelimit.Result) error {
	for i := range out {
		out[i] = s.res
	}
	return s.err
}

// TestPolicy holds what each policy does with each error of a store. The result that the store
// returns with the error does not matter.
func TestPolicy(t *testing.T) {
	beside := []ratelimit.Result{
		{},
		{Allowed: true, Limit: driver.Limit{Max: 99}, Remaining: 98},
		{Allowed: true, Source: ratelimit.SourceOpen, Limit: driver.Limit{Max: 99}},
	}
	for _, tt := range []struct {
		policy ratelimit.Policy
		err    error
		open   bool
	}{
		{0, ratelimit.ErrUnavailable, false},
		{ratelimit.FailClosed, ratelimit.ErrUnavailable, false},
		{ratelimit.FailClosed, ratelimit.ErrOutcomeUnknown, false},
		{ratelimit.FailOpen, ratelimit.ErrUnavailable, true},
		{ratelimit.FailOpen, ratelimit.ErrOutcomeUnknown, true},
		{ratelimit.FailOpen, driver.ErrCapacity, false},
		{ratelimit.FailOpen, bothOf(ratelimit.ErrUnavailable, driver.ErrCapacity), false},
		{ratelimit.FailOpen, bothOf(driver.ErrCapacity, ratelimit.ErrOutcomeUnknown), false},
		{ratelimit.FailClosed, driver.ErrContended, false},
		{ratelimit.FailOpen, driver.ErrContended, false},
		{ratelimit.FailOpen, bothOf(ratelimit.ErrUnavailable, driver.ErrContended), false},
		{ratelimit.FailOpen, bothOf(driver.ErrContended, ratelimit.ErrOutcomeUnknown), false},
		{ratelimit.FailOpen, bothOf(ratelimit.ErrUnavailable, driver.ErrCorruptState), false},
		{ratelimit.FailOpen, driver.ErrClosed, true},
		{ratelimit.FailOpen, driver.ErrCorruptState, false},
		{ratelimit.FailOpen, ratelimit.ErrExceedsLimit, false},
		{ratelimit.FailOpen, ratelimit.ErrInvalid, false},
		{ratelimit.FailOpen, driver.ErrNoScript, false},
		{ratelimit.FailOpen, errors.New("other"), false},
		{ratelimit.FailWait, ratelimit.ErrOutcomeUnknown, false},
		{ratelimit.FailWait, driver.ErrCorruptState, false},
		{ratelimit.FailWait, bothOf(driver.ErrContended, ratelimit.ErrOutcomeUnknown), false},
		{ratelimit.FailWait, driver.ErrCapacity, false},
		{ratelimit.FailWait, bothOf(ratelimit.ErrUnavailable, driver.ErrCapacity), false},
		{ratelimit.FailWait, driver.ErrClosed, false},
		{ratelimit.FailWait + 1, ratelimit.ErrUnavailable, false},
	} {
		for limits := 1; limits <= 2; limits++ {
			for _, res := range beside {
				t.Run(fmt.Sprintf("%v, %v, %d limits", tt.policy, tt.err, limits),
					func(t *testing.T) {
						l := newLimiter(t, failing{res, tt.err}, minuteAndHour[:limits]...).
							WithPolicy(tt.policy)
						testPolicy(t, l, limits, tt.err, tt.open)
					})
			}
		}
	}
}

func bothOf(a, b error) error { return fmt.Errorf("%w; also: %w", a, b) }

// TestFullStoreUnderPolicies: no policy admits a new key because strangers have filled the memory
// store: single and together, in claims and waits.
func TestFullStoreUnderPolicies(t *testing.T) {
	synctest.Test(t, testFullStore)
}

func testFullStore(t *testing.T) {
	for policy := ratelimit.FailClosed; policy <= ratelimit.FailWait; policy++ {
		for limits := 1; limits <= 2; limits++ {
			store, err := memorystore.New(&memorystore.Options{MaxKeys: 10 * limits})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			l := newLimiter(t, store, minuteAndHour[:limits]...).WithPolicy(policy)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for i := range 10 {
				if _, err := l.Allow(t.Context(), fmt.Sprint("stranger", i)); err != nil {
					t.Fatal(err)
				}
			}
			for name, ask := range map[string]func() (ratelimit.Result, error){
				"Allow": func() (ratelimit.Result, error) { return l.Allow(t.Context(), "new") },
				"Force": func() (ratelimit.Result, error) { return l.Force(t.Context(), "new", 1) },
				"Peek":  func() (ratelimit.Result, error) { return l.Peek(t.Context(), "new") },
				"Wait":  func() (ratelimit.Result, error) { return l.Wait(ctx, "new") },
				"ReserveAll": func() (ratelimit.Result, error) {
					r, err := ratelimit.ReserveAll(t.Context(),
						ratelimit.Claim{Limiter: l, Key: "new", N: 1})
					if err != nil {
						return ratelimit.Result{}, err
					}
					return r.Result(), nil
				},
			} {
				if res, err := ask(); res.Allowed || !errors.Is(err, driver.ErrCapacity) ||
					errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, %d limits, %s: %+v, %v; want ErrCapacity", policy, limits,
						name, res, err)
				}
			}
		}
	}
}

var minuteAndHour = []ratelimit.Limit{ratelimit.PerMinute("minute", 7),
	ratelimit.PerHour("hour", 9)}

func testPolicy(t *testing.T, l *ratelimit.Limiter, limits int, cause error, open bool) {
	t.Helper()
	want := ratelimit.Result{}
	if open {
		want = ratelimit.Result{Allowed: true, Source: ratelimit.SourceOpen,
			Limit: minuteAndHour[0]}
	}
	units := map[string]int64{"Allow": 1, "AllowN": 2, "Wait": 1, "Force": 9, "AllowAll": 1}
	for name, ask := range map[string]func() (ratelimit.Result, error){
		"Allow":     func() (ratelimit.Result, error) { return l.Allow(t.Context(), "k") },
		"AllowN":    func() (ratelimit.Result, error) { return l.AllowN(t.Context(), "k", 2) },
		"AllowN(0)": func() (ratelimit.Result, error) { return l.AllowN(t.Context(), "k", 0) },
		"Peek":      func() (ratelimit.Result, error) { return l.Peek(t.Context(), "k") },
		"Wait":      func() (ratelimit.Result, error) { return l.Wait(t.Context(), "k") },
		"Force":     func() (ratelimit.Result, error) { return l.Force(t.Context(), "k", 9) },
	} {
		res, err := ask()
		if open {
			want.Units = units[name]
		}
		if res != want || open && err != nil || !open && !errors.Is(err, cause) {
			t.Errorf("%s: %+v, %v; want %+v", name, res, err, want)
		}
	}
	for name, ask := range map[string]func() ([]ratelimit.Result, error){
		"AllowAll": func() ([]ratelimit.Result, error) {
			return ratelimit.AllowAll(t.Context(), claim(l, 1))
		},
		"PeekAll": func() ([]ratelimit.Result, error) {
			return ratelimit.PeekAll(t.Context(), claim(l, 1))
		},
	} {
		each, err := ask()
		if !open {
			if !errors.Is(err, cause) || each != nil {
				t.Errorf("%s: %+v, %v", name, each, err)
			}
			continue
		}
		if err != nil || len(each) != limits {
			t.Fatalf("%s: %+v, %v", name, each, err)
		}
		for i, res := range each {
			want.Limit, want.Units = minuteAndHour[i], units[name]
			if res != want {
				t.Errorf("%s: limit %d: %+v, want %+v", name, i, res, want)
			}
		}
	}
	if err := l.Reset(t.Context(), "k"); !errors.Is(err, cause) {
		t.Errorf("Reset: %v, and nothing was reset", err)
	}
}

// TestPolicyEndedContext: no policy admits a call whose context ended before or during the call, by
// cancellation or by its deadline. Callers choose their deadlines, so a short one would be a way
// around the limit.
func TestPolicyEndedContext(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for _, s := range []ratelimit.Store{failing{err: ratelimit.ErrUnavailable}, silent{}} {
		for limits := 1; limits <= 2; limits++ {
			l := newLimiter(t, s, minuteAndHour[:limits]...).WithPolicy(ratelimit.FailOpen)
			during, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			for what, ctx := range map[string]context.Context{"canceled": canceled,
				"expired": expired, "during the call": during} {
				if _, ok := s.(silent); !ok && ctx == during {
					continue
				}
				if res, err := l.Allow(ctx, "k"); !errors.Is(err, ratelimit.ErrUnavailable) ||
					res != (ratelimit.Result{}) {
					t.Errorf("%T, %d limits, %s: %+v, %v", s, limits, what, res, err)
				}
				if each, err := ratelimit.AllowAll(ctx, claim(l, 1)); each != nil ||
					!errors.Is(err, ratelimit.ErrUnavailable) {
					t.Errorf("%T, %d limits, %s: %+v, %v", s, limits, what, each, err)
				}
			}
		}
	}
}

// silent is a store that never answers.
type silent struct{}

func (silent) Take(ctx context.Context, _ driver.Demand) (ratelimit.Result, error) {
	<-ctx.Done()
	return ratelimit.Result{}, fmt.Errorf("%w: %w", ratelimit.ErrUnavailable, ctx.Err())
}

func (s silent) TakeAll(ctx context.Context, ds []driver.Demand, _ []ratelimit.Result) error {
	_, err := s.Take(ctx, ds[0])
	return err
}

// TestWithChangesNothingElse: WithPolicy and WithObserver return new limiters and do not change the
// limiter that they are called on.
func TestWithChangesNothingElse(t *testing.T) {
	for limits := 1; limits <= 2; limits++ {
		closed := newLimiter(t, failing{err: ratelimit.ErrUnavailable}, minuteAndHour[:limits]...)
		observed := 0
		open := closed.WithPolicy(ratelimit.FailOpen).
			WithObserver(func(context.Context, ratelimit.Observation) {
				observed++
			})
		testPolicy(t, closed, limits, ratelimit.ErrUnavailable, false)
		if observed != 0 {
			t.Errorf("%d limits: the first limiter has the observer of the second", limits)
		}
		testPolicy(t, open, limits, ratelimit.ErrUnavailable, true)
		if observed != 9 {
			t.Errorf("%d limits: %d observations, want one for each of 9 calls", limits, observed)
		}
		testPolicy(t, open.WithPolicy(0).WithObserver(nil), limits, ratelimit.ErrUnavailable, false)
		if observed != 9 {
			t.Errorf("%d limits: an observer that was removed is called", limits)
		}
	}
}

func TestPolicyString(t *testing.T) {
	for p, want := range map[ratelimit.Policy]string{ratelimit.FailClosed: "closed",
		ratelimit.FailOpen: "open", ratelimit.FailWait: "wait", 9: "policy(9)"} {
		if s := p.String(); s != want {
			t.Errorf("String of a policy = %q, want %q", s, want)
		}
	}
}
