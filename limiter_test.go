package ratelimit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
)

func TestNewErrors(t *testing.T) {
	store := &mapStore{}
	second := naiveLog{ratelimit.PerSecond(10)}
	tests := []struct {
		name       string
		store      ratelimit.Store
		algorithms []ratelimit.Algorithm
		want       error
	}{
		{"no store", nil, []ratelimit.Algorithm{second}, ratelimit.ErrInvalidLimit},
		{"no limit", store, nil, ratelimit.ErrInvalidLimit},
		{"nil algorithm", store, []ratelimit.Algorithm{second, nil}, ratelimit.ErrInvalidLimit},
		{"Max zero", store, []ratelimit.Algorithm{naiveLog{ratelimit.PerSecond(0)}}, ratelimit.ErrInvalidLimit},
		{"Window zero", store, []ratelimit.Algorithm{second, naiveLog{ratelimit.Limit{Max: 1}}}, ratelimit.ErrInvalidLimit},
		{"same window", store, []ratelimit.Algorithm{second, naiveLog{ratelimit.PerSecond(20)}}, ratelimit.ErrDuplicateDemand},
		{"same name", store, []ratelimit.Algorithm{
			naiveLog{ratelimit.PerSecond(10).Named("burst")}, naiveLog{ratelimit.PerDay(10).Named("burst")},
		}, ratelimit.ErrDuplicateDemand},
		{"a name that is the other's default", store, []ratelimit.Algorithm{
			second, naiveLog{ratelimit.PerDay(10).Named("1s")},
		}, ratelimit.ErrDuplicateDemand},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			limiter, err := ratelimit.New(tt.store, tt.algorithms...)
			wantErr(t, err, tt.want)
			if limiter != nil {
				t.Error("got a Limiter with an error")
			}
		})
	}
	wantCalls(t, store)
}

func TestNewCopiesItsArguments(t *testing.T) {
	algorithms := []ratelimit.Algorithm{naiveLog{ratelimit.PerSecond(1)}, naiveLog{ratelimit.PerDay(2).Named("quota")}}
	limiter, err := ratelimit.New(&mapStore{}, algorithms...)
	if err != nil {
		t.Fatal(err)
	}
	algorithms[0] = naiveLog{ratelimit.PerHour(9)}
	want := []ratelimit.Limit{ratelimit.PerSecond(1).Named("1s"), ratelimit.PerDay(2).Named("quota")}
	got := limiter.Limits()
	if !slices.Equal(got, want) {
		t.Errorf("Limits = %v, want %v", got, want)
	}
	got[0].Max = 100
	if !slices.Equal(limiter.Limits(), want) {
		t.Error("Limits gives its own slice away")
	}
}

// methods is every method of a Limiter that decides, with n where it takes one.
var methods = []struct {
	name  string
	usesN bool
	call  func(l *ratelimit.Limiter, ctx context.Context, key string, n int64) error
}{
	{"Allow", false, func(l *ratelimit.Limiter, ctx context.Context, key string, n int64) error {
		_, err := l.Allow(ctx, key)
		return err
	}},
	{"AllowN", true, func(l *ratelimit.Limiter, ctx context.Context, key string, n int64) error {
		_, err := l.AllowN(ctx, key, n)
		return err
	}},
	{"AllowEach", true, func(l *ratelimit.Limiter, ctx context.Context, key string, n int64) error {
		dst := []ratelimit.Result{{Limit: 77}}
		got, err := l.AllowEach(ctx, key, n, dst)
		if err != nil && !slices.Equal(got, dst) {
			return errors.New("dst was changed by a call that failed")
		}
		return err
	}},
	{"Peek", false, func(l *ratelimit.Limiter, ctx context.Context, key string, n int64) error {
		_, err := l.Peek(ctx, key)
		return err
	}},
	{"PeekEach", true, func(l *ratelimit.Limiter, ctx context.Context, key string, n int64) error {
		dst := []ratelimit.Result{{Limit: 77}}
		got, err := l.PeekEach(ctx, key, n, dst)
		if err != nil && !slices.Equal(got, dst) {
			return errors.New("dst was changed by a call that failed")
		}
		return err
	}},
	{"Reset", false, func(l *ratelimit.Limiter, ctx context.Context, key string, n int64) error {
		return l.Reset(ctx, key)
	}},
	{"Wait", false, func(l *ratelimit.Limiter, ctx context.Context, key string, n int64) error {
		_, err := l.Wait(ctx, key)
		return err
	}},
	{"WaitN", true, func(l *ratelimit.Limiter, ctx context.Context, key string, n int64) error {
		_, err := l.WaitN(ctx, key, n)
		return err
	}},
}

