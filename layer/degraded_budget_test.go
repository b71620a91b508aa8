package layer_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

func newTokens(t *testing.T, s driver.Store, limits ...driver.Limit) *ratelimit.Limiter {
	t.Helper()
	var algorithms []driver.Algorithm
	for _, l := range limits {
		algorithms = append(algorithms, algorithm.Budget(algorithm.SlidingLog(l)))
	}
	l, err := ratelimit.New(s, algorithms...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func reserve(
	t *testing.T, l *ratelimit.Limiter, n int64, source driver.Source,
) *ratelimit.Reservation {
	t.Helper()
	r, err := l.Reserve(t.Context(), "k", n)
	if err != nil || !r.Allowed() || r.Result().Source != source {
		t.Fatalf("%+v, %v; want %d units from %v", r, err, n, source)
	}
	return r
}

// charged returns how many units a store has of 100.
func charged(t *testing.T, s driver.Store) int64 {
	t.Helper()
	res, err := newTokens(t, s, driver.PerMinute("tokens", 100)).Peek(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return res.Limit.Max - res.Remaining
}

// TestDegradedReservation: a reservation that was admitted locally is settled to the units used,
// under two limits too, whether the store has recovered before or not.
func TestDegradedReservation(t *testing.T) {
	one := []driver.Limit{driver.PerMinute("tokens", 100)}
	two := append(one, driver.PerHour("hourly", 200))
	for _, tt := range []struct {
		name   string
		limits []driver.Limit
		back   bool // the store has recovered when the reservation is settled
		used   int64
	}{
		{"less, away", one, false, 10},
		{"more, away", one, false, 50},
		{"two limits, less, away", two, false, 10},
		{"two limits, more, away", two, false, 50},
		{"less, back", one, true, 10},
		{"two limits, more, back", two, true, 50},
		{"nothing", one, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newOutage(t)
				s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
				tokens := newTokens(t, s, tt.limits...)
				store.mode.Store(gone)
				r := reserve(t, tokens, 40, driver.SourceLocal)
				if res, err := tokens.AllowN(t.Context(), "k", 11); err != nil || res.Allowed {
					t.Errorf("%+v, %v; more than the share beside what is held", res, err)
				}
				time.Sleep(time.Second)
				if tt.back {
					store.mode.Store(up)
					time.Sleep(time.Second)
				}
				if err := r.Commit(t.Context(), tt.used); err != nil {
					t.Error(err)
				}
				store.mode.Store(up)
				time.Sleep(time.Second)
				if got := charged(t, store); got != tt.used {
					t.Errorf("%d units are charged in the store, want %d", got, tt.used)
				}
				if err := r.Commit(t.Context(), tt.used); !errors.Is(err, ratelimit.ErrNotHeld) {
					t.Errorf("a second settlement: %v", err)
				}
			})
		})
	}
}

// TestDegradedHoldIsRenewed: what is held locally counts locally for as long as it is renewed, also
// when the store has recovered meanwhile, and can be extended within the share.
func TestDegradedHoldIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
		tokens := newTokens(t, s, driver.PerMinute("tokens", 100))
		calls, err := ratelimit.New(s, algorithm.InFlight("calls", 2))
		if err != nil {
			t.Fatal(err)
		}
		claims := []ratelimit.Claim{
			{Limiter: tokens, Key: "k", N: 40}, {Limiter: calls, Key: "k", N: 1},
		}
		store.mode.Store(gone)
		r, err := ratelimit.ReserveAll(t.Context(), claims...)
		if err != nil || !r.Allowed() || r.Result().Source != driver.SourceLocal {
			t.Fatalf("%+v, %v", r, err)
		}
		time.Sleep(5 * time.Minute)
		store.mode.Store(up)
		time.Sleep(5 * time.Minute)
		if res, err := r.Extend(t.Context(), 11); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("extended beyond the share: %+v, %v", res, err)
		}
		more, err := r.Extend(t.Context(), 10)
		if err != nil || !more[0].Allowed || more[0].Source != driver.SourceLocal {
			t.Errorf("extended: %+v, %v", more, err)
		}
		store.mode.Store(gone)
		res, err := ratelimit.PeekAll(t.Context(), claims...)
		if err != nil || res[0].Remaining != 0 || res[1].Remaining != 0 {
			t.Errorf("%+v, %v; want nothing to be free", res, err)
		}
		if err := r.Commit(t.Context()); err != nil {
			t.Error(err)
		}
		if res, err := calls.Peek(t.Context(), "k"); err != nil || res.Remaining != 1 {
			t.Errorf("%+v, %v; want the call to be released", res, err)
		}
		store.mode.Store(up)
		time.Sleep(time.Second)
		if got := charged(t, store); got != 50 {
			t.Errorf("%d units are charged in the store, want 50", got)
		}
	})
}

