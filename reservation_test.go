package ratelimit_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
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

func mustAcquire(t *testing.T, calls *ratelimit.Limiter) *ratelimit.Reservation {
	t.Helper()
	r, err := calls.Acquire(t.Context(), "k", 1)
	if err != nil || !r.Allowed() {
		t.Fatalf("%+v, %v", r, err)
	}
	return r
}

// TestCommit: one call of the store ends the holds and records what was used. What has no holds was
// charged at once. Further settlements record nothing, and a Commit says so.
func TestCommit(t *testing.T) {
	for _, tt := range []struct {
		name       string
		used       []int64
		tokens     int64 // left of 100
		nextMinute int64 // left of tokens when the minute is over
	}{
		{"as reserved", nil, 40, 90},
		{"as reserved, said so", []int64{60}, 40, 90},
		{"less", []int64{10}, 90, 100},
		{"nothing", []int64{0}, 100, 100},
		{"more", []int64{75}, 25, 75},
		{"more than the limit", []int64{170}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBudget(t)
			r := mustReserve(t, b.claims(1, 60)...)
			b.left(t, 2, 40)
			b.clock.advance(time.Second)
			noErr(t, r.Commit(t.Context(), tt.used...))
			wantCalls(t, b.store, "all settle")
			wantErr(t, r.Commit(t.Context(), tt.used...), ratelimit.ErrNotHeld)
			noErr(t, r.Cancel(t.Context()))
			wantCalls(t, b.store)
			b.left(t, 2, tt.tokens)
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
	if err != nil || r.Allowed() || r.Result().RetryAfter < time.Minute || len(r.Results()) != 3 {
		t.Fatalf("%+v, %v", r.Results(), err)
	}
	b.store.made()
	noErr(t, r.Cancel(t.Context()))
	wantErr(t, r.Commit(t.Context(), 60), ratelimit.ErrInvalid)
	_, err = r.Extend(t.Context(), 1)
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

// TestExtend: more is held or refused, with the results of the limits that were asked.
func TestExtend(t *testing.T) {
	b := newBudget(t)
	r := mustReserve(t, b.claims(1, 40)...)
	other := mustReserve(t, claim(b.tokens, 10))
	r.Claims()[0].N = 7 // a copy
	for _, step := range []struct {
		more    int64
		allowed bool
		claimed int64
	}{{30, true, 70}, {21, false, 70}, {10, true, 80}, {0, true, 80}} {
		results, err := r.Extend(t.Context(), step.more)
		noErr(t, err)
		for _, res := range results {
			if res.Limit.Name == "tokens" && res.Allowed != step.allowed {
				t.Errorf("extend by %d: %+v", step.more, results)
			}
		}
		if len(results) != 2 && step.more > 0 {
			t.Errorf("extend by %d: %d results, want those of the tokens", step.more, len(results))
		}
		if claims := r.Claims(); claims[0].N != 1 || claims[1].N != step.claimed {
			t.Errorf("extend by %d: %+v", step.more, claims)
		}
	}
	b.left(t, 2, 10)
	_, err := r.Extend(t.Context(), 21)
	wantErr(t, err, ratelimit.ErrExceedsLimit)
	noErr(t, r.Commit(t.Context(), 50))
	noErr(t, other.Cancel(t.Context()))
	b.left(t, 2, 50)
	_, err = r.Extend(t.Context(), 1)
	wantErr(t, err, ratelimit.ErrInvalid)
}

// TestSeveralBudgets: numbers of several Budgets name their limiter.
func TestSeveralBudgets(t *testing.T) {
	b := newBudget(t)
	money := newBudgets(t, b.store, ratelimit.PerDay("money", 1000))
	other := newBudgets(t, b.store, ratelimit.PerDay("other", 1000))
	reserve := func() *ratelimit.Reservation {
		return mustReserve(t, append(b.claims(1, 40), claim(money, 100))...)
	}
	left := func(tokens, cents int64) {
		t.Helper()
		results, err := ratelimit.PeekAll(t.Context(), claim(b.tokens, 1), claim(money, 1))
		noErr(t, err)
		if results[0].Remaining != tokens || results[2].Remaining != cents {
			t.Errorf("%+v, want %d tokens and %d cents left", results, tokens, cents)
		}
	}
	r := reserve()
	b.store.made()
	wantErr(t, r.Commit(t.Context(), 10), ratelimit.ErrInvalid)
	_, err := r.Extend(t.Context(), 10)
	wantErr(t, err, ratelimit.ErrInvalid)
	tokens := ratelimit.Claim{Limiter: b.tokens, N: 15}
	for _, wrong := range [][]ratelimit.Claim{
		{{Limiter: other, N: 1}}, {{N: 1}}, {tokens, tokens}, {{Limiter: b.requests, N: 1}},
		{{Limiter: money, N: -1}}, {{Limiter: money, N: driver.MaxUnits + 1}},
		{{Limiter: money, Key: "other", N: 1}},
	} {
		wantErr(t, r.CommitAll(t.Context(), wrong...), ratelimit.ErrInvalid)
		_, err := r.ExtendAll(t.Context(), wrong...)
		wantErr(t, err, ratelimit.ErrInvalid)
	}
	wantCalls(t, b.store)
	results, err := r.ExtendAll(t.Context(), ratelimit.Claim{Limiter: money, Key: "k", N: 50})
	if err != nil || len(results) != 1 || !results[0].Allowed {
		t.Errorf("%+v, %v", results, err)
	}
	left(60, 850)
	noErr(t, r.CommitAll(t.Context(), ratelimit.Claim{Limiter: money, N: 120}, tokens))
	left(85, 880)
	noErr(t, reserve().CommitAll(t.Context(), tokens)) // money as it was held
	left(70, 780)
}

// TestReservationArguments: a wrong number of units is an error before any I/O, and settles
// nothing.
func TestReservationArguments(t *testing.T) {
	b := newBudget(t)
	r := mustReserve(t, b.claims(1, 40)...)
	b.store.made()
	for _, n := range [][]int64{{1, 2}, {-1}, {driver.MaxUnits + 1}} {
		wantErr(t, r.Commit(t.Context(), n...), ratelimit.ErrInvalid)
	}
	for _, n := range []int64{-1, driver.MaxUnits, driver.MaxUnits + 1} {
		_, err := r.Extend(t.Context(), n)
		wantErr(t, err, ratelimit.ErrInvalid)
	}
	wantCalls(t, b.store)
	plain := mustReserve(t, claim(b.requests, 1))
	wantErr(t, plain.Commit(t.Context(), 1), ratelimit.ErrInvalid)
	noErr(t, plain.Commit(t.Context()))
	noErr(t, r.Commit(t.Context(), 10))
	b.left(t, 1, 90)
}

// TestSettleAfterErrors: a settlement may be repeated after any error, and counts once. A Cancel
// repeats the Commit before it.
func TestSettleAfterErrors(t *testing.T) {
	for _, cause := range []error{ratelimit.ErrUnavailable, ratelimit.ErrOutcomeUnknown} {
		for _, recorded := range []bool{true, false} {
			if recorded && cause == ratelimit.ErrUnavailable {
				continue
			}
			for name, again := range map[string]func(*ratelimit.Reservation) error{
				"Commit": func(r *ratelimit.Reservation) error { return r.Commit(t.Context(), 25) },
				"Cancel": func(r *ratelimit.Reservation) error { return r.Cancel(t.Context()) },
			} {
				b := newBudget(t)
				r := mustReserve(t, b.claims(1, 40)...)
				b.store.err, b.store.decides = cause, recorded
				wantErr(t, r.Commit(t.Context(), 25), cause)
				b.store.err = nil
				if err := again(r); err != nil {
					t.Errorf("%s after %v, recorded %t: %v", name, cause, recorded, err)
				}
				b.left(t, 2, 75)
			}
		}
	}
}

// TestCommitElsewhere: a second Commit of one hold, in another process, records nothing and says
// so, and so does one after a Reset.
func TestCommitElsewhere(t *testing.T) {
	b := newBudget(t)
	text, err := mustReserve(t, claim(b.tokens, 40)).Token()
	noErr(t, err)
	one, err := ratelimit.Resume(text, b.tokens)
	noErr(t, err)
	two, err := ratelimit.Resume(text, b.tokens)
	noErr(t, err)
	noErr(t, one.Commit(t.Context(), 10))
	if err := two.Commit(t.Context(), 10); !errors.Is(err, ratelimit.ErrNotHeld) {
		t.Errorf("the second Commit returned %v", err)
	}
	b.left(t, 3, 90)
	r := mustReserve(t, claim(b.tokens, 40))
	noErr(t, b.tokens.Reset(t.Context(), "k"))
	mustReserve(t, claim(b.tokens, 90))
	if err := r.Commit(t.Context(), 10); !errors.Is(err, ratelimit.ErrNotHeld) {
		t.Errorf("after a Reset Commit returned %v", err)
	}
	b.left(t, 3, 10)
}

// TestSettleAfterCancel: a caller that was canceled still settles.
func TestSettleAfterCancel(t *testing.T) {
	b := newBudget(t)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := ratelimit.ReserveAll(ctx, b.claims(1, 40)...)
	noErr(t, err)
	cancel()
	if _, err := r.Extend(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("Extend: %v", err)
	}
	noErr(t, r.Cancel(ctx))
	b.left(t, 2, 100)
}

// TestSettleOpen: a reservation that the policy admitted is charged when it is committed, once. If
// its hold may have been sent, only the hold is settled.
func TestSettleOpen(t *testing.T) {
	for _, tt := range []struct {
		name    string
		cause   error
		placed  bool // with cause ErrOutcomeUnknown: the store has decided
		commit  error
		again   error
		settled int64 // units after a Commit of 10 that fails with commit, and one that does not
	}{
		{"not sent", ratelimit.ErrUnavailable, false, nil, ratelimit.ErrNotHeld, 10},
		{"not sent, Commit fails", ratelimit.ErrUnavailable, false, ratelimit.ErrUnavailable,
			nil, 10},
		{"not sent, Commit unknown", ratelimit.ErrUnavailable, false, ratelimit.ErrOutcomeUnknown,
			ratelimit.ErrNotHeld, 0},
		{"sent and placed", ratelimit.ErrOutcomeUnknown, true, nil, ratelimit.ErrNotHeld, 10},
		{"sent and lost", ratelimit.ErrOutcomeUnknown, false, ratelimit.ErrNotHeld,
			ratelimit.ErrNotHeld, 0},
	} {
		b := newBudget(t)
		open := b.tokens.WithPolicy(ratelimit.FailOpen)
		b.store.err, b.store.decides = tt.cause, tt.placed
		r := mustReserve(t, claim(open, 40))
		if r.Result().Source != ratelimit.SourceOpen {
			t.Errorf("%s: %+v", tt.name, r.Result())
		}
		b.store.err, b.store.decides = nil, false
		_, err := r.Token()
		wantErr(t, err, ratelimit.ErrInvalid)
		if errors.Is(tt.commit, ratelimit.ErrUnavailable) {
			b.store.err = tt.commit
		}
		if err := r.Commit(t.Context(), 10); !errors.Is(err, tt.commit) {
			t.Errorf("%s: Commit returned %v, want %v", tt.name, err, tt.commit)
		}
		b.store.err = nil
		if err := r.Commit(t.Context(), 10); !errors.Is(err, tt.again) {
			t.Errorf("%s: the second Commit returned %v, want %v", tt.name, err, tt.again)
		}
		b.left(t, 3, 100-tt.settled)
	}
}

// TestExtendOpen: an extension of a reservation that the policy admitted holds all of it.
func TestExtendOpen(t *testing.T) {
	b := newBudget(t)
	calls := newCalls(t, b.store, 1).WithPolicy(ratelimit.FailOpen)
	open := b.tokens.WithPolicy(ratelimit.FailOpen)
	money := newBudgets(t, b.store, ratelimit.PerDay("money", 1000)).
		WithPolicy(ratelimit.FailOpen)
	b.store.err = ratelimit.ErrUnavailable
	r := mustReserve(t, claim(open, 40), claim(money, 100), claim(calls, 1))
	b.store.err = nil
	other := mustReserve(t, claim(calls, 1))
	results, err := r.ExtendAll(t.Context(), ratelimit.Claim{Limiter: open, N: 10})
	if noErr(t, err); results[ratelimit.Binding(results)].Allowed {
		t.Errorf("extended beside another call in flight: %+v", results)
	}
	noErr(t, other.Cancel(t.Context()))
	_, err = r.ExtendAll(t.Context(), ratelimit.Claim{Limiter: open, N: 10})
	noErr(t, err)
	b.left(t, 3, 50)
	noErr(t, r.CommitAll(t.Context(), ratelimit.Claim{Limiter: money, N: 70}))
	b.left(t, 3, 50)
	if res, err := money.Peek(t.Context(), "k"); err != nil || res.Remaining != 930 {
		t.Errorf("%+v, %v; want 930 left", res, err)
	}
}

// TestReserveAsksAgain: a reservation of holds alone whose answer is lost is asked for once more,
// by the same ID; one that also takes is not.
func TestReserveAsksAgain(t *testing.T) {
	b := newBudget(t)
	b.store.err, b.store.decides, b.store.errs = ratelimit.ErrOutcomeUnknown, true, 1
	r := mustReserve(t, claim(b.tokens, 40))
	wantCalls(t, b.store, "all hold", "all hold")
	b.left(t, 3, 60)
	noErr(t, r.Commit(t.Context(), 10))
	b.left(t, 3, 90)
	b.store.errs = 1
	b.store.err = ratelimit.ErrOutcomeUnknown
	_, err := ratelimit.ReserveAll(t.Context(), b.claims(1, 40)...)
	wantErr(t, err, ratelimit.ErrOutcomeUnknown)
	wantCalls(t, b.store, "all take")

	// A second attempt could be refused by a claim of nothing although the first holds.
	calls := newCalls(t, b.store, 1)
	mustReserve(t, claim(calls, 1))
	b.store.made()
	b.store.err, b.store.errs = ratelimit.ErrOutcomeUnknown, 1
	_, err = ratelimit.ReserveAll(t.Context(), claim(b.tokens, 1), claim(calls, 0))
	wantErr(t, err, ratelimit.ErrOutcomeUnknown)
	wantCalls(t, b.store, "all hold")
}

// TestReservationObserved: holds and settlements are observed by the limits that have them.
func TestReservationObserved(t *testing.T) {
	b := newBudget(t)
	var seen recorder
	claims := b.claims(1, 60)
	claims[1].Limiter = b.tokens.WithObserver(seen.observe)
	noErr(t, mustReserve(t, claims...).Commit(t.Context(), 40))
	noErr(t, mustReserve(t, claims[1]).Cancel(t.Context()))
	want := []struct {
		op driver.Op
		n  int64
	}{{driver.OpHold, 60}, {driver.OpSettle, 40}, {driver.OpHold, 60}, {driver.OpSettle, 0}}
	for i, o := range seen.seen {
		if i >= len(want) || o.Op != want[i].op || o.N != want[i].n || len(o.Results) != 2 {
			t.Errorf("%d: %+v", i, o)
		}
	}
}

// TestInFlight: a unit is held until it is settled, or until the time-out. Limits of calls in
// flight take nothing.
func TestInFlight(t *testing.T) {
	clock := newClock()
	store := &mapStore{now: clock.now}
	calls := newCalls(t, store, 2)
	try := func(want bool) *ratelimit.Reservation {
		t.Helper()
		r, err := calls.Reserve(t.Context(), "k", 1)
		if err != nil || r.Allowed() != want {
			t.Fatalf("%+v, %v; want allowed %t", r.Results(), err, want)
		}
		return r
	}
	first := try(true)
	clock.advance(10 * time.Second)
	second := try(true)
	if d := try(false).Result().RetryAfter; d < 50*time.Second || d > 58*time.Second {
		t.Errorf("RetryAfter %v", d)
	}
	noErr(t, first.Cancel(t.Context()))
	noErr(t, first.Cancel(t.Context()))
	third := try(true)
	try(false) // the second Cancel did nothing
	clock.advance(68 * time.Second)
	try(true) // both have timed out
	try(true)
	noErr(t, second.Cancel(t.Context()))
	noErr(t, third.Commit(t.Context()))
	try(false)

	store.made()
	for name, ask := range map[string]func() error{
		"Allow": func() error { _, err := calls.Allow(t.Context(), "k"); return err },
		"Force": func() error { _, err := calls.Force(t.Context(), "k", 1); return err },
		"Wait":  func() error { _, err := calls.Wait(t.Context(), "k"); return err },
		"AllowAll": func() error {
			_, err := ratelimit.AllowAll(t.Context(), claim(calls, 1))
			return err
		},
	} {
		if err := ask(); !errors.Is(err, ratelimit.ErrInvalid) {
			t.Errorf("%s of calls in flight: %v", name, err)
		}
	}
	wantCalls(t, store)
}

// TestCallEndsBeforeItsCharge: a call in flight that is a reservation of its own ends although its
// tokens are still held.
func TestCallEndsBeforeItsCharge(t *testing.T) {
	b := newBudget(t)
	calls := newCalls(t, b.store, 1)
	tokens := mustReserve(t, b.claims(1, 40)...)
	call := mustReserve(t, claim(calls, 1))
	b.store.err = ratelimit.ErrUnavailable
	wantErr(t, tokens.Commit(t.Context(), 10), ratelimit.ErrUnavailable)
	b.store.err = nil
	noErr(t, call.Cancel(t.Context()))
	other := mustReserve(t, claim(calls, 1))
	noErr(t, tokens.Commit(t.Context(), 10))
	if res, err := calls.Peek(t.Context(), "k"); err != nil || res.Remaining != 0 {
		t.Errorf("%+v, %v; want the other call in flight", res, err)
	}
	b.left(t, 2, 90)
	noErr(t, other.Cancel(t.Context()))
}

// TestRenewals: a hold is renewed until it is settled, and then no more; a reservation that nobody
// refers to is free after its time-out.
func TestRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mapStore{}
		calls := newCalls(t, store, 1)
		r := mustReserve(t, claim(calls, 1))
		time.Sleep(10 * time.Minute)
		if n := len(store.made()); n < 26 || n > 34 {
			t.Errorf("%d calls of the store in ten minutes, want a renewal each 20 s", n)
		}
		if busy, err := calls.Reserve(t.Context(), "k", 1); err != nil || busy.Allowed() {
			t.Errorf("%+v, %v beside a call that is renewed", busy, err)
		}
		noErr(t, r.Commit(t.Context()))
		store.made()
		time.Sleep(10 * time.Minute)
		wantCalls(t, store)

		mustReserve(t, claim(calls, 1))
		for range 3 {
			runtime.GC()
		}
		store.made()
		time.Sleep(68 * time.Second)
		wantCalls(t, store)
		mustReserve(t, claim(calls, 1))
	})
}