func TestValidationBeforeIO(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	tests := []struct {
		name  string
		ctx   context.Context
		key   string
		n     int64
		needN bool
		want  []error
	}{
		{"empty key", t.Context(), "", 1, false, []error{ratelimit.ErrInvalidDemand}},
		{"n negative", t.Context(), "k", -1, true, []error{ratelimit.ErrInvalidDemand}},
		{"n least", t.Context(), "k", -1 << 63, true, []error{ratelimit.ErrInvalidDemand}},
		{"n beyond the limit", t.Context(), "k", 4, true, []error{ratelimit.ErrExceedsLimit}},
		{"n beyond MaxUnits", t.Context(), "k", ratelimit.MaxUnits + 1, true, []error{ratelimit.ErrInvalidDemand}},
		{"context ended", ended, "k", 1, false, []error{ratelimit.ErrUnavailable, context.Canceled}},
	}
	for _, limits := range [][]ratelimit.Limit{
		{ratelimit.PerSecond(3)},
		{ratelimit.PerDay(100), ratelimit.PerSecond(3)},
	} {
		for _, tt := range tests {
			for _, m := range methods {
				if tt.needN && !m.usesN {
					continue
				}
				t.Run(m.name+"/"+tt.name, func(t *testing.T) {
					store := &mapStore{}
					limiter := newLimiter(t, store, limits...)
					err := m.call(limiter, tt.ctx, tt.key, tt.n)
					wantErr(t, err, tt.want...)
					if errors.Is(err, ratelimit.ErrOutcomeUnknown) {
						t.Errorf("%v says that it may have been sent", err)
					}
					wantCalls(t, store)
				})
			}
		}
	}
}

func TestStoreErrorsPassThrough(t *testing.T) {
	for _, limits := range [][]ratelimit.Limit{
		{ratelimit.PerSecond(3)},
		{ratelimit.PerDay(100), ratelimit.PerSecond(3)},
	} {
		for _, m := range methods {
			t.Run(m.name, func(t *testing.T) {
				cause := errors.New("the store's own")
				store := &mapStore{err: cause}
				limiter := newLimiter(t, store, limits...)
				if err := m.call(limiter, t.Context(), "k", 1); err != cause {
					t.Errorf("error is %v, want the store's own", err)
				}
				if n := len(store.made()); n != 1 {
					t.Errorf("%d calls of the store, want 1", n)
				}
			})
		}
	}
}

func TestAllow(t *testing.T) {
	clock := newClock()
	store := &mapStore{now: clock.now}
	limiter := newLimiter(t, store, ratelimit.Limit{Max: 3, Window: 10 * time.Second})
	const second = time.Second
	steps := []struct {
		after   time.Duration
		n       int64 // -1 peeks
		allowed bool
		remain  int64
		retry   time.Duration
		reset   time.Duration
	}{
		{0, 1, true, 2, 0, 10 * second},
		{second, 2, true, 0, 0, 10 * second},
		{second, 1, false, 0, 8 * second, 9 * second},
		{0, 2, false, 0, 9 * second, 9 * second},
		{0, -1, false, 0, 8 * second, 9 * second},
		{0, 0, false, 0, 8 * second, 9 * second},
		{8*second - time.Microsecond, 1, false, 0, time.Microsecond, second + time.Microsecond},
		{time.Microsecond, -1, true, 1, 0, second},
		{0, 0, true, 1, 0, second},
		{0, 1, true, 0, 0, 10 * second},
		{second, 2, true, 0, 0, 10 * second},
		{20 * second, -1, true, 3, 0, 0},
	}
	for i, s := range steps {
		clock.advance(s.after)
		var got ratelimit.Result
		var err error
		switch s.n {
		case -1:
			got, err = limiter.Peek(t.Context(), "k")
		case 1:
			got, err = limiter.Allow(t.Context(), "k")
		default:
			got, err = limiter.AllowN(t.Context(), "k", s.n)
		}
		want := ratelimit.Result{Allowed: s.allowed, Limit: 3, Remaining: s.remain, RetryAfter: s.retry, ResetAfter: s.reset, At: clock.now()}
		if err != nil || got != want {
			t.Fatalf("step %d: got %+v, %v\nwant %+v", i, got, err, want)
		}
	}
	other, err := limiter.Allow(t.Context(), "another")
	if err != nil || other.Remaining != 2 {
		t.Errorf("another key: %+v, %v", other, err)
	}
}

