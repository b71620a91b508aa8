package ratelimit_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

func mustReserve(t *testing.T, claims ...ratelimit.Claim) *ratelimit.Reservation {
	t.Helper()
	r, err := ratelimit.ReserveAll(t.Context(), claims...)
	if err != nil || !r.Allowed() {
		t.Fatalf("%+v, %v", r, err)
	}
	return r
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestCommit: one call of the store corrects what was reserved to what was used.
func TestCommit(t *testing.T) {
	for _, tt := range []struct {
		name       string
		actual     []int64
		calls      int
		requests   int64 // left of 3
		tokens     int64 // left of 100
		nextMinute int64 // left of tokens when the minute is over
	}{
		{"as reserved", nil, 0, 2, 40, 90},
		{"as reserved, said so", []int64{1, 60}, 0, 2, 40, 90},
		{"less", []int64{1, 10}, 1, 2, 90, 100},
		{"nothing", []int64{0, 0}, 1, 3, 100, 100},
		{"more", []int64{1, 75}, 1, 2, 25, 75},
		{"more than the limit", []int64{1, 170}, 1, 2, 0, 0},
		{"less of one and more of the other", []int64{2, 10}, 1, 1, 90, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBudget(t)
			r := mustReserve(t, b.claims(1, 60)...)
			b.clock.advance(time.Second)
			b.store.made()
			for range 2 {
				noErr(t, r.Commit(t.Context(), tt.actual...))
				noErr(t, r.Cancel(t.Context()))
			}
			if calls := b.store.made(); len(calls) != tt.calls {
				t.Errorf("%d calls of the store: %q", len(calls), calls)
			}
			b.left(t, tt.requests, tt.tokens)
			b.clock.advance(time.Minute)
			b.left(t, 3, tt.nextMinute)
		})
	}
}

// TestReserveRefused: a refused reservation takes nothing, has a RetryAfter, and cannot be
// committed.
func TestReserveRefused(t *testing.T) {
	b := newBudget(t)
	mustReserve(t, b.claims(2, 60)...)
	r, err := ratelimit.ReserveAll(t.Context(), b.claims(1, 60)...)
	if err != nil || r.Allowed() || r.Result().RetryAfter != time.Minute || len(r.Results()) != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	b.store.made()
	noErr(t, r.Cancel(t.Context()))
	wantErr(t, r.Commit(t.Context(), 1, 60), ratelimit.ErrInvalid)
	_, err = r.Extend(t.Context(), 0, 1)
	wantErr(t, err, ratelimit.ErrInvalid)
	_, err = r.Token()
	wantErr(t, err, ratelimit.ErrInvalid)
	wantCalls(t, b.store)
	b.left(t, 1, 40)
}

// TestReserveMax: an estimate above Max is an error; min(estimate, Max) reserves what the limit
// has.
func TestReserveMax(t *testing.T) {
	b := newBudget(t)
	_, err := b.tokens.Reserve(t.Context(), "k", 1000)
	wantErr(t, err, ratelimit.ErrExceedsLimit)
	r, err := b.tokens.Reserve(t.Context(), "k", min(1000, b.tokens.Max()))
	if err != nil || !r.Allowed() {
		t.Fatalf("%+v, %v", r, err)
	}
	b.left(t, 3, 0)
	noErr(t, r.Commit(t.Context(), 30))
	b.left(t, 3, 70)
}

// extend extends r, and checks whether that is allowed.
func extend(t *testing.T, r *ratelimit.Reservation, want bool, n ...int64) []ratelimit.Result {
	t.Helper()
	results, err := r.Extend(t.Context(), n...)
	noErr(t, err)
	if results[ratelimit.Binding(results)].Allowed != want {
		t.Fatalf("extend by %d: %+v, want allowed %t", n, results, want)
	}
	return results
}

