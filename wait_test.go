package ratelimit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
)

func TestWaitSleepsExactlyRetryAfter(t *testing.T) {
	for _, tt := range []struct {
		name   string
		limits []ratelimit.Limit
		n      int64
		want   time.Duration
	}{
		{"one unit", []ratelimit.Limit{{Name: "w", Max: 3, Window: 10 * time.Second}}, 1,
			7 * time.Second},
		{"two units", []ratelimit.Limit{{Name: "w", Max: 3, Window: 10 * time.Second}}, 2,
			10 * time.Second},
		{"free", []ratelimit.Limit{{Name: "w", Max: 9, Window: 10 * time.Second}}, 1, 0},
		{"n of 0", []ratelimit.Limit{{Name: "w", Max: 3, Window: 10 * time.Second}}, 0,
			7 * time.Second},
		{"the slower of two limits",
			[]ratelimit.Limit{{Name: "a", Max: 3, Window: 10 * time.Second},
				{Name: "b", Max: 3, Window: time.Minute}}, 1, 57 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &mapStore{}
				limiter := newLimiter(t, store, tt.limits...)
				mustAllow(t, limiter, 1)
				time.Sleep(3 * time.Second)
				mustAllow(t, limiter, 2)
				store.made()

				start := time.Now()
				res, err := limiter.WaitN(t.Context(), "k", tt.n)
				if err != nil || !res.Allowed {
					t.Fatalf("WaitN: %+v, %v", res, err)
				}
				if got := time.Since(start); got != tt.want {
					t.Errorf("slept %v, want %v", got, tt.want)
				}
				wantCount := 2 // a refusal and an admission, nothing between
				if tt.want == 0 {
					wantCount = 1
				}
				if calls := store.made(); len(calls) != wantCount {
					t.Errorf("calls of the store: %q, want %d", calls, wantCount)
				}
			})
		})
	}
}

func TestWaitIsWaitNOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newLimiter(t, &mapStore{}, ratelimit.PerSecond("second", 2))
		start := time.Now()
		for i, want := range []int64{1, 0, 1} {
			res, err := limiter.Wait(t.Context(), "k")
			if err != nil || !res.Allowed || res.Remaining != want {
				t.Errorf("Wait %d: %+v, %v; want %d remaining", i, res, err, want)
			}
		}
		if got := time.Since(start); got != time.Second {
			t.Errorf("three of two a second took %v, want 1s", got)
		}
	})
}

func TestWaitAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newLimiter(t, &mapStore{}, ratelimit.PerSecond("second", 1))
		mustAllow(t, limiter, 1)
		start := time.Now()
		var mu sync.Mutex
		var took []time.Duration
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := limiter.Wait(t.Context(), "k"); err != nil {
					t.Errorf("Wait: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(start))
			})
		}
		wg.Wait()
		slices.Sort(took)
		if want := []time.Duration{time.Second, 2 * time.Second,
			3 * time.Second}; !slices.Equal(took, want) {
			t.Errorf("three waiters were admitted after %v, want %v", took, want)
		}
	})
}

func TestWaitDeadline(t *testing.T) {
	for _, tt := range []struct {
		name     string
		deadline time.Duration
		admitted bool
	}{
		{"nearer", 10*time.Second - time.Nanosecond, false},
		{"the same", 10 * time.Second, false},
		{"later", 10*time.Second + time.Nanosecond, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := newLimiter(t, &mapStore{},
					ratelimit.Limit{Name: "w", Max: 1, Window: 10 * time.Second})
				mustAllow(t, limiter, 1)
				ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
				defer cancel()
				start := time.Now()
				res, err := limiter.Wait(ctx, "k")
				if tt.admitted {
					if err != nil || !res.Allowed || time.Since(start) != 10*time.Second {
						t.Errorf("after %v: %+v, %v", time.Since(start), res, err)
					}
					return
				}
				wantErr(t, err, context.DeadlineExceeded)
				if errors.Is(err, ratelimit.ErrUnavailable) {
					t.Errorf("%v: the demand was decided", err)
				}
				if res.Allowed || res.RetryAfter != 10*time.Second {
					t.Errorf("result is %+v, want the refusal", res)
				}
				if got := time.Since(start); got != 0 {
					t.Errorf("gave up after %v, want at once", got)
				}
			})
		})
	}
}

func TestWaitContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newLimiter(t, &mapStore{},
			ratelimit.Limit{Name: "w", Max: 1, Window: 10 * time.Second})
		mustAllow(t, limiter, 1)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		start := time.Now()
		res, err := limiter.Wait(ctx, "k")
		wantErr(t, err, context.Canceled)
		if errors.Is(err, ratelimit.ErrUnavailable) {
			t.Errorf("%v: the demand was decided", err)
		}
		if res.Allowed || res.RetryAfter != 10*time.Second {
			t.Errorf("result is %+v, want the refusal", res)
		}
		if got := time.Since(start); got != 3*time.Second {
			t.Errorf("returned after %v, want 3s", got)
		}
		time.Sleep(7 * time.Second)
		if res, err := limiter.Peek(t.Context(), "k"); err != nil || res.Remaining != 1 {
			t.Errorf("a wait that was given up took something: %+v, %v", res, err)
		}
	})
}

func TestWaitErrorAfterASleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("the store's own")
		store := &mapStore{}
		limiter := newLimiter(t, store, ratelimit.PerSecond("second", 1))
		mustAllow(t, limiter, 1)
		time.AfterFunc(time.Second/2, func() {
			store.mu.Lock()
			defer store.mu.Unlock()
			store.err = cause
		})
		start := time.Now()
		if _, err := limiter.Wait(t.Context(), "k"); err != cause {
			t.Errorf("error is %v, want the store's own", err)
		}
		if got := time.Since(start); got != time.Second {
			t.Errorf("returned after %v, want 1s", got)
		}
	})
}

func mustAllow(t *testing.T, limiter *ratelimit.Limiter, n int64) {
	t.Helper()
	if res, err := limiter.AllowN(t.Context(), "k", n); err != nil || !res.Allowed {
		t.Fatalf("AllowN(%d): %+v, %v", n, res, err)
	}
}