func TestReset(t *testing.T) {
	for _, limits := range [][]ratelimit.Limit{
		{ratelimit.PerSecond(1)},
		{ratelimit.PerSecond(1), ratelimit.PerDay(1)},
	} {
		clock := newClock()
		store := &mapStore{now: clock.now}
		limiter := newLimiter(t, store, limits...)
		for _, key := range []string{"k", "other"} {
			if res, err := limiter.Allow(t.Context(), key); err != nil || !res.Allowed {
				t.Fatalf("Allow: %+v, %v", res, err)
			}
		}
		if err := limiter.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]bool{"k": true, "other": false} {
			each, err := limiter.PeekEach(t.Context(), key, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, res := range each {
				if res.Allowed != want {
					t.Errorf("after Reset of k, limit %d of %s: %+v", i, key, res)
				}
			}
		}
	}
}

func TestSeveralLimits(t *testing.T) {
	clock := newClock()
	store := &mapStore{now: clock.now}
	limiter := newLimiter(t, store, ratelimit.PerSecond(2), ratelimit.PerMinute(3))
	each := func(n int64) []ratelimit.Result {
		t.Helper()
		got, err := limiter.AllowEach(t.Context(), "k", n, nil)
		if err != nil || len(got) != 2 {
			t.Fatalf("AllowEach: %+v, %v", got, err)
		}
		return got
	}
	want := func(got, want []ratelimit.Result) {
		t.Helper()
		for i := range want {
			want[i].At = clock.now()
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %+v\nwant %+v", got, want)
		}
	}

	want(each(2), []ratelimit.Result{
		{Allowed: true, Limit: 2, Remaining: 0, ResetAfter: time.Second},
		{Allowed: true, Limit: 3, Remaining: 1, ResetAfter: time.Minute},
	})
	want(each(1), []ratelimit.Result{ // the second refuses, and the minute keeps its unit
		{Allowed: false, Limit: 2, RetryAfter: time.Second, ResetAfter: time.Second},
		{Allowed: true, Limit: 3, Remaining: 1, ResetAfter: time.Minute},
	})
	clock.advance(time.Second)
	want(each(2), []ratelimit.Result{ // the minute refuses, and the second keeps both
		{Allowed: true, Limit: 2, Remaining: 2},
		{Allowed: false, Limit: 3, Remaining: 1, RetryAfter: 59 * time.Second, ResetAfter: 59 * time.Second},
	})
	want(each(0), []ratelimit.Result{
		{Allowed: true, Limit: 2, Remaining: 2},
		{Allowed: true, Limit: 3, Remaining: 1, ResetAfter: 59 * time.Second},
	})
	want(each(1), []ratelimit.Result{
		{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: time.Second},
		{Allowed: true, Limit: 3, Remaining: 0, ResetAfter: time.Minute},
	})

	// Allow and Peek answer with the limit that binds.
	for name, call := range map[string]func() (ratelimit.Result, error){
		"Allow":  func() (ratelimit.Result, error) { return limiter.Allow(t.Context(), "k") },
		"AllowN": func() (ratelimit.Result, error) { return limiter.AllowN(t.Context(), "k", 0) },
		"Peek":   func() (ratelimit.Result, error) { return limiter.Peek(t.Context(), "k") },
	} {
		res, err := call()
		wantRes := ratelimit.Result{Limit: 3, RetryAfter: 59 * time.Second, ResetAfter: time.Minute, At: clock.now()}
		if err != nil || res != wantRes {
			t.Errorf("%s: got %+v, %v; want %+v", name, res, err, wantRes)
		}
	}
}

