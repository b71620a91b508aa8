package ratelimit_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

// budget is a store with a limiter of requests and one of tokens.
type budget struct {
	clock            *clock
	store            *mapStore
	requests, tokens *ratelimit.Limiter
}

func newBudget(t *testing.T) budget {
	t.Helper()
	clock := newClock()
	store := &mapStore{now: clock.now}
	return budget{clock, store,
		newLimiter(t, store, ratelimit.PerMinute("requests", 3)),
		newBudgets(t, store, ratelimit.PerMinute("tokens", 100), ratelimit.PerHour("hourly", 150)),
	}
}

func (b budget) claims(requests, tokens int64) []ratelimit.Claim {
	return []ratelimit.Claim{
		{Limiter: b.requests, Key: "k", N: requests}, {Limiter: b.tokens, Key: "k", N: tokens},
	}
}

// left checks how much of each budget is left.
func (b budget) left(t *testing.T, requests, tokens int64) {
	t.Helper()
	results, err := ratelimit.PeekAll(t.Context(), b.claims(1, 1)...)
	b.store.made()
	noErr(t, err)
	of := results[1:]
	if left := of[ratelimit.Binding(of)]; results[0].Remaining != requests ||
		left.Remaining != tokens {
		t.Fatalf("%+v; want %d requests and %d tokens left", results, requests, tokens)
	}
}

// TestAllowAll: claims of different units are admitted together or not at all, in one call of the
// store. There is a result for each limit of each claim, in their order.
func TestAllowAll(t *testing.T) {
	b := newBudget(t)
	limits := slices.Concat(b.requests.Limits(), b.tokens.Limits())
	check := func(results []ratelimit.Result, allowed [3]bool, remaining [3]int64) {
		t.Helper()
		if len(results) != len(limits) {
			t.Fatalf("%d results, want one for each of %d limits", len(results), len(limits))
		}
		for i, res := range results {
			if res.Limit != limits[i] || res.Allowed != allowed[i] ||
				res.Remaining != remaining[i] {
				t.Fatalf("%+v, want %v and %v", results, allowed, remaining)
			}
		}
	}
	ask := func(requests, tokens int64, allowed [3]bool, remaining [3]int64) {
		t.Helper()
		claims := b.claims(requests, tokens)
		peek, err := ratelimit.PeekAll(t.Context(), claims...)
		noErr(t, err)
		b.store.made()
		results, err := ratelimit.AllowAll(t.Context(), claims...)
		noErr(t, err)
		if calls := b.store.made(); len(calls) != 1 {
			t.Errorf("%d calls of the store: %q", len(calls), calls)
		}
		check(results, allowed, remaining)
		if allowed != all3 { // a peek takes no more than a refusal
			check(peek, allowed, remaining)
		}
	}
	ask(1, 60, all3, [3]int64{2, 40, 90})
	ask(1, 41, [3]bool{true, false, true}, [3]int64{2, 40, 90}) // the request is not taken
	ask(2, 0, all3, [3]int64{0, 40, 90})                        // no tokens
	ask(1, 1, [3]bool{false, true, true}, [3]int64{0, 40, 90})
	b.clock.advance(time.Minute)
	ask(1, 91, [3]bool{true, true, false}, [3]int64{3, 100, 90})
	b.left(t, 3, 90)

	r := mustReserve(t, b.claims(1, 10)...)
	check(r.Results(), all3, [3]int64{2, 90, 80})
	r, err := ratelimit.ReserveAll(t.Context(), b.claims(1, 81)...)
	noErr(t, err)
	check(r.Results(), [3]bool{true, true, false}, [3]int64{2, 90, 80})
}

var all3 = [3]bool{true, true, true}

