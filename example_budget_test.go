package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

// A call to a language model holds an estimate under all limits of a tenant, more when its answer
// exceeds that, and is charged what it used.
func ExampleReserveAll() {
	var clock testClock
	store := newExampleStore(&clock)
	defer store.Close()
	requests, err1 := ratelimit.New(store,
		algorithm.SlidingLog(ratelimit.PerMinute("requests", 60)))
	tokens, err2 := ratelimit.New(store,
		algorithm.Budget(algorithm.SlidingLog(ratelimit.PerMinute("tokens", 10_000))))
	calls, err3 := ratelimit.New(store, algorithm.InFlight("calls", 5))
	blocked, err4 := ratelimit.New(store, algorithm.Blocking("blocked", 24*time.Hour))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		log.Fatal(err)
	}
	call := func(ctx context.Context, tenant string) error {
		r, err := ratelimit.ReserveAll(ctx,
			ratelimit.Claim{Limiter: blocked, Key: tenant},
			ratelimit.Claim{Limiter: requests, Key: tenant, N: 1}, // taken, not held
			ratelimit.Claim{Limiter: tokens, Key: tenant, N: 4000},
			ratelimit.Claim{Limiter: calls, Key: tenant, N: 1},
		)
		if err != nil {
			return err
		}
		if !r.Allowed() {
			return fmt.Errorf("try again in %v", r.Result().RetryAfter)
		}
		defer r.Cancel(ctx) // a call that used nothing costs nothing
		if results, err := r.Extend(ctx, 1000); err != nil || !results[0].Allowed {
			return r.Commit(ctx, 4000) // the answer is cut here
		}
		return r.Commit(ctx, 4700)
	}

	ctx := context.Background()
	for range 3 {
		err := call(ctx, "acme")
		left, _ := tokens.Peek(ctx, "acme")
		fmt.Println(left.Remaining, "tokens are left,", err)
	}
	_, err := blocked.WithPolicy(ratelimit.FailClosed).Force(ctx, "acme",
		algorithm.BlockFor(15*time.Minute))
	fmt.Println(err, call(ctx, "acme"))
	// Output:
	// 5300 tokens are left, <nil>
	// 600 tokens are left, <nil>
	// 600 tokens are left, try again in 1m0s
	// <nil> try again in 15m0s
}

// A call counts against a budget of tokens and against the money of the day and of the month.
func ExampleReservation_CommitAll() {
	var clock testClock
	store := newExampleStore(&clock)
	defer store.Close()
	tokens, err1 := ratelimit.New(store,
		algorithm.Budget(algorithm.SlidingLog(ratelimit.PerMinute("tokens", 10_000))))
	money, err2 := ratelimit.New(store, // in cents
		algorithm.Budget(algorithm.FixedWindow(ratelimit.PerDay("day", 50_00))),
		algorithm.Budget(algorithm.Monthly("month", 1000_00)),
	)
	if err := errors.Join(err1, err2); err != nil {
		log.Fatal(err)
	}
	call := func(ctx context.Context, tenant string) error {
		r, err := ratelimit.ReserveAll(ctx,
			ratelimit.Claim{Limiter: tokens, Key: tenant, N: 4000},
			ratelimit.Claim{Limiter: money, Key: tenant, N: 12})
		if err != nil || !r.Allowed() {
			return err
		}
		return r.CommitAll(ctx,
			ratelimit.Claim{Limiter: tokens, N: 1500}, ratelimit.Claim{Limiter: money, N: 5})
	}

	ctx := context.Background()
	left := func() {
		results, _ := ratelimit.PeekAll(ctx, ratelimit.Claim{Limiter: tokens, Key: "acme"},
			ratelimit.Claim{Limiter: money, Key: "acme"})
		fmt.Println(results[0].Remaining, results[1].Remaining, results[2].Remaining)
	}
	fmt.Println(call(ctx, "acme"))
	left()
	clock.Advance(12 * time.Hour) // to midnight
	left()
	clock.Advance(29 * 24 * time.Hour) // to December
	left()
	// Output:
	// <nil>
	// 8500 4995 99995
	// 10000 5000 99995
	// 10000 5000 100000
}

// At most two calls of a tenant are in flight at once, over all processes.
func ExampleLimiter_Acquire() {
	store := newExampleStore(&testClock{})
	defer store.Close()
	calls, err := ratelimit.New(store, algorithm.InFlight("calls", 2))
	if err != nil {
		log.Fatal(err)
	}
	call := func(ctx context.Context, next func(context.Context) error) error {
		r, err := calls.Acquire(ctx, "tenant", 1)
		if err != nil {
			return err
		}
		defer r.Cancel(ctx)
		return next(ctx)
	}
	state := func(ctx context.Context) error {
		res, err := calls.Peek(ctx, "tenant")
		fmt.Println(res.Remaining, "more may begin")
		return err
	}
	ctx := context.Background()
	_ = call(ctx, func(ctx context.Context) error { return call(ctx, state) })
	_ = state(ctx)
	// Output:
	// 0 more may begin
	// 2 more may begin
}

// A call holds an estimate, and is charged the units it used.
func ExampleLimiter_Reserve() {
	store := newExampleStore(&testClock{})
	defer store.Close()
	tokens, err := ratelimit.New(store,
		algorithm.Budget(algorithm.SlidingLog(ratelimit.PerMinute("tokens", 10_000))))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	r, err := tokens.Reserve(ctx, "tenant:7", 4000) // an estimate
	if err != nil || !r.Allowed() {
		log.Fatal("no call: ", err) // err is nil if a limit refused
	}
	err = r.Commit(ctx, 1500) // the units used; the rest is free
	res, _ := tokens.Peek(ctx, "tenant:7")
	fmt.Println(res.Remaining, err)
	// Output: 8500 <nil>
}

// Where a part of the units is of use, take what is free: here an answer may be as long as the
// tokens that are left, if these are 500 or more.
func ExampleClaim_least() {
	var clock testClock
	store := newExampleStore(&clock)
	defer store.Close()
	tokens, err := ratelimit.New(store, algorithm.Budget(
		algorithm.SlidingLog(ratelimit.PerMinute("tokens", 10_000))))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	for range 4 {
		r, err := ratelimit.ReserveAll(ctx,
			ratelimit.Claim{Limiter: tokens, Key: "acme", N: 4000, Least: 500})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Allowed(), "max_tokens:", r.Results()[0].Units)
	}
	// Output:
	// true max_tokens: 4000
	// true max_tokens: 4000
	// true max_tokens: 2000
	// false max_tokens: 0
}