// TestRenewalAfterOutage: after a failed renewal the next follows within a second, and brings back
// what has timed out, even if others have taken it.
func TestRenewalAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mapStore{}
		calls := newCalls(t, store, 1)
		r := mustReserve(t, claim(calls, 1))
		store.fail(ratelimit.ErrUnavailable)
		time.Sleep(5 * time.Minute)
		store.fail(nil)
		other := mustReserve(t, claim(calls, 1))
		time.Sleep(time.Second)
		noErr(t, other.Cancel(t.Context()))
		if res, err := calls.Peek(t.Context(), "k"); err != nil || res.Remaining != 0 {
			t.Errorf("%+v, %v; want the unit held again", res, err)
		}
		noErr(t, r.Cancel(t.Context()))
	})
}

// TestTokenKeeps: the units of a token stay held for as long as the last renewal says, and its
// reservation is renewed no more until it is resumed.
func TestTokenKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mapStore{}
		calls := newCalls(t, store, 1)
		r := mustReserve(t, claim(calls, 1))
		noErr(t, r.Renew(t.Context(), 10*time.Minute))
		store.made()
		text, err := r.Token()
		noErr(t, err)
		time.Sleep(10*time.Minute - time.Second)
		wantCalls(t, store)
		r, err = ratelimit.Resume(text, calls)
		noErr(t, err)
		time.Sleep(10 * time.Minute)
		if res, err := calls.Peek(t.Context(), "k"); err != nil || res.Remaining != 0 {
			t.Errorf("%+v, %v; want the unit held", res, err)
		}
		wantErr(t, r.Renew(t.Context(), time.Hour), ratelimit.ErrInvalid)
		noErr(t, r.Cancel(t.Context()))
		wantErr(t, r.Renew(t.Context(), 0), ratelimit.ErrInvalid)
	})
}