// TestAllowAllErrors: claims that cannot be decided together are an error before any I/O.
func TestAllowAllErrors(t *testing.T) {
	b, other := newBudget(t), newBudget(t)
	type uncomparable struct {
		ratelimit.Store
		_ []int
	}
	odd := newLimiter(t, uncomparable{Store: b.store}, ratelimit.PerMinute("odd", 1))
	for name, tt := range map[string]struct {
		claims []ratelimit.Claim
		want   error
	}{
		"no claim":   {nil, ratelimit.ErrInvalid},
		"no limiter": {[]ratelimit.Claim{{Key: "k", N: 1}}, ratelimit.ErrInvalid},
		"no key": {[]ratelimit.Claim{{Limiter: b.requests, N: 1}},
			ratelimit.ErrInvalid},
		"negative": {b.claims(1, -1), ratelimit.ErrInvalid},
		"too many": {b.claims(4, 1), ratelimit.ErrExceedsLimit},
		"one limit twice": {append(b.claims(1, 1), b.claims(1, 1)[0]),
			ratelimit.ErrInvalid},
		"two stores": {append(b.claims(1, 1), other.claims(1, 1)[0]),
			ratelimit.ErrInvalid},
		"two stores in a type == cannot compare": {
			[]ratelimit.Claim{{Limiter: odd, Key: "a", N: 1}, {Limiter: odd, Key: "b", N: 1}},
			ratelimit.ErrInvalid,
		},
	} {
		t.Run(name, func(t *testing.T) {
			type decide = func(context.Context, ...ratelimit.Claim) ([]ratelimit.Result, error)
			for _, f := range []decide{ratelimit.AllowAll, ratelimit.PeekAll, ratelimit.WaitAll} {
				results, err := f(t.Context(), tt.claims...)
				if err == nil || results != nil {
					t.Errorf("%v, %v", results, err)
				}
				wantErr(t, err, tt.want)
			}
			wantCalls(t, b.store)
		})
	}
	_, err := ratelimit.AllowAll(t.Context(), b.claims(1, -1)...)
	if err == nil || strings.Contains(err.Error(), "Least") {
		t.Errorf("%v, of claims without a Least", err)
	}
	single := ratelimit.Claim{Limiter: odd, Key: "k", N: 1}
	if _, err := ratelimit.AllowAll(t.Context(), single); err != nil {
		t.Errorf("a single claim: %v", err)
	}
}

// TestAllowAllPolicies: claims are admitted without the store only if the policies of all limiters
// admit them.
func TestAllowAllPolicies(t *testing.T) {
	b := newBudget(t)
	b.store.err = ratelimit.ErrUnavailable
	claims := b.claims(1, 1)
	claims[0].Limiter = b.requests.WithPolicy(ratelimit.FailOpen)
	if results, err := ratelimit.AllowAll(t.Context(), claims...); results != nil {
		t.Errorf("%+v, although one limiter fails closed", results)
	} else {
		wantErr(t, err, ratelimit.ErrUnavailable)
	}
	claims[1].Limiter = b.tokens.WithPolicy(ratelimit.FailOpen)
	results, err := ratelimit.AllowAll(t.Context(), claims...)
	want := ratelimit.Result{Allowed: true, Source: ratelimit.SourceOpen,
		Limit: b.requests.Limits()[0], Units: 1}
	if err != nil || len(results) != 3 || results[0] != want ||
		results[2].Source != ratelimit.SourceOpen {
		t.Errorf("%+v, %v", results, err)
	}
}

// TestAllowAllObserved: each limiter's observer gets its own claim.
func TestAllowAllObserved(t *testing.T) {
	b := newBudget(t)
	var requests, tokens recorder
	claims := b.claims(1, 60)
	claims[0].Limiter = b.requests.WithObserver(requests.observe)
	claims[1].Limiter = b.tokens.WithObserver(tokens.observe)
	for range 2 {
		if _, err := ratelimit.AllowAll(t.Context(), claims...); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []bool{true, false} {
		o, p := requests.seen[i], tokens.seen[i]
		if o.N != 1 || o.Key != "k" || len(o.Results) != 1 || !o.Results[0].Allowed ||
			o.Admitted != want {
			t.Errorf("requests: %+v", o)
		}
		if p.N != 60 || p.Op != driver.OpTake || len(p.Results) != 2 || p.Admitted != want ||
			p.Elapsed <= 0 {
			t.Errorf("tokens: %+v", p)
		}
	}
}

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
