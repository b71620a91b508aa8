package ratelimit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

func TestNewErrors(t *testing.T) {
	store := &mapStore{}
	second := naiveLog{ratelimit.PerSecond("second", 10)}
	tests := []struct {
		name       string
		store      ratelimit.Store
		algorithms []ratelimit.Algorithm
		want       error
	}{
		{"no store", nil, []ratelimit.Algorithm{second}, ratelimit.ErrInvalid},
		{"no limit", store, nil, ratelimit.ErrInvalid},
		{"nil algorithm", store, []ratelimit.Algorithm{second, nil}, ratelimit.ErrInvalid},
		{"values that cannot be compared", store, []ratelimit.Algorithm{uncomparable{second, nil}},
			ratelimit.ErrInvalid},
		{"Max zero", store, []ratelimit.Algorithm{naiveLog{ratelimit.PerSecond("second", 0)}},
			ratelimit.ErrInvalid},
		{"Window zero", store, []ratelimit.Algorithm{second,
			naiveLog{ratelimit.Limit{Name: "l", Max: 1}}}, ratelimit.ErrInvalid},
		{"same name", store, []ratelimit.Algorithm{second,
			naiveLog{ratelimit.PerDay("second", 20)}}, ratelimit.ErrInvalid},
		{"no name", store, []ratelimit.Algorithm{naiveLog{ratelimit.PerSecond("", 10)}},
			ratelimit.ErrInvalid},
		{"second without a name", store,
			[]ratelimit.Algorithm{second, naiveLog{ratelimit.PerDay("", 10)}},
			ratelimit.ErrInvalid},
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

// TestNewWantsNames: the error of a limit without a name says what to write.
func TestNewWantsNames(t *testing.T) {
	_, err := ratelimit.New(&mapStore{}, naiveLog{ratelimit.Limit{Max: 60, Window: time.Minute}})
	wantErr(t, err, ratelimit.ErrInvalid)
	for _, text := range []string{"60/1m0s has no name", `ratelimit.PerMinute("login", 60)`} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("the error %q does not say %q", err, text)
		}
	}
}

// TestLimitsShareNothing: two limiters on one store never share the history of a key by accident,
// because limits have names.
func TestLimitsShareNothing(t *testing.T) {
	store := &mapStore{now: newClock().now}
	pages := newLimiter(t, store, ratelimit.PerMinute("pages", 60))
	login := newLimiter(t, store, ratelimit.PerMinute("login", 5))
	for range 60 {
		mustAllow(t, pages, 1)
	}
	for range 5 {
		mustAllow(t, login, 1)
	}
	for name, l := range map[string]*ratelimit.Limiter{"pages": pages, "login": login} {
		if res, err := l.Allow(t.Context(), "k"); err != nil || res.Allowed {
			t.Errorf("%s admits more than its limit: %+v, %v", name, res, err)
		}
	}
}

// uncomparable is an algorithm whose values == cannot compare.
type uncomparable struct {
	naiveLog
	_ []int
}

func TestNewCopiesItsArguments(t *testing.T) {
	algorithms := []ratelimit.Algorithm{naiveLog{ratelimit.PerSecond("second", 1)},
		naiveLog{ratelimit.PerDay("quota", 2)}}
	limiter, err := ratelimit.New(&mapStore{}, algorithms...)
	if err != nil {
		t.Fatal(err)
	}
	algorithms[0] = naiveLog{ratelimit.PerHour("hour", 9)}
	want := []ratelimit.Limit{ratelimit.PerSecond("second", 1), ratelimit.PerDay("quota", 2)}
	if got := limiter.Limits(); !slices.Equal(got, want) {
		t.Errorf("Limits = %v, want %v", got, want)
	}
}

