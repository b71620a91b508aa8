package ratelimit_test

import (
	"context"
	"slices"
	"strings"
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