// TestExtend: more is reserved or refused, with a result for each limit, and all parts are settled,
// the newest first. A claim that is not extended takes no part.
func TestExtend(t *testing.T) {
	b := newBudget(t)
	r := mustReserve(t, b.claims(1, 40)...)
	r.Claims()[0].N = 7 // a copy
	limits := slices.Concat(b.requests.Limits(), b.tokens.Limits())
	b.clock.advance(20 * time.Second)
	for _, step := range []struct {
		n         []int64
		allowed   [3]bool
		remaining [3]int64
		claimed   [2]int64
	}{
		{[]int64{0, 30}, all3, [3]int64{0, 30, 80}, [2]int64{1, 70}},
		{[]int64{0, 40}, [3]bool{true, false, true}, [3]int64{0, 30, 80}, [2]int64{1, 70}},
		{[]int64{1, 31}, [3]bool{true, false, true}, [3]int64{2, 30, 80}, [2]int64{1, 70}},
		{[]int64{3, 30}, [3]bool{false, true, true}, [3]int64{2, 30, 80}, [2]int64{1, 70}},
		{[]int64{1, 10}, all3, [3]int64{1, 20, 70}, [2]int64{2, 80}},
		{[]int64{0, 0}, all3, [3]int64{0, 0, 0}, [2]int64{2, 80}},
	} {
		results := extend(t, r, step.allowed == all3, step.n...)
		if len(results) != len(limits) {
			t.Fatalf("%d results, want one for each of %d limits", len(results), len(limits))
		}
		for i, res := range results {
			if res.Limit != limits[i] || res.Allowed != step.allowed[i] ||
				res.Remaining != step.remaining[i] {
				t.Errorf("extend by %d: %+v, want %v and %v", step.n, results, step.allowed,
					step.remaining)
			}
		}
		for i, c := range r.Claims() {
			if c.N != step.claimed[i] {
				t.Errorf("extend by %d: %d are claimed, want %d", step.n, c.N, step.claimed[i])
			}
		}
		b.clock.advance(time.Second)
	}
	b.left(t, 1, 20)
	noErr(t, r.Commit(t.Context(), 1, 50)) // 30 of the 40 that came later are given back
	b.left(t, 2, 50)
	b.clock.advance(34 * time.Second) // the first 40 leave
	b.left(t, 3, 90)
	_, err := r.Extend(t.Context(), 0, 1)
	wantErr(t, err, ratelimit.ErrInvalid)
}

// TestReservationArguments: a wrong number of units is an error before any I/O, and settles
// nothing.
func TestReservationArguments(t *testing.T) {
	b := newBudget(t)
	r := mustReserve(t, b.claims(1, 40)...)
	b.store.made()
	for _, n := range [][]int64{{1}, {1, 2, 3}, {1, -1}, {1, driver.MaxUnits + 1}} {
		wantErr(t, r.Commit(t.Context(), n...), ratelimit.ErrInvalid)
		_, err := r.Extend(t.Context(), n...)
		wantErr(t, err, ratelimit.ErrInvalid)
	}
	_, err := r.Extend(t.Context(), 0, driver.MaxUnits)
	wantErr(t, err, ratelimit.ErrInvalid)
	wantCalls(t, b.store)
	noErr(t, r.Commit(t.Context(), 1, 10))
	b.left(t, 2, 90)
}

// TestSettleAfterErrors: a settlement that was not recorded is repeated, a settlement with an
// unknown outcome is not, and nothing is counted twice.
func TestSettleAfterErrors(t *testing.T) {
	for _, tt := range []struct {
		err  error
		left int64
	}{
		{ratelimit.ErrUnavailable, 75},    // 15 of 30 and 10 of 10 are given back
		{ratelimit.ErrOutcomeUnknown, 65}, // the newest part stays charged
	} {
		b := newBudget(t)
		r := mustReserve(t, b.claims(1, 40)...)
		b.clock.advance(time.Second)
		extend(t, r, true, 0, 10)
		open := b.tokens.WithPolicy(ratelimit.FailOpen)
		r2, err := open.Reserve(t.Context(), "other", 1)
		noErr(t, err)
		b.store.err = tt.err
		wantErr(t, r.Commit(t.Context(), 1, 25), tt.err)
		wantErr(t, r2.Commit(t.Context(), 2), tt.err) // also where the policy would admit
		b.store.err = nil
		noErr(t, r.Commit(t.Context(), 1, 40)) // the first call says how much was used
		b.left(t, 2, tt.left)
		noErr(t, r.Cancel(t.Context()))
		b.left(t, 2, tt.left)
	}
}

// TestSettleAfterCancel: a caller that was canceled still settles.
func TestSettleAfterCancel(t *testing.T) {
	b := newBudget(t)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := ratelimit.ReserveAll(ctx, b.claims(1, 40)...)
	noErr(t, err)
	cancel()
	if _, err := r.Extend(ctx, 0, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("Extend: %v", err)
	}
	noErr(t, r.Cancel(ctx))
	b.left(t, 3, 100)
}

// TestSettleOpen: a reservation that the policy admitted is charged when it is committed.
func TestSettleOpen(t *testing.T) {
	b := newBudget(t)
	claims := b.claims(1, 40)
	claims[0].Limiter = b.requests.WithPolicy(ratelimit.FailOpen)
	claims[1].Limiter = b.tokens.WithPolicy(ratelimit.FailOpen)
	for _, tt := range []struct {
		settle func(*ratelimit.Reservation) error
		left   [2]int64
	}{
		{func(r *ratelimit.Reservation) error { return r.Cancel(t.Context()) }, [2]int64{3, 100}},
		{func(r *ratelimit.Reservation) error { return r.Commit(t.Context(), 1, 10) },
			[2]int64{2, 90}},
		{func(r *ratelimit.Reservation) error { return r.Commit(t.Context()) }, [2]int64{1, 50}},
	} {
		b.store.err = ratelimit.ErrUnavailable
		r := mustReserve(t, claims...)
		if r.Result().Source != ratelimit.SourceOpen {
			t.Errorf("%+v", r.Result())
		}
		b.store.err = nil
		noErr(t, tt.settle(r))
		b.left(t, tt.left[0], tt.left[1])
	}
}

