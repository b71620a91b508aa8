package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
)

// TestWaitAll: claims wait until all limits admit them together, take all or nothing, and give
// up at once if that is later than the deadline.
func TestWaitAll(t *testing.T) {
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
			return ratelimit.WaitAll(ctx, claims...)
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

// TestWaitAllResults: the results are those of all limits, also of a refusal. There are none if the
// store was not called.
func TestWaitAllResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newLimiter(t, &mapStore{},
			ratelimit.PerSecond("second", 2), ratelimit.PerMinute("minute", 3))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		wait := func(n int64, wantErr error, want ...[2]int64) {
			t.Helper()
			results, err := ratelimit.WaitAll(ctx, claim(limiter, n))
			if !errors.Is(err, wantErr) {
				t.Errorf("%d units: %v, want %v", n, err, wantErr)
			}
			var got [][2]int64
			for _, res := range results {
				got = append(got, [2]int64{res.Remaining, int64(res.RetryAfter / time.Second)})
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d units: remaining and seconds to wait are %v, want %v", n, got, want)
			}
		}
		wait(2, nil, [2]int64{0, 0}, [2]int64{1, 0})
		wait(1, nil, [2]int64{1, 0}, [2]int64{0, 0})
		wait(1, context.DeadlineExceeded, [2]int64{1, 0}, [2]int64{0, 59})
		wait(3, ratelimit.ErrExceedsLimit)
		cancel()
		wait(1, context.Canceled)
	})
}

// TestWaitAllInFlight: claims on calls in flight are admitted soon after a call has ended, at once
// if they come first, and do not give up because RetryAfter is beyond the deadline. They give up at
// once if another limit cannot admit them in time.
func TestWaitAllInFlight(t *testing.T) {
	for _, tt := range []inFlightWait{
		{"released", 0, 3 * time.Second, 9 * time.Second, true, 3 * time.Second},
		{"not released", 0, 0, 9 * time.Second, false, 9 * time.Second},
		{"released before the tokens are free", 3, 3 * time.Second, 11 * time.Second, true,
			10 * time.Second},
		{"released after the tokens are free", 3, 12 * time.Second, 20 * time.Second, true,
			12 * time.Second},
		{"the tokens are free too late", 3, 3 * time.Second, 10 * time.Second, false, 0},
	} {
		for _, callsFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, calls first %t", tt.name, callsFirst), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { tt.test(t, callsFirst) })
			})
		}
	}
}

// inFlightWait is a wait for a call in flight, of which there is one, and for a token.
type inFlightWait struct {
	name     string
	spent    int64         // of 3 tokens, for 10 s
	release  time.Duration // of the call, or 0
	deadline time.Duration
	admitted bool
	after    time.Duration
}

func (tt inFlightWait) test(t *testing.T, callsFirst bool) {
	store := new(mapStore)
	calls, tokens := newCalls(t, store, 1), newLimiter(t, store, tenSeconds(3))
	claims := []ratelimit.Claim{claim(calls, 1), claim(tokens, 1)}
	if !callsFirst {
		slices.Reverse(claims)
	}
	held := mustAcquire(t, calls)
	mustAllow(t, tokens, tt.spent)
	if tt.release > 0 {
		time.AfterFunc(tt.release, func() { _ = held.Cancel(context.Background()) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
	defer cancel()
	began := time.Now()
	r, err := ratelimit.AcquireAll(ctx, claims...)
	late, most := time.Since(began)-tt.after, time.Duration(0)
	if tt.admitted && tt.after == tt.release && !callsFirst {
		most = 160 * time.Millisecond
	}
	if late < 0 || late > most {
		t.Errorf("ended %v after %v, want at most %v", late, tt.after, most)
	}
	var want error
	if !tt.admitted {
		want = context.DeadlineExceeded
	}
	if r == nil || r.Allowed() != tt.admitted || !errors.Is(err, want) {
		t.Fatalf("%+v, %v; want admitted %t", r, err, tt.admitted)
	}
	wantNoQueue(t, claims[0].Limiter)
}

// TestWaitAllUnavailable: the wait goes on through an outage if all limiters are FailWait, and is
// admitted if all are FailOpen.
func TestWaitAllUnavailable(t *testing.T) {
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
			_, err := ratelimit.WaitAll(t.Context(),
				ratelimit.Claim{Limiter: newLimiter(t, store, tenSeconds(3)).WithPolicy(tt.one),
					Key: "a", N: 1},
				ratelimit.Claim{Limiter: newLimiter(t, store, tenSeconds(3)).WithPolicy(tt.two),
					Key: "b", N: 1})
			if (err == nil) != tt.ok || time.Since(began) < tt.after ||
				err != nil && !errors.Is(err, ratelimit.ErrUnavailable) {
				t.Errorf("%v and %v: %v after %v", tt.one, tt.two, err, time.Since(began))
			}
		})
	}
}