// TestClaimHold: a claim says for how long its units are held, and its renewals are as frequent.
func TestClaimHold(t *testing.T) {
	for _, d := range []time.Duration{time.Minute / 16, 16 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			store := &mapStore{}
			calls := newCalls(t, store, 1)
			held := func(want bool) {
				t.Helper()
				res, err := calls.Peek(t.Context(), "k")
				if err != nil || (res.Remaining == 0) != want {
					t.Errorf("%v: %+v, %v; held should be %t", d, res, err, want)
				}
			}
			c := claim(calls, 1)
			c.HoldTimeout = d
			r := mustReserve(t, c)
			time.Sleep(3 * d)
			held(true)
			store.made()
			time.Sleep(d / 3)
			if n := len(store.made()); n < 1 || n > 2 {
				t.Errorf("%v: %d renewals in a third of it", d, n)
			}
			_, err := r.Token()
			noErr(t, err)
			time.Sleep(d * 7 / 12)
			held(true)
			time.Sleep(d * 7 / 12)
			held(false)
			c.HoldTimeout = d * 17 / 16
			if d == time.Minute/16 {
				c.HoldTimeout = d * 15 / 16
			}
			_, err = ratelimit.ReserveAll(t.Context(), c)
			wantErr(t, err, ratelimit.ErrInvalid)
		})
	}
}