// TestDegradedHoldTimesOut: what is held locally is free when nobody renews it.
func TestDegradedHoldTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
		store.mode.Store(gone)
		hold := driver.Demand{Key: "k", Algorithm: algorithm.Budget(eight), Op: driver.OpHold, N: 4,
			ID: 7}
		if res, err := s.Take(t.Context(), hold); err != nil || res.Units != 4 {
			t.Fatalf("%+v, %v", res, err)
		}
		hold.ID = 8
		for _, tt := range []struct {
			after   time.Duration
			allowed bool
		}{{59 * time.Second, false}, {9 * time.Second, true}} {
			time.Sleep(tt.after)
			if res, err := s.Take(t.Context(), hold); err != nil || res.Allowed != tt.allowed {
				t.Errorf("%v later: %+v, %v", tt.after, res, err)
			}
		}
	})
}

// TestDegradedSettlesStoreReservation: what is held in the store is not settled locally. It stays
// held, and can be settled when the store has recovered.
func TestDegradedSettlesStoreReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 1})
		tokens := newTokens(t, s, driver.PerMinute("tokens", 100))
		before := reserve(t, tokens, 40, driver.SourceStore)
		store.mode.Store(gone)
		time.Sleep(50 * time.Second) // renewals fail
		local := reserve(t, tokens, 40, driver.SourceLocal)
		for range 2 {
			err := before.Commit(t.Context(), 30)
			if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrOutcomeUnknown) {
				t.Errorf("%v, want %v", err, driver.ErrUnavailable)
			}
		}
		store.mode.Store(up)
		time.Sleep(time.Minute) // and then succeed
		if got := charged(t, store); got != 40 {
			t.Errorf("%d units are charged, want the 40 that the store holds", got)
		}
		for _, r := range []*ratelimit.Reservation{before, local} {
			if err := r.Commit(t.Context(), 30); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
		if got := charged(t, store); got != 60 {
			t.Errorf("%d units are charged, want 60", got)
		}
	})
}

// TestDegradedExtendsStoreReservation: a reservation in the store of which one Budget is extended
// locally is renewed and settled under the others too.
func TestDegradedExtendsStoreReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 1})
		tokens := newTokens(t, s, driver.PerHour("tokens", 100))
		money := newTokens(t, s, driver.PerHour("money", 100))
		calls, err := ratelimit.New(s, algorithm.InFlight("calls", 1))
		if err != nil {
			t.Fatal(err)
		}
		claims := []ratelimit.Claim{
			{Limiter: tokens, Key: "k", N: 20}, {Limiter: money, Key: "k", N: 40},
			{Limiter: calls, Key: "k", N: 1},
		}
		r, err := ratelimit.ReserveAll(t.Context(), claims...)
		if err != nil || !r.Allowed() || r.Result().Source != driver.SourceStore {
			t.Fatalf("%+v, %v", r, err)
		}
		store.mode.Store(gone)
		more, err := r.ExtendAll(t.Context(), ratelimit.Claim{Limiter: tokens, N: 10})
		if err != nil || !more[0].Allowed || more[0].Source != driver.SourceLocal {
			t.Fatalf("%+v, %v", more, err)
		}
		store.mode.Store(up)
		left := func(want ...int64) {
			t.Helper()
			for i, c := range claims {
				res, err := c.Limiter.Peek(t.Context(), "k")
				if err != nil || res.Remaining != want[i] {
					t.Errorf("%+v, %v; want %d left", res, err, want[i])
				}
			}
		}
		time.Sleep(5 * time.Minute)
		left(100, 60, 0) // the store has not heard of the units that are held locally
		used := []ratelimit.Claim{{Limiter: tokens, N: 25}, {Limiter: money, N: 30}}
		if err := r.CommitAll(t.Context(), used...); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute)
		left(75, 70, 1)
	})
}
