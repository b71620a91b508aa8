package ratelimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
)

// TestWaitAllEach: claims wait until all limits admit them together, take all or nothing, and give
// up at once if that is later than the deadline.
func TestWaitAllEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(mapStore)
		var seen []ratelimit.Observation
		observe := func(_ context.Context, o ratelimit.Observation) { seen = append(seen, o) }
		search := newLimiter(t, store, ratelimit.PerMinute("search", 1))
		quota := newLimiter(t, store, ratelimit.PerSecond("quota", 2)).WithObserver(observe)
		claims := []ratelimit.Claim{{Limiter: search, Key: "s", N: 1},
			{Limiter: quota, Key: "q", N: 2}}
		wait := func(timeout time.Duration) ([]ratelimit.Result, error) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			return ratelimit.WaitAllEach(ctx, nil, claims...)
		}
		began := time.Now()
		mustAllow(t, search, 0)
		for i := range 2 {
			if res, err := wait(time.Hour); err != nil || !res[0].Allowed || !res[1].Allowed {
				t.Fatalf("wait %d: %+v, %v", i, res, err)
			}
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("two waits took %v, want a minute", took)
		}
		res, err := wait(time.Minute)
		if !errors.Is(err, context.DeadlineExceeded) || len(res) != 2 || res[0].Allowed ||
			time.Since(began) != time.Minute {
			t.Errorf("%+v, %v after %v", res, err, time.Since(began))
		}
		time.Sleep(time.Second)
		if res, err := quota.AllowN(t.Context(), "q", 2); err != nil || !res.Allowed {
			t.Errorf("a wait that gave up took units: %+v, %v", res, err)
		}
		if len(seen) != 4 || seen[1].Waited != time.Minute || seen[2].Err == nil ||
			seen[0].Waited != 0 {
			t.Errorf("observed %+v", seen)
		}
	})
}

// TestWaitAllEachErrors: claims that can never be admitted together fail at once.
func TestWaitAllEachErrors(t *testing.T) {
	store := new(mapStore)
	l := newLimiter(t, store, ratelimit.PerMinute("a", 3))
	inFlight, err := ratelimit.NewInFlight(store, naiveLog{ratelimit.PerMinute("b", 3)})
	if err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		claims []ratelimit.Claim
		want   error
	}{
		{nil, ratelimit.ErrInvalid},
		{[]ratelimit.Claim{{Key: "k", N: 1}}, ratelimit.ErrInvalid},
		{[]ratelimit.Claim{{Limiter: inFlight, Key: "k", N: 1}}, ratelimit.ErrInvalid},
		{[]ratelimit.Claim{{Limiter: l, Key: "k", N: 4}}, ratelimit.ErrExceedsLimit},
		{[]ratelimit.Claim{{Limiter: l, Key: "k", N: 1}, {Limiter: l, Key: "k", N: 1}},
			ratelimit.ErrInvalid},
	} {
		if res, err := ratelimit.WaitAllEach(t.Context(), nil, tt.claims...); res != nil ||
			!errors.Is(err, tt.want) {
			t.Errorf("case %d: %v, %v; want %v", i, res, err, tt.want)
		}
	}
}

// TestWaitAllEachUnavailable: the wait goes on through an outage if all limiters are FailWait, and
// is admitted if all are FailOpen.
func TestWaitAllEachUnavailable(t *testing.T) {
	for _, tt := range []struct {
		one, two ratelimit.Policy
		ok       bool
		after    time.Duration // at least
	}{
		{ratelimit.FailWait, ratelimit.FailWait, true, 5 * time.Second},
		{ratelimit.FailWait, ratelimit.FailClosed, false, 0},
		{ratelimit.FailOpen, ratelimit.FailOpen, true, 0},
		{ratelimit.FailOpen, ratelimit.FailClosed, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := new(mapStore)
			store.fail(ratelimit.ErrUnavailable)
			time.AfterFunc(5*time.Second, func() { store.fail(nil) })
			began := time.Now()
			_, err := ratelimit.WaitAllEach(t.Context(), nil,
				ratelimit.Claim{Limiter: newLimiter(t, store, tenSeconds(3)).With(tt.one),
					Key: "a", N: 1},
				ratelimit.Claim{Limiter: newLimiter(t, store, tenSeconds(3)).With(tt.two),
					Key: "b", N: 1})
			if (err == nil) != tt.ok || time.Since(began) < tt.after ||
				err != nil && !errors.Is(err, ratelimit.ErrUnavailable) {
				t.Errorf("%v and %v: %v after %v", tt.one, tt.two, err, time.Since(began))
			}
		})
	}
}