// TestRenew: it holds for the time-out again, whatever has become of the context, and says if
// nothing is held.
func TestRenew(t *testing.T) {
	clock := newClock()
	store := &mapStore{now: clock.now}
	calls := newCalls(t, store, 1)
	text, err := mustReserve(t, claim(calls, 1)).Token()
	noErr(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		clock.advance(time.Minute - time.Second)
		r, err := ratelimit.Resume(text, calls)
		noErr(t, err)
		noErr(t, r.Renew(ended, 0))
		_, err = r.Token()
		noErr(t, err)
	}
	clock.advance(time.Minute - time.Second)
	if res, err := calls.Peek(t.Context(), "k"); err != nil || res.Remaining != 0 {
		t.Errorf("%+v, %v; want the unit held", res, err)
	}
	one, err := ratelimit.Resume(text, calls)
	noErr(t, err)
	two, err := ratelimit.Resume(text, calls)
	noErr(t, err)
	noErr(t, one.Cancel(t.Context()))
	if err := two.Renew(t.Context(), 0); !errors.Is(err, ratelimit.ErrNotHeld) {
		t.Errorf("after a settlement Renew returned %v", err)
	}
}

// leavingStore is a store that cancels the context of its caller while it decides.
type leavingStore struct {
	*mapStore
	leave func()
}

