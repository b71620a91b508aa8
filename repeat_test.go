package ratelimit_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// unsettled is a store on which settlements fail until a time, and all else works.
type unsettled struct {
	*mapStore
	until time.Time
	tries atomic.Int64
}

func (s *unsettled) check(ds ...driver.Demand) error {
	if !slices.ContainsFunc(ds, func(d driver.Demand) bool { return d.Op == driver.OpSettle }) {
		return nil
	}
	n := s.tries.Add(1)
	switch {
	case !time.Now().Before(s.until):
		return nil
	case n%2 == 0:
		return driver.ErrContended
	}
	return ratelimit.ErrUnavailable
}

func (s *unsettled) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	if err := s.check(d); err != nil {
		return ratelimit.Result{}, err
	}
	return s.mapStore.Take(ctx, d)
}

func (s *unsettled) TakeAll(
	ctx context.Context, ds []driver.Demand, out []ratelimit.Result,
) error {
	if err := s.check(ds...); err != nil {
		return err
	}
	return s.mapStore.TakeAll(ctx, ds, out)
}

// TestSettlementRepeats: a Cancel or Release that fails is repeated for a minute, and one after a
// Commit repeats that. Nothing is renewed meanwhile, although the program keeps the reservation.
func TestSettlementRepeats(t *testing.T) {
	commit := func(ctx context.Context, r *ratelimit.Reservation) error {
		return errors.Join(r.Commit(ctx, 10), r.Cancel(ctx))
	}
	cancel := func(ctx context.Context, r *ratelimit.Reservation) error {
		return errors.Join(r.Cancel(ctx), r.Cancel(ctx))
	}
	release := func(ctx context.Context, r *ratelimit.Reservation) error { return r.Release(ctx) }
	for _, tt := range []struct {
		name   string
		settle func(context.Context, *ratelimit.Reservation) error
		away   time.Duration
		after  time.Duration // when the call in flight is free at last
		tokens int64         // left then, of 100
		tries  int64
	}{
		{"commit", commit, 20 * time.Second, 32 * time.Second, 90, 7},
		{"cancel", cancel, 20 * time.Second, 32 * time.Second, 100, 7},
		{"release", release, 20 * time.Second, 32 * time.Second, 60, 6},
		{"commit in vain", commit, time.Hour, 68 * time.Second, 100, 8},
		{"cancel in vain", cancel, time.Hour, 68 * time.Second, 100, 8},
		{"release in vain", release, time.Hour, 68 * time.Second, 60, 7},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &unsettled{mapStore: &mapStore{}, until: time.Now().Add(tt.away)}
				calls := newCalls(t, store, 1)
				tokens := newBudgets(t, store, ratelimit.PerHour("tokens", 100))
				r := mustReserve(t, claim(tokens, 40), claim(calls, 1))
				ctx, cancel := context.WithCancel(t.Context())
				wantErr(t, tt.settle(ctx, r), ratelimit.ErrUnavailable)
				cancel()
				time.Sleep(tt.after)
				mustReserve(t, claim(calls, 1))
				if res, err := tokens.Peek(t.Context(), "k"); err != nil ||
					res.Remaining != tt.tokens {
					t.Errorf("%+v, %v; want %d tokens left", res, err, tt.tokens)
				}
				time.Sleep(time.Hour)
				if got := store.tries.Load(); got != tt.tries {
					t.Errorf("%d attempts to settle, want %d", got, tt.tries)
				}
				noErr(t, r.Cancel(t.Context()))
			})
		})
	}
}

// TestCommitAfterCancel: after a Cancel that has failed, the program can still commit, once.
func TestCommitAfterCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &unsettled{mapStore: &mapStore{}, until: time.Now().Add(time.Second / 2)}
		tokens := newBudgets(t, store, ratelimit.PerHour("tokens", 100))
		r := mustReserve(t, claim(tokens, 40))
		wantErr(t, r.Cancel(t.Context()), ratelimit.ErrUnavailable)
		_, err := r.Extend(t.Context(), 1)
		wantErr(t, err, ratelimit.ErrInvalid)
		time.Sleep(time.Second / 2)
		noErr(t, r.Commit(t.Context(), 10))
		time.Sleep(time.Hour)
		wantErr(t, r.Commit(t.Context(), 10), ratelimit.ErrNotHeld)
		if got := store.tries.Load(); got != 2 {
			t.Errorf("%d attempts to settle, want 2", got)
		}
	})
}