// methods is every call that decides for one limiter, with n where it takes one.
var methods = []struct {
	name  string
	usesN bool
	op    driver.Op
	call  func(l *ratelimit.Limiter, ctx context.Context, key string, n int64) error
}{
	{"Allow", false, driver.OpTake,
		func(l *ratelimit.Limiter, ctx context.Context, key string, n int64) error {
			_, err := l.Allow(ctx, key)
			return err
		}},
	{"AllowN", true, driver.OpTake,
		func(l *ratelimit.Limiter, ctx context.Context, key string, n int64) error {
			_, err := l.AllowN(ctx, key, n)
			return err
		}},
	{"AllowAll", true, driver.OpTake, all(ratelimit.AllowAll)},
	{"WaitAll", true, driver.OpTake, all(ratelimit.WaitAll)},
	{"Peek", false, driver.OpPeek,
		func(l *ratelimit.Limiter, ctx context.Context, key string, n int64) error {
			_, err := l.Peek(ctx, key)
			return err
		}},
	{"PeekAll", true, driver.OpPeek, all(ratelimit.PeekAll)},
	{"Force", true, driver.OpForce,
		func(l *ratelimit.Limiter, ctx context.Context, key string, n int64) error {
			_, err := l.Force(ctx, key, n)
			return err
		}},
	{"Reset", false, driver.OpReset,
		func(l *ratelimit.Limiter, ctx context.Context, key string, n int64) error {
			return l.Reset(ctx, key)
		}},
	{"Wait", false, driver.OpTake,
		func(l *ratelimit.Limiter, ctx context.Context, key string, n int64) error {
			_, err := l.Wait(ctx, key)
			return err
		}},
	{"WaitN", true, driver.OpTake,
		func(l *ratelimit.Limiter, ctx context.Context, key string, n int64) error {
			_, err := l.WaitN(ctx, key, n)
			return err
		}},
}

// all makes a call of a single claim.
func all(
	decide func(context.Context, ...ratelimit.Claim) ([]ratelimit.Result, error),
) func(*ratelimit.Limiter, context.Context, string, int64) error {
	return func(l *ratelimit.Limiter, ctx context.Context, key string, n int64) error {
		results, err := decide(ctx, ratelimit.Claim{Limiter: l, Key: key, N: n})
		if err != nil && results != nil {
			return errors.New("results beside the error of a call that failed")
		}
		return err
	}
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
		{"empty key", t.Context(), "", 1, false, []error{ratelimit.ErrInvalid}},
		{"n negative", t.Context(), "k", -1, true, []error{ratelimit.ErrInvalid}},
		{"n least", t.Context(), "k", -1 << 63, true, []error{ratelimit.ErrInvalid}},
		{"n beyond the limit", t.Context(), "k", 4, true, []error{ratelimit.ErrExceedsLimit}},
		{"n beyond MaxUnits", t.Context(), "k",
			driver.MaxUnits + 1, true, []error{ratelimit.ErrInvalid}},
		{"context ended", ended, "k",
			1, false, []error{ratelimit.ErrUnavailable, context.Canceled}},
	}
	for _, limits := range [][]ratelimit.Limit{
		{ratelimit.PerSecond("second", 3)},
		{ratelimit.PerDay("day", 100), ratelimit.PerSecond("second", 3)},
	} {
		for _, tt := range tests {
			for _, m := range methods {
				if tt.needN && !m.usesN {
					continue
				}
				if tt.want[0] == ratelimit.ErrExceedsLimit && m.op > driver.OpPeek {
					continue // these may exceed it
				}
				t.Run(m.name+"/"+tt.name, func(t *testing.T) {
					store := &mapStore{}
					limiter := newLimiter(t, store, limits...)
					err := m.call(limiter, tt.ctx, tt.key, tt.n)
					wantErr(t, err, tt.want...)
					if errors.Is(err, ratelimit.ErrOutcomeUnknown) {
						t.Errorf("%v means that the demand may have been sent", err)
					}
					wantCalls(t, store)
				})
			}
		}
	}
}