func (s leavingStore) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	s.leave()
	if err := ctx.Err(); err != nil {
		return ratelimit.Result{}, errors.Join(ratelimit.ErrOutcomeUnknown, err)
	}
	return s.mapStore.Take(ctx, d)
}

func (s leavingStore) TakeAll(
	ctx context.Context, ds []driver.Demand, out []ratelimit.Result,
) error {
	s.leave()
	if err := ctx.Err(); err != nil {
		return errors.Join(ratelimit.ErrOutcomeUnknown, err)
	}
	return s.mapStore.TakeAll(ctx, ds, out)
}

// TestReserveOutlivesCaller: a call that holds gets its answer even if its context ends meanwhile.
// If the context has ended before, the store is not asked, and the observer sees the error.
func TestReserveOutlivesCaller(t *testing.T) {
	store := leavingStore{mapStore: &mapStore{}}
	ctx, cancel := context.WithCancel(t.Context())
	again := func() { ctx, cancel = context.WithCancel(t.Context()) }
	store.leave = func() { cancel() }
	calls := newCalls(t, &store, 1)
	tokens := newBudgets(t, &store, ratelimit.PerMinute("tokens", 100))
	r, err := ratelimit.ReserveAll(ctx, claim(calls, 1), claim(tokens, 40))
	noErr(t, err)
	again()
	res, err := r.Extend(ctx, 10)
	if err != nil || !res[0].Allowed {
		t.Errorf("%+v, %v", res, err)
	}
	noErr(t, r.Cancel(ctx))
	again()
	r, err = calls.Acquire(ctx, "k", 1)
	noErr(t, err)
	noErr(t, r.Cancel(ctx))
	store.made()
	var seen []error
	observed := tokens.WithObserver(func(_ context.Context, o ratelimit.Observation) {
		seen = append(seen, o.Err)
	})
	store.leave = func() {}
	_, err = ratelimit.ReserveAll(ctx, claim(observed, 1))
	wantErr(t, err, ratelimit.ErrOutcomeUnknown, context.Canceled)
	wantCalls(t, store.mapStore)
	if len(seen) != 1 || !errors.Is(seen[0], context.Canceled) {
		t.Errorf("observed %v, want the error once", seen)
	}
}

// TestReserveAlgorithmChanged: the tokens of a log settle nothing of a fixed window of that name.
func TestReserveAlgorithmChanged(t *testing.T) {
	clock := newClock()
	store := &mapStore{now: clock.now}
	limit := ratelimit.PerMinute("tokens", 100)
	limiter := func(a ratelimit.Algorithm) *ratelimit.Limiter {
		l, err := ratelimit.New(store, algorithm.Budget(a))
		noErr(t, err)
		return l
	}
	log, fixed := limiter(algorithm.SlidingLog(limit)), limiter(algorithm.FixedWindow(limit))
	var texts []string
	for range 4 {
		text, err := mustReserve(t, claim(log, 25)).Token()
		noErr(t, err)
		texts = append(texts, text)
	}
	others := mustReserve(t, claim(fixed, 100))
	for _, text := range texts {
		if _, err := ratelimit.Resume(text, fixed); !errors.Is(err, ratelimit.ErrUnknownLimit) {
			t.Fatalf("Resume under another algorithm: %v", err)
		}
		r, err := ratelimit.Resume(text, fixed, log)
		noErr(t, err)
		noErr(t, r.Cancel(t.Context()))
	}
	if res, err := fixed.Peek(t.Context(), "k"); err != nil || res.Remaining != 0 {
		t.Errorf("%+v, %v; want what others took to stay", res, err)
	}
	noErr(t, others.Commit(t.Context()))
}

// TestBucketCancel: canceling a hold frees what it held. Canceling what a plain bucket was charged
// frees nothing.
func TestBucketCancel(t *testing.T) {
	clock := newClock()
	plain := algorithm.GCRA(ratelimit.PerSecond("tokens", 2))
	store := &mapStore{now: clock.now}
	bucket, err := ratelimit.New(store, plain)
	noErr(t, err)
	a, b := mustReserve(t, claim(bucket, 1)), mustReserve(t, claim(bucket, 1))
	noErr(t, a.Cancel(t.Context()))
	clock.advance(500 * time.Millisecond)
	noErr(t, b.Cancel(t.Context()))
	if res, err := bucket.Peek(t.Context(), "k"); err != nil || res.Remaining != 1 {
		t.Errorf("%+v, %v; want only the unit that was refilled", res, err)
	}

	bucket, err = ratelimit.New(store, algorithm.Budget(plain))
	noErr(t, err)
	a, b = mustReserve(t, claim(bucket, 1)), mustReserve(t, claim(bucket, 1))
	noErr(t, a.Cancel(t.Context()))
	noErr(t, mustReserve(t, claim(bucket, 1)).Commit(t.Context()))
	clock.advance(500 * time.Millisecond)
	noErr(t, b.Cancel(t.Context()))
	if res, err := bucket.Peek(t.Context(), "k"); err != nil || res.Remaining != 2 {
		t.Errorf("%+v, %v; want the unit of b and the one that was refilled", res, err)
	}
}

