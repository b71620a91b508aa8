package ratelimit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

// TestLeast: claims with a Least take what is free, the same number under all their limits, and
// beside claims without one.
func TestLeast(t *testing.T) {
	b := newBudget(t)
	claims := func(n, least int64) []ratelimit.Claim {
		claims := b.claims(1, n)
		claims[1].Least = least
		return claims
	}
	for i, want := range []int64{100, 0} {
		results, err := ratelimit.AllowAll(t.Context(), claims(driver.MaxUnits, 1)...)
		noErr(t, err)
		if len(results) != 3 || results[1].Units != want || results[2].Units != want ||
			results[1].Allowed != (want > 0) {
			t.Fatalf("call %d: %+v, want %d units", i, results, want)
		}
	}
	b.left(t, 2, 0)
	b.clock.advance(time.Minute)
	peeked, err := ratelimit.PeekAll(t.Context(), claims(100, 51)...)
	noErr(t, err)
	if peeked[2].Allowed || peeked[2].RetryAfter != 59*time.Minute {
		t.Errorf("a peek for 51 of 50 units: %+v", peeked)
	}
	peeked, err = ratelimit.PeekAll(t.Context(), claims(100, 50)...)
	noErr(t, err)
	if !peeked[2].Allowed || peeked[2].Units != 0 {
		t.Errorf("a peek for 50 of 50 units: %+v", peeked)
	}
	results, err := ratelimit.AllowAll(t.Context(), claims(100, 50)...)
	noErr(t, err)
	if results[1].Units != 50 || results[2].Units != 50 {
		t.Errorf("%+v, want 50 units: the smaller part", results)
	}
	b.left(t, 2, 0)
}

// TestLeastAlone: a claim with a Least of one limit.
func TestLeastAlone(t *testing.T) {
	store, err := memorystore.New(nil)
	noErr(t, err)
	defer store.Close()
	for name, a := range map[string]ratelimit.Algorithm{
		"log":    algorithm.SlidingLog(ratelimit.PerMinute("log", 10)),
		"bucket": algorithm.GCRA(ratelimit.PerMinute("bucket", 10)),
	} {
		var r recorder
		l, err := ratelimit.New(store, a)
		noErr(t, err)
		l = l.WithObserver(r.observe)
		for _, want := range []int64{7, 3, 0} {
			results, err := ratelimit.AllowAll(t.Context(),
				ratelimit.Claim{Limiter: l, Key: "k", N: 7, Least: 2})
			noErr(t, err)
			if results[0].Units != want || results[0].Allowed != (want > 0) {
				t.Errorf("%s: %+v, want %d units", name, results, want)
			}
		}
		if n := [3]int64{r.seen[0].N, r.seen[1].N, r.seen[2].N}; n != [3]int64{7, 3, 2} {
			t.Errorf("%s: %v units were observed, want those that were granted, or 2", name, n)
		}
	}
}

// TestLeastInvalid: a Least that makes no sense is an error before the store is called.
func TestLeastInvalid(t *testing.T) {
	b := newBudget(t)
	for _, tt := range []struct {
		n, least int64
		want     error
	}{
		{5, 6, ratelimit.ErrInvalid},
		{5, -1, ratelimit.ErrInvalid},
		{0, 1, ratelimit.ErrInvalid},
		{driver.MaxUnits + 1, 1, ratelimit.ErrInvalid},
		{200, 101, ratelimit.ErrExceedsLimit},
	} {
		claims := b.claims(1, tt.n)
		claims[1].Least = tt.least
		_, err := ratelimit.AllowAll(t.Context(), claims...)
		wantErr(t, err, tt.want)
		_, err = ratelimit.ReserveAll(t.Context(), claims...)
		wantErr(t, err, tt.want)
	}
	claims := b.claims(2, 2)
	claims[0].Least, claims[1].Least = 1, 2
	_, err := ratelimit.AllowAll(t.Context(), claims...)
	wantErr(t, err, ratelimit.ErrInvalid)
	if calls := b.store.made(); len(calls) > 0 {
		t.Errorf("the store was called: %v", calls)
	}
}

// TestReserveLeast: a reservation of a part holds, settles and passes on what it got.
func TestReserveLeast(t *testing.T) {
	b := newBudget(t)
	r, err := b.tokens.Reserve(t.Context(), "k", 70)
	noErr(t, err)
	part, err := ratelimit.ReserveAll(t.Context(),
		ratelimit.Claim{Limiter: b.tokens, Key: "k", N: 50, Least: 10})
	noErr(t, err)
	if n := part.Claims()[0].N; n != 30 || part.Result().Units != 30 {
		t.Fatalf("%d units are reserved, %+v; want 30", n, part.Result())
	}
	noErr(t, r.Cancel(t.Context()))
	_, err = part.Extend(t.Context(), 5)
	noErr(t, err)
	b.left(t, 3, 65)
	text, err := part.Token()
	noErr(t, err)
	part, err = ratelimit.Resume(text, b.tokens)
	noErr(t, err)
	noErr(t, part.Commit(t.Context()))
	b.left(t, 3, 65)
	refused, err := ratelimit.ReserveAll(t.Context(),
		ratelimit.Claim{Limiter: b.tokens, Key: "k", N: 90, Least: 80})
	noErr(t, err)
	if refused.Allowed() || refused.Claims()[0].N != 90 {
		t.Errorf("%+v, want a refusal of 80", refused.Results())
	}
}

// TestWaitLeast: a wait ends as soon as the least is free, with all that is free then.
func TestWaitLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memorystore.New(nil)
		noErr(t, err)
		defer store.Close()
		l, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("l", 10)))
		noErr(t, err)
		for _, n := range []int64{2, 5, 3} {
			_, err := l.AllowN(t.Context(), "k", n)
			noErr(t, err)
			time.Sleep(time.Second)
		}
		began := time.Now()
		results, err := ratelimit.WaitAll(t.Context(),
			ratelimit.Claim{Limiter: l, Key: "k", N: 9, Least: 3})
		noErr(t, err)
		if waited := time.Since(began); results[0].Units != 7 || waited != 58*time.Second {
			t.Errorf("%d units after %v, want 7 after 58s", results[0].Units, waited)
		}
	})
}

// TestLeastOpen: without the store, a part is what all limits would ever admit.
func TestLeastOpen(t *testing.T) {
	b := newBudget(t)
	b.store.err = ratelimit.ErrUnavailable
	l := b.tokens.WithPolicy(ratelimit.FailOpen)
	claim := ratelimit.Claim{Limiter: l, Key: "k", N: 140, Least: 1}
	results, err := ratelimit.AllowAll(t.Context(), claim)
	noErr(t, err)
	for _, res := range results {
		if res.Source != ratelimit.SourceOpen || res.Units != 100 {
			t.Errorf("%+v, want 100 units", res)
		}
	}
	r, err := ratelimit.ReserveAll(t.Context(), claim)
	noErr(t, err)
	b.store.err = nil
	noErr(t, r.Commit(t.Context()))
	b.left(t, 3, 0)
}