func TestOneCallOfTheStore(t *testing.T) {
	for _, tt := range []struct {
		call   string
		limits []ratelimit.Limit
	}{
		{"one", []ratelimit.Limit{ratelimit.PerSecond(2)}},
		{"all", []ratelimit.Limit{ratelimit.PerSecond(2), ratelimit.PerDay(2)}},
	} {
		store := &mapStore{}
		limiter := newLimiter(t, store, tt.limits...)
		for _, m := range methods {
			if err := m.call(limiter, t.Context(), m.name, 1); err != nil {
				t.Fatalf("%s: %v", m.name, err)
			}
			op := "take"
			switch m.name {
			case "Peek", "PeekEach":
				op = "look"
			case "Reset":
				op = "reset"
			}
			wantCalls(t, store, tt.call+" "+op)
		}
	}
}

func TestEachAppends(t *testing.T) {
	for _, limits := range [][]ratelimit.Limit{
		{ratelimit.PerSecond(5)},
		{ratelimit.PerSecond(5), ratelimit.PerMinute(6), ratelimit.PerHour(7)},
	} {
		clock := newClock()
		limiter := newLimiter(t, &mapStore{now: clock.now}, limits...)
		first := ratelimit.Result{Limit: 77}
		dst := make([]ratelimit.Result, 1, 8)
		dst[0] = first
		for _, call := range []struct {
			name  string
			each  func(n int64) ([]ratelimit.Result, error)
			taken int64
		}{
			{"PeekEach", func(n int64) ([]ratelimit.Result, error) { return limiter.PeekEach(t.Context(), "k", n, dst) }, 0},
			{"AllowEach", func(n int64) ([]ratelimit.Result, error) { return limiter.AllowEach(t.Context(), "k", n, dst) }, 4},
		} {
			got, err := call.each(4)
			if err != nil || len(got) != 1+len(limits) || got[0] != first {
				t.Fatalf("%s: got %+v, %v", call.name, got, err)
			}
			if &got[0] != &dst[0] {
				t.Errorf("%s: dst had room and was not used", call.name)
			}
			for i, res := range got[1:] {
				if !res.Allowed || res.Limit != limits[i].Max || res.Remaining != limits[i].Max-call.taken {
					t.Errorf("%s: limit %v answered %+v", call.name, limits[i], res)
				}
			}
		}
		// Three units no longer fit in some limit; one, which is what n = 0 asks for, fits in all.
		got, err := limiter.PeekEach(t.Context(), "k", 0, nil)
		if err != nil || !got[0].Allowed || got[0].Remaining != 1 {
			t.Errorf("PeekEach(0): %+v, %v", got, err)
		}
		got, err = limiter.PeekEach(t.Context(), "k", 3, nil)
		if err != nil || got[0].Allowed {
			t.Errorf("PeekEach(3): %+v, %v", got, err)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	const goroutines, calls, most = 16, 50, 100
	for _, limits := range [][]ratelimit.Limit{
		{ratelimit.PerDay(most)},
		{ratelimit.PerHour(10 * most), ratelimit.PerDay(most)},
	} {
		limiter := newLimiter(t, &mapStore{now: newClock().now}, limits...)
		var admitted [2]atomic.Int64 // by key
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				var each []ratelimit.Result
				for i := range calls {
					which := (g + i) % 2
					key := []string{"a", "b"}[which]
					var err error
					if each, err = limiter.AllowEach(t.Context(), key, 1, each[:0]); err != nil {
						t.Errorf("AllowEach: %v", err)
						return
					}
					if each[ratelimit.Binding(each)].Allowed {
						admitted[which].Add(1)
					}
					if _, err := limiter.Peek(t.Context(), key); err != nil {
						t.Errorf("Peek: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
		for i := range admitted {
			if n := admitted[i].Load(); n != most {
				t.Errorf("%d limits: %d of %d calls on key %d admitted, want %d", len(limits), n, goroutines*calls/2, i, most)
			}
		}
	}
}