// TestResetKeepsOthers: canceling what was reserved before a Reset frees nothing that others hold.
func TestResetKeepsOthers(t *testing.T) {
	clock := newClock()
	limiter, err := ratelimit.New(&mapStore{now: clock.now}, algorithm.Budget(
		algorithm.SlidingLog(ratelimit.PerMinute("tokens", 100)).WithResolution(time.Second)))
	noErr(t, err)
	before := mustReserve(t, claim(limiter, 100))
	noErr(t, limiter.Reset(t.Context(), "k"))
	noErr(t, mustReserve(t, claim(limiter, 100)).Commit(t.Context()))
	noErr(t, before.Cancel(t.Context()))
	if res, err := limiter.Peek(t.Context(), "k"); err != nil || res.Remaining != 0 {
		t.Errorf("%+v, %v; want none free", res, err)
	}
}

// TestReserveClones: the caller may reuse its claims.
func TestReserveClones(t *testing.T) {
	b := newBudget(t)
	claims := b.claims(1, 40)
	r := mustReserve(t, claims...)
	clear(claims)
	noErr(t, r.Commit(t.Context(), 10))
	if got := r.Claims(); slices.Contains(got, ratelimit.Claim{}) {
		t.Errorf("%+v", got)
	}
	b.left(t, 2, 90)
}

// TestExtendRenewsSooner: units of a claim that held none before are renewed within their own
// time-out, though all others have a longer one.
func TestExtendRenewsSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mapStore{}
		budget := func(name string, timeout time.Duration) *ratelimit.Limiter {
			log := algorithm.SlidingLog(ratelimit.PerSecond(name, 10))
			l, err := ratelimit.New(store, algorithm.Budget(log).WithTimeout(timeout))
			noErr(t, err)
			return l
		}
		long, short := budget("long", time.Hour), budget("short", time.Minute)
		r := mustReserve(t, claim(long, 5), claim(short, 0))
		_, err := r.ExtendAll(t.Context(), ratelimit.Claim{Limiter: short, N: 5})
		noErr(t, err)
		store.made()
		time.Sleep(10 * time.Minute)
		if n := len(store.made()); n < 26 || n > 34 {
			t.Errorf("%d calls of the store in ten minutes, want a renewal each 20 s", n)
		}
		if res, err := short.Peek(t.Context(), "k"); err != nil || res.Remaining != 5 {
			t.Errorf("%+v, %v; want 5 units held", res, err)
		}
		noErr(t, r.Cancel(t.Context()))
	})
}

// TestReservationConcurrently: the methods of a reservation may run at once.
func TestReservationConcurrently(t *testing.T) {
	b := newBudget(t)
	r := mustReserve(t, b.claims(1, 10)...)
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			_, err := r.Extend(t.Context(), 1)
			noErr(t, err)
		})
		calls.Go(func() {
			_, err := r.ExtendAll(t.Context(), claim(b.tokens, 1))
			noErr(t, err)
		})
		calls.Go(func() { r.Claims() })
	}
	calls.Wait()
	b.left(t, 2, 82)
	noErr(t, r.Commit(t.Context()))
	b.left(t, 2, 82)
}

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

// TestSettlementRepeats: a Cancel that fails is repeated for a minute, and one after a
// Commit repeats that. Nothing is renewed meanwhile, although the program keeps the reservation.
func TestSettlementRepeats(t *testing.T) {
	commit := func(ctx context.Context, r *ratelimit.Reservation) error {
		return errors.Join(r.Commit(ctx, 10), r.Cancel(ctx))
	}
	cancel := func(ctx context.Context, r *ratelimit.Reservation) error {
		return errors.Join(r.Cancel(ctx), r.Cancel(ctx))
	}
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
		{"commit in vain", commit, time.Hour, 68 * time.Second, 100, 8},
		{"cancel in vain", cancel, time.Hour, 68 * time.Second, 100, 8},
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
				if tt.away < time.Hour {
					wantErr(t, r.Commit(t.Context(), 10), ratelimit.ErrNotHeld)
				}
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

// holdCounts are the holds under the limits tokens and calls that are open, and how many were late
// and lost.
type holdCounts struct{ open, late, lost [2]int }

// holdWatch sums what an observer gets.
type holdWatch struct {
	mu     sync.Mutex
	counts holdCounts
}

func limitIndex(l ratelimit.Limit) int { return map[string]int{"tokens": 0, "calls": 1}[l.Name] }

func (w *holdWatch) observe(_ context.Context, o ratelimit.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, change := range o.Open {
		at := limitIndex(o.Limits[i])
		w.counts.open[at] += change
		switch {
		case errors.Is(o.Err, ratelimit.ErrNotHeld):
			w.counts.lost[at]++
		case errors.Is(o.Err, context.DeadlineExceeded):
			w.counts.late[at]++
		case o.Err != nil:
			panic(o.Err)
		}
	}
}

// A heldCall is a reservation in the model, with a hold of tokens and one of calls.
type heldCall struct {
	key    string
	r      *ratelimit.Reservation // nil if there is only its token
	text   string
	commit int64 // the units of a Commit that has failed
	unheld bool  // the policy has admitted it
	holds  [2]heldUnits
}

// heldUnits is a hold in the model.
type heldUnits struct {
	exists  bool // in the store
	open    bool // as this process knows
	stale   bool // its time-out is over
	unknown bool // the answer to a settlement was lost
}

// met counts a call that has held or renewed the hold at i, if it exists.
func (c *holdCounts) met(i int, h *heldUnits) {
	if !h.exists {
		c.end(i, h, !h.unknown)
		return
	}
	if h.open && h.stale {
		c.late[i]++
	}
	if !h.open {
		c.open[i]++
	}
	*h = heldUnits{exists: true, open: true}
}

// settled counts a settlement of the hold at i with n units.
func (c *holdCounts) settled(i int, h *heldUnits, n int64) {
	missing := n > 0 && !h.exists
	if !missing && h.open && h.stale {
		c.late[i]++
	}
	c.end(i, h, missing && !h.unknown)
	h.exists = false
}

func (c *holdCounts) end(i int, h *heldUnits, lost bool) {
	if h.open {
		c.open[i]--
	}
	if h.open && lost {
		c.lost[i]++
	}
	h.open = false
}

// TestOpenHolds: the changes of holds that observers get add up to a plain count, through random
// histories of reservations that are refused, extended, settled, passed on as tokens, resumed,
// reset, dropped and renewed after outages, on a store that fails and loses answers.
func TestOpenHolds(t *testing.T) {
	var ended holdCounts
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			h := newHoldHistory(t, seed)
			for range 150 {
				h.step()
			}
			h.finish()
			for i := range 2 {
				ended.late[i] += h.want.late[i]
				ended.lost[i] += h.want.lost[i]
			}
		})
	}
	for i := range 2 {
		if ended.late[i] == 0 || ended.lost[i] == 0 {
			t.Errorf("the histories have no late or no lost hold: %+v", ended)
		}
	}
}