// TestSettleLate: units that have left the window are not given back, and an excess is charged at
// the time of Commit.
func TestSettleLate(t *testing.T) {
	b := newBudget(t)
	less := mustReserve(t, b.claims(1, 40)...)
	more := mustReserve(t, b.claims(1, 40)...)
	b.clock.advance(time.Minute)
	mustReserve(t, b.claims(1, 10)...)
	noErr(t, less.Commit(t.Context(), 1, 0))
	b.left(t, 2, 90)
	noErr(t, more.Commit(t.Context(), 1, 60))
	b.left(t, 2, 70) // the excess of 20 is taken beside the 10
}

// TestReservationObserved: a settlement is observed as the units that it gives back or records.
func TestReservationObserved(t *testing.T) {
	b := newBudget(t)
	var seen recorder
	claims := b.claims(1, 60)
	claims[1].Limiter = b.tokens.WithObserver(seen.observe)
	noErr(t, mustReserve(t, claims...).Commit(t.Context(), 1, 50))
	noErr(t, mustReserve(t, claims[0], ratelimit.Claim{Limiter: claims[1].Limiter, Key: "k2",
		N: 60}).Commit(t.Context(), 1, 65))
	want := []struct {
		op driver.Op
		n  int64
	}{
		{driver.OpTake, 60}, {driver.OpGiveBack, 10},
		{driver.OpTake, 60}, {driver.OpForce, 5},
	}
	if len(seen.seen) != len(want) {
		t.Fatalf("%+v", seen.seen)
	}
	for i, o := range seen.seen {
		if o.Op != want[i].op || o.N != want[i].n || !o.Admitted() {
			t.Errorf("%+v, want %+v", o, want[i])
		}
	}
}

// leavingStore is a store that cancels the context of its caller while it decides.
type leavingStore struct {
	*mapStore
	leave func()
}

func (s leavingStore) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	s.leave()
	return s.mapStore.Take(ctx, d)
}

func (s leavingStore) TakeAll(
	ctx context.Context, ds []driver.Demand, out []ratelimit.Result,
) error {
	s.leave()
	return s.mapStore.TakeAll(ctx, ds, out)
}

// TestReserveOutlivesCaller: units that are taken for a call whose context ends meanwhile can be
// given back. If the context has ended before, the store is not asked, and the observer sees the
// error.
func TestReserveOutlivesCaller(t *testing.T) {
	store := leavingStore{mapStore: &mapStore{}}
	ctx, cancel := context.WithCancel(t.Context())
	again := func() { ctx, cancel = context.WithCancel(t.Context()) }
	store.leave = func() { cancel() }
	calls := newCalls(t, &store, 1)
	tokens := newLimiter(t, &store, ratelimit.PerMinute("tokens", 100))

	r, err := ratelimit.ReserveAll(ctx, ratelimit.Claim{Limiter: calls, Key: "k", N: 1},
		ratelimit.Claim{Limiter: tokens, Key: "k", N: 40})
	noErr(t, err)
	again()
	res, err := r.Extend(ctx, 0, 10)
	if err != nil || !res[0].Allowed || !res[1].Allowed {
		t.Errorf("%+v, %v", res, err)
	}
	noErr(t, r.Cancel(ctx))
	for _, acquire := range []func(context.Context, string) (*ratelimit.Lease, error){
		calls.Acquire, calls.TryAcquire,
	} {
		again()
		lease, err := acquire(ctx, "k")
		noErr(t, err)
		noErr(t, lease.Release(ctx))
		store.made()
		_, err = acquire(ctx, "k")
		wantErr(t, err, ratelimit.ErrUnavailable, context.Canceled)
	}
	again()
	results, err := ratelimit.WaitAll(ctx, claim(calls, 1))
	noErr(t, err)
	noErr(t, calls.GiveBack(t.Context(), "k", 1, results...))
	store.made()
	var seen []error
	observed := tokens.WithObserver(func(_ context.Context, o ratelimit.Observation) {
		seen = append(seen, o.Err)
	})
	_, err = ratelimit.ReserveAll(ctx, ratelimit.Claim{Limiter: observed, Key: "k", N: 1})
	wantErr(t, err, ratelimit.ErrUnavailable, context.Canceled)
	wantCalls(t, store.mapStore)
	if len(seen) != 1 || !errors.Is(seen[0], context.Canceled) {
		t.Errorf("observed %v, want the error once", seen)
	}
}