// TestCommitAfterUnknownCancel: what a Cancel may have ended is not reported as recorded.
func TestCommitAfterUnknownCancel(t *testing.T) {
	for _, cancel := range []func(*ratelimit.Reservation) error{
		func(r *ratelimit.Reservation) error { return r.Cancel(t.Context()) },
		func(r *ratelimit.Reservation) error { return r.Commit(t.Context(), 0) },
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &mapStore{}
			tokens := newBudgets(t, store, ratelimit.PerHour("tokens", 100))
			r := mustReserve(t, claim(tokens, 40))
			store.err, store.decides, store.errs = ratelimit.ErrOutcomeUnknown, true, 1
			wantErr(t, cancel(r), ratelimit.ErrOutcomeUnknown)
			if err := r.Commit(t.Context(), 10); !errors.Is(err, ratelimit.ErrNotHeld) {
				t.Errorf("Commit returned %v, and nothing is recorded", err)
			}
		})
	}
}

// TestCancelAfterRelease: a Cancel is repeated for a minute, although a Release has been already.
func TestCancelAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &unsettled{mapStore: &mapStore{}, until: time.Now().Add(80 * time.Second)}
		calls := newCalls(t, store, 1)
		tokens := newBudgets(t, store, ratelimit.PerHour("tokens", 100))
		r := mustReserve(t, claim(tokens, 40), claim(calls, 1))
		wantErr(t, r.Release(t.Context()), ratelimit.ErrUnavailable)
		time.Sleep(62 * time.Second)
		wantErr(t, r.Commit(t.Context(), 10), ratelimit.ErrUnavailable)
		wantErr(t, r.Cancel(t.Context()), ratelimit.ErrUnavailable)
		tries := store.tries.Load()
		time.Sleep(time.Hour)
		if got := store.tries.Load() - tries; got != 5 {
			t.Errorf("%d attempts in the background, want 5", got)
		}
		if err := r.Commit(t.Context(), 10); !errors.Is(err, ratelimit.ErrNotHeld) {
			t.Errorf("after the settlement in the background Commit returned %v", err)
		}
	})
}

// TestReleaseThenToken: calls that were released, or that time out since that has failed, are not
// in the token, so that the reservation that is resumed does not renew them.
func TestReleaseThenToken(t *testing.T) {
	for _, away := range []time.Duration{0, time.Second / 2} {
		synctest.Test(t, func(t *testing.T) {
			store := &unsettled{mapStore: &mapStore{}, until: time.Now().Add(away)}
			calls := newCalls(t, store, 1)
			tokens := newBudgets(t, store, ratelimit.PerHour("tokens", 100))
			r := mustReserve(t, claim(tokens, 40), claim(calls, 1))
			if err := r.Release(t.Context()); (err == nil) != (away == 0) {
				t.Error(err)
			}
			text, err := r.Token()
			noErr(t, err)
			r, err = ratelimit.Resume(text, tokens, calls)
			noErr(t, err)
			time.Sleep(2 * time.Minute)
			mustReserve(t, claim(calls, 1))
			noErr(t, r.Commit(t.Context(), 10))
			r = mustReserve(t, claim(tokens, 1))
			noErr(t, r.Cancel(t.Context()))

			r = mustReserve(t, ratelimit.Claim{Limiter: calls, Key: "other", N: 1})
			noErr(t, r.Release(t.Context()))
			_, err = r.Token()
			wantErr(t, err, ratelimit.ErrInvalid)
		})
	}
}

// TestResumeHolds: what a token holds stays held when it is resumed, however little of its time-out
// is left.
func TestResumeHolds(t *testing.T) {
	for _, d := range []time.Duration{0, 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			store := &mapStore{}
			calls := newCalls(t, store, 1)
			c := claim(calls, 1)
			c.Hold = d
			text, err := mustReserve(t, c).Token()
			noErr(t, err)
			if d == 0 {
				d = time.Minute
			}
			time.Sleep(d - 1100*time.Millisecond)
			r, err := ratelimit.Resume(text, calls)
			noErr(t, err)
			for range 600 {
				time.Sleep(100 * time.Millisecond)
				if res, err := calls.Peek(t.Context(), "k"); err != nil || res.Remaining != 0 {
					t.Fatalf("%+v, %v; want the unit held", res, err)
				}
			}
			noErr(t, r.Cancel(t.Context()))
		})
	}
}
