package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/direct"
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

func TestBinding(t *testing.T) {
	ok := func(remaining int64, reset time.Duration) ratelimit.Result {
		return ratelimit.Result{Allowed: true, Remaining: remaining, ResetAfter: reset}
	}
	no := func(retry time.Duration, remaining int64, reset time.Duration) ratelimit.Result {
		return ratelimit.Result{RetryAfter: retry, Remaining: remaining, ResetAfter: reset}
	}
	tests := []struct {
		name    string
		results []ratelimit.Result
		want    int
	}{
		{"one", []ratelimit.Result{ok(1, 1)}, 0},
		{"least remaining", []ratelimit.Result{ok(5, 9), ok(2, 1), ok(3, 9)}, 1},
		{"refused before least remaining", []ratelimit.Result{ok(0, 9), no(1, 5, 1), ok(0, 9)}, 1},
		{"longest to retry", []ratelimit.Result{no(1, 0, 9), no(3, 4, 3), ok(0, 99), no(2, 0, 9)},
			1},
		{"refused alike: least remaining", []ratelimit.Result{no(3, 2, 9), no(3, 1, 3)}, 1},
		{"refused alike: longest to reset", []ratelimit.Result{no(3, 1, 3), no(3, 1, 9)}, 1},
		{"admitted alike: longest to reset", []ratelimit.Result{ok(2, 1), ok(2, 7), ok(2, 5)}, 1},
		{"all alike: the first", []ratelimit.Result{ok(2, 1), ok(2, 1)}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := ratelimit.Binding(tt.results); got != tt.want {
				t.Errorf("Binding = %d, want %d", got, tt.want)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		defer func() {
			if recover() == nil {
				t.Error("Binding of no results did not panic")
			}
		}()
		ratelimit.Binding(nil)
	})
}

// TestPlans: limiters with the same limit name share a history. So a limit can be raised and
// lowered at once, and a reservation that is open meanwhile is settled under either limit.
func TestPlans(t *testing.T) {
	clock := newClock()
	store := &mapStore{now: clock.now}
	plan := func(limit ratelimit.Limit) *ratelimit.Limiter { return newBudgets(t, store, limit) }
	small, large := plan(ratelimit.PerMinute("tokens", 10)),
		plan(ratelimit.PerMinute("tokens", 100))
	long := plan(ratelimit.PerHour("tokens", 100))
	left := func(l *ratelimit.Limiter, want int64) {
		t.Helper()
		if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != want {
			t.Fatalf("%+v, %v; want %d left", res, err, want)
		}
	}
	mustAllow := func(l *ratelimit.Limiter, n int64, want bool) {
		t.Helper()
		if res, err := l.AllowN(t.Context(), "k", n); err != nil || res.Allowed != want {
			t.Fatalf("%+v, %v; want allowed %t", res, err, want)
		}
	}
	mustAllow(small, 10, true)
	mustAllow(small, 1, false)
	mustAllow(large, 30, true) // raised
	left(large, 60)
	r := mustReserve(t, ratelimit.Claim{Limiter: large, Key: "k", N: 40})
	left(small, 0) // lowered: what was taken stays taken
	noErr(t, r.Commit(t.Context(), 5))
	left(large, 55)
	clock.advance(time.Minute)
	left(small, 10)
	r = mustReserve(t, ratelimit.Claim{Limiter: small, Key: "k", N: 10})
	text, err := r.Token()
	noErr(t, err)
	upgraded, err := ratelimit.Resume(text, long) // a longer window
	noErr(t, err)
	noErr(t, upgraded.Commit(t.Context(), 4))
	left(small, 6)
}

func TestErrorClasses(t *testing.T) {
	classes := []struct {
		name  string
		err   error
		wraps []error // of all errors below, those that it wraps beside itself
	}{
		{"ErrInvalid", ratelimit.ErrInvalid, nil},
		{"ErrExceedsLimit", ratelimit.ErrExceedsLimit, nil},
		{"ErrNoScript", driver.ErrNoScript, []error{errors.ErrUnsupported}},
		{"ErrUnavailable", ratelimit.ErrUnavailable, nil},
		{"ErrOutcomeUnknown", ratelimit.ErrOutcomeUnknown, []error{ratelimit.ErrUnavailable}},
		{"ErrCapacity", driver.ErrCapacity, []error{ratelimit.ErrUnavailable}},
		{"ErrContended", driver.ErrContended, []error{ratelimit.ErrUnavailable}},
		{"ErrClosed", driver.ErrClosed, []error{ratelimit.ErrUnavailable}},
		{"ErrCorruptState", driver.ErrCorruptState, []error{ratelimit.ErrUnavailable}},
	}
	all := []error{errors.ErrUnsupported}
	for _, c := range classes {
		all = append(all, c.err)
	}
	for _, c := range classes {
		for _, other := range all {
			want := other == c.err
			for _, w := range c.wraps {
				want = want || other == w
			}
			if got := errors.Is(c.err, other); got != want {
				t.Errorf("errors.Is(%s, %q) = %v", c.name, other, got)
			}
		}
		if !strings.HasPrefix(c.err.Error(), "ratelimit: ") {
			t.Errorf("%s reads %q, want the prefix of the package", c.name, c.err)
		}
	}
}

var _ direct.Store = (*memorystore.Store)(nil)

// around wraps the memory store: it embeds it, with its Direct, and has a Take of its own.
type around struct {
	*memorystore.Store
	takes *int
}

func (s around) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	*s.takes++
	return s.Store.Take(ctx, d)
}

