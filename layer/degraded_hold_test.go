package layer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// refusing is an outage whose store fails with err for one key.
type refusing struct {
	*outage
	key string
	err error
}

func (s refusing) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	if d.Key == s.key && s.mode.Load() == up {
		return driver.Result{}, s.err
	}
	return s.outage.Take(ctx, d)
}

// TestDegradedHoldsApart: a hold that the store cannot be told about does not hold up the others.
func TestDegradedHoldsApart(t *testing.T) {
	for _, err := range []error{driver.ErrCorruptState, driver.ErrCapacity, driver.ErrContended,
		driver.ErrInvalid} {
		synctest.Test(t, func(t *testing.T) {
			store := newOutage(t)
			s := newDegraded(t, refusing{store, "bad", err}, &layer.DegradedOptions{Instances: 1})
			tokens := newTokens(t, s, driver.PerMinute("tokens", 100))
			r := reserve(t, tokens, 40, driver.SourceStore)
			store.mode.Store(gone)
			if bad, err := tokens.Reserve(t.Context(), "bad", 1); err != nil || !bad.Allowed() {
				t.Fatalf("%+v, %v", bad, err)
			}
			if err := r.Commit(t.Context(), 10); err != nil {
				t.Error(err)
			}
			store.mode.Store(up)
			time.Sleep(time.Second)
			if got := charged(t, store); got != 10 {
				t.Errorf("%v: %d units are charged, want 10", err, got)
			}
		})
	}
}

// TestDegradedSettlesBesideRefused: a settlement of a hold whose answer was lost does not wait for
// a hold for which there is no room.
func TestDegradedSettlesBesideRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		inside := newTokens(t, store, driver.PerMinute("tokens", 100))
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
		tokens := newTokens(t, s, driver.PerMinute("tokens", 100))
		reserve(t, inside, 95, driver.SourceStore)
		store.mode.Store(gone)
		waits := reserve(t, tokens, 5, driver.SourceLocal)
		store.mode.Store(frozen)
		sent := reserve(t, tokens, 5, driver.SourceLocal)
		if got := charged(t, store.Store); got != 100 {
			t.Fatalf("%d units are charged, want 100", got)
		}
		if err := sent.Commit(t.Context(), 3); err != nil {
			t.Error(err)
		}
		store.mode.Store(gone)
		store.mode.Store(up)
		time.Sleep(time.Second)
		if got := charged(t, store); got != 98 {
			t.Errorf("%d units are charged, want 98", got)
		}
		if st := s.Stats(); st.Holds != 1 {
			t.Errorf("%+v", st)
		}
		if err := waits.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestDegradedRenewalNeverShortens: of the renewals in an outage the one that lasts longest counts,
// here and in the store.
func TestDegradedRenewalNeverShortens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 1})
		tokens := newTokens(t, s, driver.PerMinute("tokens", 100))
		store.mode.Store(gone)
		r := reserve(t, tokens, 40, driver.SourceLocal)
		if err := r.Renew(t.Context(), 10*time.Minute); err != nil {
			t.Error(err)
		}
		time.Sleep(30 * time.Second) // the reservation renews itself
		if _, err := r.Token(); err != nil {
			t.Error(err)
		}
		for _, wait := range []time.Duration{2 * time.Minute, 2 * time.Minute} {
			time.Sleep(wait)
			store.mode.Store(up)
			time.Sleep(time.Second)
			if got := charged(t, store); got != 40 {
				t.Errorf("%d units are charged, want the 40 that are held", got)
			}
		}
	})
}

