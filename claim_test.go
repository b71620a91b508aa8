package ratelimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
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
		newLimiter(t, store, ratelimit.PerMinute("tokens", 100), ratelimit.PerHour("hourly", 150)),
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
	if err != nil || results[0].Remaining != requests || results[1].Remaining != tokens {
		t.Fatalf("%+v, %v; want %d requests and %d tokens left", results, err, requests, tokens)
	}
}

// TestAllowAll: claims of different units are admitted together or not at all, in one call of the
// store.
func TestAllowAll(t *testing.T) {
	b := newBudget(t)
	ask := func(requests, tokens int64, want ...bool) {
		t.Helper()
		b.store.made()
		results, err := ratelimit.AllowAll(t.Context(), b.claims(requests, tokens)...)
		if err != nil || results[0].Allowed != want[0] || results[1].Allowed != want[1] {
			t.Fatalf("%+v, %v; want %v", results, err, want)
		}
		if calls := b.store.made(); len(calls) != 1 {
			t.Errorf("%d calls of the store: %q", len(calls), calls)
		}
	}
	ask(1, 60, true, true)
	b.left(t, 2, 40)
	ask(1, 41, true, false) // tokens refuse, so the request is not taken
	b.left(t, 2, 40)
	ask(2, 0, true, true) // no tokens
	b.left(t, 0, 40)
	ask(1, 1, false, true)
	b.left(t, 0, 40)
	b.clock.advance(time.Minute)
	ask(1, 91, true, false) // the hour has 90 left
	b.left(t, 3, 90)
}

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
			for _, f := range []decide{ratelimit.AllowAll, ratelimit.PeekAll} {
				results, err := f(t.Context(), tt.claims...)
				if err == nil || results != nil {
					t.Errorf("%v, %v", results, err)
				}
				wantErr(t, err, tt.want)
			}
			wantCalls(t, b.store)
		})
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
	claims[0].Limiter = b.requests.With(ratelimit.FailOpen)
	if results, err := ratelimit.AllowAll(t.Context(), claims...); results != nil {
		t.Errorf("%+v, although one limiter fails closed", results)
	} else {
		wantErr(t, err, ratelimit.ErrUnavailable)
	}
	claims[1].Limiter = b.tokens.With(ratelimit.FailOpen)
	results, err := ratelimit.AllowAll(t.Context(), claims...)
	want := ratelimit.Result{Allowed: true, Source: ratelimit.SourceOpen,
		Limit: b.requests.Limits()[0]}
	if err != nil || results[0] != want || results[1].Source != ratelimit.SourceOpen {
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
			o.Admitted() != want || o.RefusedByOther == want {
			t.Errorf("requests: %+v", o)
		}
		if p.N != 60 || p.Op != driver.OpTake || len(p.Results) != 2 || p.Admitted() != want ||
			p.Elapsed <= 0 {
			t.Errorf("tokens: %+v", p)
		}
	}
}

// TestAllowAllEach returns the result of each limit of each claim, in their order, and decides as
// AllowAll does.
func TestAllowAllEach(t *testing.T) {
	b := newBudget(t)
	first := ratelimit.Result{Remaining: 42}
	each := func(claims ...ratelimit.Claim) []ratelimit.Result {
		t.Helper()
		results, err := ratelimit.AllowAllEach(t.Context(), []ratelimit.Result{first}, claims...)
		if err != nil || results[0] != first {
			t.Fatalf("%+v, %v", results, err)
		}
		return results[1:]
	}
	check := func(results []ratelimit.Result, allowed [3]bool, remaining [3]int64) {
		t.Helper()
		for i, res := range results {
			if len(results) != 3 || res.Allowed != allowed[i] || res.Remaining != remaining[i] {
				t.Fatalf("%+v, want %v and %v", results, allowed, remaining)
			}
		}
	}
	all := [3]bool{true, true, true}
	check(each(b.claims(1, 90)...), all, [3]int64{2, 10, 60})
	check(each(b.claims(1, 20)...), [3]bool{true, false, true}, [3]int64{2, 10, 60})
	r := mustReserve(t, b.claims(1, 10)...)
	check(r.ResultsEach(), all, [3]int64{1, 0, 50})
	noErr(t, r.Cancel(t.Context()))
	b.left(t, 2, 10)
	r, err := ratelimit.ReserveAll(t.Context(), b.claims(1, 20)...)
	noErr(t, err)
	check(r.ResultsEach(), [3]bool{true, false, true}, [3]int64{2, 10, 60})

	dst := []ratelimit.Result{first}
	results, err := ratelimit.AllowAllEach(t.Context(), dst)
	wantErr(t, err, ratelimit.ErrInvalid)
	if len(results) != 1 || results[0] != first {
		t.Errorf("after an error: %+v", results)
	}
}
