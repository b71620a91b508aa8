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

// errBusy means that a limit of the tenant refuses the call; it says when to try again.
type errBusy struct{ retryAfter time.Duration }

func (e errBusy) Error() string { return fmt.Sprintf("try again in %v", e.retryAfter) }

// gateway forwards prompts to a language model within the budgets of each tenant.
type gateway struct {
	requests, tokens, calls, blocked *ratelimit.Limiter
}

func newGateway(store ratelimit.Store) (g gateway, err error) {
	limiter := func(a ratelimit.Algorithm) *ratelimit.Limiter {
		l, e := ratelimit.New(store, a)
		err = errors.Join(err, e)
		return l
	}
	g.requests = limiter(algorithm.SlidingLog(ratelimit.PerMinute("requests", 60)))
	g.tokens = limiter(algorithm.Budget(
		algorithm.SlidingLog(ratelimit.PerMinute("tokens", 10_000))))
	g.calls = limiter(algorithm.InFlight("calls", 5))
	g.blocked = limiter(algorithm.Blocking("blocked", 24*time.Hour))
	return g, err
}

// stream calls the model, and calls chunk after each part of the answer with the number of tokens
// used so far.
type stream func(chunk func(used int64) error) (used int64, err error)

func (g gateway) forward(ctx context.Context, tenant string, estimate int64, model stream) error {
	estimate = min(estimate, g.tokens.Max())
	r, err := ratelimit.ReserveAll(ctx,
		ratelimit.Claim{Limiter: g.blocked, Key: tenant},
		ratelimit.Claim{Limiter: g.requests, Key: tenant, N: 1}, // taken, not held
		ratelimit.Claim{Limiter: g.tokens, Key: tenant, N: estimate},
		ratelimit.Claim{Limiter: g.calls, Key: tenant, N: 1},
	)
	if err != nil {
		return err
	}
	if !r.Allowed() {
		return errBusy{r.Result().RetryAfter}
	}
	defer r.Cancel(ctx) // a call that used nothing costs nothing
	used, err := model(func(used int64) error {
		if used <= estimate {
			return nil
		}
		more := min(used+1000, g.tokens.Max()) - estimate
		if more <= 0 {
			return ratelimit.ErrExceedsLimit
		}
		results, err := r.Extend(ctx, more)
		if err != nil {
			return err
		}
		if !results[0].Allowed {
			return errBusy{results[0].RetryAfter} // ends the stream
		}
		estimate += more
		return nil
	})
	if err != nil && used == 0 {
		return err
	}
	// A stream that was cut is charged what it used.
	return errors.Join(err, r.Commit(ctx, used))
}

// block refuses all calls of a tenant for d from now.
func (g gateway) block(ctx context.Context, tenant string, d time.Duration) error {
	_, err := g.blocked.WithPolicy(ratelimit.FailClosed).Force(ctx, tenant, algorithm.BlockFor(d))
	return err
}

// A gateway to a language model reserves an estimate on all budgets of a tenant at once, reserves
// more while the answer exceeds it, and finally charges what was used.
func Example_budgets() {
	var clock testClock
	store := newExampleStore(&clock)
	defer store.Close()
	gateway, err := newGateway(store)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	left := func() {
		tokens, _ := gateway.tokens.Peek(ctx, "acme")
		calls, _ := gateway.calls.Peek(ctx, "acme")
		fmt.Println(tokens.Remaining, "tokens and", calls.Remaining, "calls are left")
	}
	answer := func(tokens int64) stream {
		return func(chunk func(int64) error) (int64, error) {
			left()
			for used := int64(500); used < tokens; used += 500 {
				if err := chunk(used); err != nil {
					return used, err
				}
			}
			return tokens, nil
		}
	}

	fmt.Println(gateway.forward(ctx, "acme", 4000, answer(1500)))
	left()
	fmt.Println(gateway.forward(ctx, "acme", 4000, answer(7000)))
	left()
	fmt.Println(gateway.forward(ctx, "acme", 4000, answer(1)))

	_ = gateway.block(ctx, "acme", 15*time.Minute)
	fmt.Println(gateway.forward(ctx, "acme", 100, answer(1)))
	// Output:
	// 6000 tokens and 4 calls are left
	// <nil>
	// 8500 tokens and 5 calls are left
	// 4500 tokens and 4 calls are left
	// <nil>
	// 1500 tokens and 5 calls are left
	// try again in 1m0s
	// try again in 15m0s
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
		defer r.Release(ctx)
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