// TestDegradedAcquire: a call that waits goes on waiting in an outage, whatever was lost, and holds
// what it gets.
func TestDegradedAcquire(t *testing.T) {
	for _, policy := range []ratelimit.Policy{ratelimit.FailClosed, ratelimit.FailOpen} {
		for _, back := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				store := newOutage(t)
				s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
				tokens := newTokens(t, s, driver.PerMinute("tokens", 100)).WithPolicy(policy)
				first := reserve(t, tokens, 50, driver.SourceStore)
				store.mode.Store(frozen)
				began := time.Now()
				time.AfterFunc(10*time.Second, func() {
					if err := first.Commit(t.Context(), 0); err != nil {
						t.Error(err)
					}
				})
				if back {
					time.AfterFunc(5*time.Second, func() { store.mode.Store(up) })
				}
				r, err := tokens.Acquire(t.Context(), "k", 40)
				if err != nil || !r.Allowed() || r.Result().Source == driver.SourceOpen {
					t.Fatalf("%v, back %v: %+v, %v", policy, back, r, err)
				}
				if waited := time.Since(began); waited < 9*time.Second && !back {
					t.Errorf("%v: acquired after %v", policy, waited)
				}
				time.Sleep(10 * time.Second)
				store.mode.Store(up)
				time.Sleep(time.Second)
				if got := charged(t, store); got != 40 {
					t.Errorf("%v, back %v: %d units are charged, want 40", policy, back, got)
				}
				if err := r.Commit(t.Context(), 30); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				if got := charged(t, store); got != 30 {
					t.Errorf("%v, back %v: %d units are charged, want 30", policy, back, got)
				}
				if st := s.Stats(); st.Holds != 0 || st.Pending != 0 || st.Lost != 0 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// TestDegradedChangedMax: a hold that was enlarged under a new Max is placed under that.
func TestDegradedChangedMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 1})
		store.mode.Store(gone)
		r := reserve(t, newTokens(t, s, driver.PerMinute("tokens", 100)), 40, driver.SourceLocal)
		text, err := r.Token()
		if err != nil {
			t.Fatal(err)
		}
		r, err = ratelimit.Resume(text, newTokens(t, s, driver.PerMinute("tokens", 200)))
		if err != nil {
			t.Fatal(err)
		}
		if res, err := r.Extend(t.Context(), 110); err != nil || !res[0].Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
		store.mode.Store(up)
		time.Sleep(time.Second)
		res, err := newTokens(t, store, driver.PerMinute("tokens", 200)).Peek(t.Context(), "k")
		if err != nil || res.Remaining != 50 {
			t.Errorf("%+v, %v; want 50 left", res, err)
		}
		if st := s.Stats(); st.Holds != 0 {
			t.Errorf("%+v", st)
		}
		if err := r.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestDegradedSettlesSeveral: claims of one reservation of which the store knows some, and some are
// still to be told, are settled once, each.
func TestDegradedSettlesSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		inside := newTokens(t, store, driver.PerHour("tokens", 100))
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
		tokens := newTokens(t, s, driver.PerHour("tokens", 100))
		all, err := ratelimit.New(s, algorithm.Budget(algorithm.FixedWindow(driver.PerDay("day",
			1000))))
		if err != nil {
			t.Fatal(err)
		}
		calls := newCalls(t, s, 4)
		other := reserve(t, inside, 90, driver.SourceStore)
		store.mode.Store(gone)
		r, err := ratelimit.ReserveAll(t.Context(),
			ratelimit.Claim{Limiter: all, Key: "k", N: 20},
			ratelimit.Claim{Limiter: tokens, Key: "k", N: 20},
			ratelimit.Claim{Limiter: calls, Key: "k", N: 1})
		if err != nil || !r.Allowed() {
			t.Fatalf("%+v, %v", r, err)
		}
		store.mode.Store(up)
		time.Sleep(3 * time.Minute)
		if st := s.Stats(); st.Holds != 1 {
			t.Errorf("%+v; want the tokens to wait", st)
		}
		if _, err := r.ExtendAll(t.Context(), ratelimit.Claim{Limiter: all, N: 5},
			ratelimit.Claim{Limiter: tokens, N: 5}); err != nil {
			t.Error(err)
		}
		if err := r.CommitAll(t.Context(), ratelimit.Claim{Limiter: all, N: 7},
			ratelimit.Claim{Limiter: tokens, N: 6}); err != nil {
			t.Error(err)
		}
		if err := r.Commit(t.Context()); !errors.Is(err, ratelimit.ErrNotHeld) {
			t.Error(err)
		}
		if err := other.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		for _, tt := range []struct {
			l    *ratelimit.Limiter
			left int64
		}{{all, 993}, {tokens, 94}, {calls, 4}} {
			if res, err := tt.l.Peek(t.Context(), "k"); err != nil || res.Remaining != tt.left {
				t.Errorf("%+v, %v; want %d left", res, err, tt.left)
			}
		}
		if st := s.Stats(); st.Holds != 0 || st.Pending != 0 || st.Lost != 0 {
			t.Errorf("%+v", st)
		}
	})
}