// directStore is around with the direct path of the memory store, whose calls it counts.
type directStore struct {
	around
	calls *int
}

func (s directStore) Direct(ratelimit.Store) direct.Taker {
	return directTaker{s.Store.Direct(s.Store), s.calls}
}

type directTaker struct {
	direct.Taker
	calls *int
}

func (t directTaker) TakeFields(
	ctx context.Context, key string, a ratelimit.Algorithm, op driver.Op, n int64,
) (
	allowed bool, source ratelimit.Source, remaining int64,
	retryAfter, resetAfter time.Duration, err error,
) {
	*t.calls++
	return t.Taker.TakeFields(ctx, key, a, op, n)
}

// aroundLog wraps the log: it embeds it and has a Step of its own.
type aroundLog struct {
	algorithm.Log
	corrupt bool
}

func (a aroundLog) Step(state []byte, now int64, d driver.Demand) (
	[]byte, time.Duration, ratelimit.Result,
) {
	next, keep, res := a.Log.Step(state, now, d)
	res.Source = ratelimit.SourceLocal
	if a.corrupt && !res.Allowed {
		keep = -1
	}
	return next, keep, res
}

// TestAllowDirect compares two ways to the memory store: the direct one of Allow, and Take, which
// Allow uses if another store is around it. They return equal results and errors.
func TestAllowDirect(t *testing.T) {
	limit := ratelimit.Limit{Name: "direct", Max: 5, Window: 100 * time.Millisecond}
	log := algorithm.SlidingLog(limit)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, a := range map[string]ratelimit.Algorithm{
		"log":     log,
		"coarse":  log.WithResolution(7 * time.Millisecond),
		"around":  aroundLog{log, false},
		"corrupt": aroundLog{log, true},
	} {
		t.Run(name, func(t *testing.T) {
			var clock atomic.Int64
			clock.Store(1_790_000_000_000_000)
			var takes [2]int
			directCalls := 0
			var stores [2]*memorystore.Store
			var limiters [2]*ratelimit.Limiter
			for i := range stores {
				s, err := memorystore.New(&memorystore.Options{Now: clock.Load, MaxKeys: 2})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				stores[i] = s
			}
			if stores[0].Direct(stores[0]) == nil || stores[0].Direct(stores[1]) != nil ||
				stores[0].Direct(around{stores[0], nil}) != nil {
				t.Fatal("a store has a direct path for another, or none for itself")
			}
			for i, s := range []ratelimit.Store{
				directStore{around{stores[0], &takes[0]}, &directCalls},
				around{stores[1], &takes[1]},
			} {
				var err error
				if limiters[i], err = ratelimit.New(s, a); err != nil {
					t.Fatal(err)
				}
			}
			seen := map[string]int{}
			allow := func(ctx context.Context, key string) {
				t.Helper()
				takes, directCalls = [2]int{}, 0
				got, gotErr := limiters[0].Allow(ctx, key)
				want, wantErr := limiters[1].Allow(ctx, key)
				if got != want || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
					t.Fatalf("%+v, %v; with a store around it %+v, %v", got, gotErr, want, wantErr)
				}
				if directCalls != 1 || takes != [2]int{0, 1} {
					t.Fatalf("%d direct calls, Takes %d; want 1, [0 1]", directCalls, takes)
				}
				_, wrapped := a.(aroundLog)
				own := got.Source == ratelimit.SourceLocal
				if gotErr == nil && wrapped != own {
					t.Fatalf("%+v is not what Step returned", got)
				}
				seen[fmt.Sprint(want.Allowed, wantErr != nil)]++
			}
			random := rand.New(rand.NewPCG(1, 2))
			keys := []string{"a", strings.Repeat("long", 100), "beyond MaxKeys", ""}
			for range 3000 {
				clock.Add(random.Int64N(20_000))
				if random.IntN(100) == 0 {
					clock.Add(-150_000) // back by more than a window
				}
				ctx := t.Context()
				if random.IntN(20) == 0 {
					ctx = canceled
				}
				allow(ctx, keys[random.IntN(len(keys))])
			}
			for i := range stores {
				stores[i].Close()
			}
			allow(t.Context(), "a")
			if seen["true false"] == 0 || seen["false true"] == 0 ||
				seen["false false"] == 0 && name != "corrupt" {
				t.Errorf("the calls were too much alike: %v", seen)
			}
		})
	}
}

// BenchmarkLimiter measures calls that one key and one goroutine make on the memory store, all
// admitted.
func BenchmarkLimiter(b *testing.B) {
	store, err := memorystore.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	log := algorithm.SlidingLog(ratelimit.PerSecond("second", driver.MaxUnits))
	limiter, err := ratelimit.New(store, log.WithResolution(time.Millisecond))
	if err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	for _, m := range []struct {
		name string
		call func() (ratelimit.Result, error)
	}{
		{"Allow", func() (ratelimit.Result, error) { return limiter.Allow(ctx, "user:42") }},
		{"AllowN", func() (ratelimit.Result, error) { return limiter.AllowN(ctx, "user:42", 1) }},
		{"Wait", func() (ratelimit.Result, error) { return limiter.Wait(ctx, "user:42") }},
	} {
		b.Run(m.name, func(b *testing.B) {
			for b.Loop() {
				if res, err := m.call(); err != nil || !res.Allowed {
					b.Fatal(res, err)
				}
			}
		})
	}
}