func TestStoreErrorsPassThrough(t *testing.T) {
	for _, limits := range [][]ratelimit.Limit{
		{ratelimit.PerSecond("second", 3)},
		{ratelimit.PerDay("day", 100), ratelimit.PerSecond("second", 3)},
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
	limiter := newLimiter(t, store,
		ratelimit.Limit{Name: "three", Max: 3, Window: 10 * time.Second})
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
		want := ratelimit.Result{Allowed: s.allowed, Limit: limiter.Limits()[0],
			Remaining: s.remain, RetryAfter: s.retry, ResetAfter: s.reset}
		if s.allowed && s.n > 0 {
			want.Units = s.n
		}
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
		{ratelimit.PerSecond("second", 1)},
		{ratelimit.PerSecond("second", 1), ratelimit.PerDay("day", 1)},
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
			each, err := ratelimit.PeekAll(t.Context(),
				ratelimit.Claim{Limiter: limiter, Key: key, N: 1})
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
	limiter := newLimiter(t, store, ratelimit.PerSecond("second", 2),
		ratelimit.PerMinute("minute", 3))
	each := func(n int64) []ratelimit.Result {
		t.Helper()
		got, err := ratelimit.AllowAll(t.Context(), claim(limiter, n))
		if err != nil || len(got) != 2 {
			t.Fatalf("AllowAll: %+v, %v", got, err)
		}
		return got
	}
	want := func(got, want []ratelimit.Result) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Fatalf("got %+v\nwant %+v", got, want)
		}
	}

	second, minute := limiter.Limits()[0], limiter.Limits()[1]
	want(each(2), []ratelimit.Result{
		{Allowed: true, Limit: second, Units: 2, ResetAfter: time.Second},
		{Allowed: true, Limit: minute, Remaining: 1, Units: 2, ResetAfter: time.Minute},
	})
	want(each(1), []ratelimit.Result{ // the second refuses, and the minute keeps its unit
		{Allowed: false, Limit: second, RetryAfter: time.Second, ResetAfter: time.Second},
		{Allowed: true, Limit: minute, Remaining: 1, ResetAfter: time.Minute},
	})
	clock.advance(time.Second)
	want(each(2), []ratelimit.Result{ // the minute refuses, and the second keeps both
		{Allowed: true, Limit: second, Remaining: 2},
		{Allowed: false, Limit: minute, Remaining: 1, RetryAfter: 59 * time.Second,
			ResetAfter: 59 * time.Second},
	})
	want(each(0), []ratelimit.Result{
		{Allowed: true, Limit: second, Remaining: 2},
		{Allowed: true, Limit: minute, Remaining: 1, ResetAfter: 59 * time.Second},
	})
	want(each(1), []ratelimit.Result{
		{Allowed: true, Limit: second, Remaining: 1, Units: 1, ResetAfter: time.Second},
		{Allowed: true, Limit: minute, Units: 1, ResetAfter: time.Minute},
	})

	// Allow and Peek answer with the limit that binds.
	for name, call := range map[string]func() (ratelimit.Result, error){
		"Allow":  func() (ratelimit.Result, error) { return limiter.Allow(t.Context(), "k") },
		"AllowN": func() (ratelimit.Result, error) { return limiter.AllowN(t.Context(), "k", 0) },
		"Peek":   func() (ratelimit.Result, error) { return limiter.Peek(t.Context(), "k") },
	} {
		res, err := call()
		wantRes := ratelimit.Result{Limit: minute, RetryAfter: 59 * time.Second,
			ResetAfter: time.Minute}
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
		{"one", []ratelimit.Limit{ratelimit.PerSecond("second", 2)}},
		{"all", []ratelimit.Limit{ratelimit.PerSecond("second", 2), ratelimit.PerDay("day", 2)}},
	} {
		store := &mapStore{}
		limiter := newLimiter(t, store, tt.limits...)
		for _, m := range methods {
			if err := m.call(limiter, t.Context(), m.name, 1); err != nil {
				t.Fatalf("%s: %v", m.name, err)
			}
			wantCalls(t, store, tt.call+" "+m.op.String())
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	const goroutines, calls, most = 16, 50, 100
	for _, limits := range [][]ratelimit.Limit{
		{ratelimit.PerDay("day", most)},
		{ratelimit.PerHour("hour", 10*most), ratelimit.PerDay("day", most)},
	} {
		limiter := newLimiter(t, &mapStore{now: newClock().now}, limits...)
		var admitted [2]atomic.Int64 // by key
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for i := range calls {
					which := (g + i) % 2
					key := []string{"a", "b"}[which]
					each, err := ratelimit.AllowAll(t.Context(),
						ratelimit.Claim{Limiter: limiter, Key: key, N: 1})
					if err != nil {
						t.Errorf("AllowAll: %v", err)
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
				t.Errorf("%d limits: %d of %d calls on key %d admitted, want %d",
					len(limits), n, goroutines*calls/2, i, most)
			}
		}
	}
}