type holdHistory struct {
	*testing.T
	rnd           *rand.Rand
	store         *mapStore
	watch         holdWatch
	want          holdCounts
	tokens, calls *ratelimit.Limiter
	live          []*heldCall
}

func newHoldHistory(t *testing.T, seed uint64) *holdHistory {
	h := &holdHistory{T: t, rnd: rand.New(rand.NewPCG(seed, 1)), store: new(mapStore)}
	h.tokens = newBudgets(t, h.store, ratelimit.PerMinute("tokens", 40)).
		WithObserver(h.watch.observe)
	h.calls = newCalls(t, h.store, 6).
		WithObserver(h.watch.observe)
	return h
}

// set makes the store answer with err, and decide all the same or not.
func (s *mapStore) set(err error, decides bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.decides = err, decides
}

// pass lets time pass until all reservations are renewed.
func (h *holdHistory) pass() {
	time.Sleep(25 * time.Second)
	for _, c := range h.live {
		for i := range c.holds {
			if c.r != nil && !c.unheld {
				h.want.met(i, &c.holds[i])
			}
		}
	}
}

// outage lets time pass until all holds have timed out, and nothing is repeated any more. It does
// not end at the time of a renewal.
func (h *holdHistory) outage() {
	h.store.set(ratelimit.ErrUnavailable, false)
	time.Sleep(2*time.Minute + 7*time.Millisecond)
	h.store.set(nil, false)
	for _, c := range h.live {
		c.holds[0].stale, c.holds[1].stale = true, true
	}
}

// check compares the counts after an operation.
func (h *holdHistory) check(did string) {
	h.Helper()
	synctest.Wait()
	h.watch.mu.Lock()
	defer h.watch.mu.Unlock()
	if got := h.watch.counts; got != h.want {
		h.Fatalf("after %s: %+v, want %+v", did, got, h.want)
	}
}

func (h *holdHistory) step() {
	if len(h.live) == 0 || h.rnd.IntN(3) == 0 {
		h.reserve()
		return
	}
	at := h.rnd.IntN(len(h.live))
	c := h.live[at]
	gone := func() { h.live = slices.Delete(h.live, at, at+1) }
	if c.r == nil {
		r, err := ratelimit.Resume(c.text, h.tokens, h.calls)
		noErr(h, err)
		c.r, c.text = r, ""
		h.check("Resume")
		return
	}
	cause, decides := ratelimit.ErrUnavailable, false
	if h.rnd.IntN(2) == 0 {
		cause, decides = ratelimit.ErrOutcomeUnknown, h.rnd.IntN(2) == 0
	}
	// lost sets what the answer that was lost has changed.
	lost := func(holds []heldUnits) {
		for i := range holds {
			if cause == ratelimit.ErrOutcomeUnknown {
				holds[i].unknown = true
				holds[i].exists = holds[i].exists && !decides
			}
		}
	}
	switch h.rnd.IntN(12) {
	case 0, 1:
		_ = c.r.Commit(h.Context(), 3)
		_ = c.r.Commit(h.Context(), 3)
		c.commit = 3
		h.settled(c)
		gone()
		h.check("Commit")
	case 2:
		_ = c.r.Cancel(h.Context())
		h.settled(c)
		gone()
		h.check("Cancel")
	case 3:
		h.store.set(cause, decides)
		_ = c.r.Commit(h.Context(), 3)
		h.store.set(nil, false)
		c.commit = 3
		if c.unheld && cause == ratelimit.ErrOutcomeUnknown {
			gone() // it is never forced again
		} else {
			lost(c.holds[:])
		}
		h.check("a Commit that fails")
	case 4:
		away := h.rnd.IntN(3) == 0
		if away {
			h.store.set(ratelimit.ErrUnavailable, false)
		}
		results, err := c.r.Extend(h.Context(), 1)
		h.store.set(nil, false)
		if !away {
			noErr(h, err)
		}
		if !away && results[ratelimit.Binding(results)].Allowed {
			for i := range c.holds[:len(results)] {
				c.holds[i].exists = true
				h.want.met(i, &c.holds[i])
			}
			c.unheld = false
		}
		h.check("Extend")
	case 5, 6:
		text, err := c.r.Token()
		if c.r.Result().Source == ratelimit.SourceOpen {
			wantErr(h.T, err, ratelimit.ErrInvalid)
			return
		}
		noErr(h, err)
		for i := range c.holds {
			h.want.end(i, &c.holds[i], false)
		}
		*c = heldCall{key: c.key, text: text, holds: c.holds}
		h.check("Token")
	case 7:
		noErr(h, h.tokens.Reset(h.Context(), c.key))
		for _, c := range h.live {
			c.holds[0].exists = c.holds[0].exists && c.key != h.live[at].key
		}
		h.check("Reset")
	case 8:
		gone()
		for i := range c.holds {
			h.want.end(i, &c.holds[i], c.holds[i].open)
		}
		c.r = nil
		for range 3 {
			runtime.GC()
		}
		h.pass()
		h.check("a drop")
	case 9:
		h.outage()
		h.check("an outage")
	case 10:
		h.store.set(cause, decides)
		_ = c.r.Cancel(h.Context())
		h.store.set(nil, false)
		gone()
		if lost(c.holds[:]); h.rnd.IntN(2) == 0 {
			h.pass()
			h.settled(c)
		} else {
			h.outage()
			h.want.end(0, &c.holds[0], true)
			h.want.end(1, &c.holds[1], true)
		}
		h.check("a Cancel that fails")
	default:
		h.pass()
		h.check("renewals")
	}
}

// settled records a Commit or a Cancel.
func (h *holdHistory) settled(c *heldCall) {
	if !c.unheld {
		h.want.settled(0, &c.holds[0], c.commit)
		h.want.settled(1, &c.holds[1], 0)
	}
}

// finish settles all, and sees that nothing is open.
func (h *holdHistory) finish() {
	for _, c := range h.live {
		if c.r != nil {
			_ = c.r.Commit(h.Context(), 3)
			c.commit = 3
			h.settled(c)
		}
	}
	h.check("all")
	if h.want.open != [2]int{} {
		h.Errorf("open at the end: %+v", h.want)
	}
	for _, l := range []*ratelimit.Limiter{h.tokens, h.calls} {
		if held := ratelimit.HeldHere(l); len(held) > 0 {
			h.Errorf("waits would count as held under %v: %v", l.Limits(), held)
		}
	}
}

func (h *holdHistory) reserve() {
	c := &heldCall{key: []string{"a", "b"}[h.rnd.IntN(2)]}
	claims := []ratelimit.Claim{
		{Limiter: h.tokens, Key: c.key, N: 5}, {Limiter: h.calls, Key: c.key, N: 1}}
	mode := h.rnd.IntN(8)
	if mode < 3 {
		for i := range claims {
			claims[i].Limiter = claims[i].Limiter.WithPolicy(ratelimit.FailOpen)
		}
	}
	free, err := ratelimit.PeekAll(h.Context(), claims...)
	noErr(h, err)
	decides := h.rnd.IntN(2) == 0
	switch mode {
	case 0, 3:
		h.store.set(ratelimit.ErrUnavailable, false)
	case 1:
		h.store.set(ratelimit.ErrOutcomeUnknown, decides)
	}
	r, err := ratelimit.ReserveAll(h.Context(), claims...)
	h.store.set(nil, false)
	if c.r = r; err == nil && r.Allowed() {
		h.live = append(h.live, c)
		c.unheld = mode == 0
		for i := range c.holds {
			if u := &c.holds[i]; r.Result().Source == ratelimit.SourceOpen {
				u.exists = mode == 1 && decides && free[ratelimit.Binding(free)].Allowed
			} else {
				u.exists = true
				h.want.met(i, u)
			}
		}
	}
	h.check("Reserve")
}

// TestUnitsNotCounted: calls that wait do not count units which the store may not hold any more,
// although the reservation goes on.
func TestUnitsNotCounted(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lose  func(*mapStore, *ratelimit.Reservation, *ratelimit.Limiter)
		calls int // of the store in the next ten minutes
	}{
		{"a part is reset elsewhere", func(
			store *mapStore, _ *ratelimit.Reservation, calls *ratelimit.Limiter,
		) {
			elsewhere, err := ratelimit.New(store, calls.Algorithms()...)
			noErr(t, err)
			noErr(t, elsewhere.Reset(context.Background(), "k"))
			time.Sleep(25 * time.Second)
		}, 30},
		{"the answer to a Commit is lost", func(
			store *mapStore, r *ratelimit.Reservation, _ *ratelimit.Limiter,
		) {
			store.set(ratelimit.ErrOutcomeUnknown, false)
			wantErr(t, r.Commit(context.Background(), 1), ratelimit.ErrOutcomeUnknown)
			store.set(nil, false)
		}, 30},
		{"the store is closed", func(
			store *mapStore, _ *ratelimit.Reservation, _ *ratelimit.Limiter,
		) {
			store.set(driver.ErrClosed, false)
			time.Sleep(25 * time.Second)
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &mapStore{}
				calls := newCalls(t, store, 1)
				tokens := newBudgets(t, store, ratelimit.PerHour("tokens", 100))
				r := mustReserve(t, claim(calls, 1), claim(tokens, 10))
				if held := ratelimit.HeldHere(calls)["k"]; held != 1 {
					t.Errorf("%d units are counted at first, want 1", held)
				}
				tt.lose(store, r, calls)
				if held := ratelimit.HeldHere(calls); len(held) > 0 {
					t.Errorf("units are counted: %v", held)
				}
				store.made()
				time.Sleep(10 * time.Minute)
				if n := len(store.made()); n < tt.calls || n > tt.calls+tt.calls/10 {
					t.Errorf("%d renewals, want about %d", n, tt.calls)
				}
				store.set(nil, false)
				noErr(t, r.Cancel(t.Context()))
			})
		})
	}
}
