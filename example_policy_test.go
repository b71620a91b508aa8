package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// awayStore is a store whose server does not answer.
type awayStore struct{}

func (awayStore) Take(context.Context, driver.Demand) (ratelimit.Result, error) {
	return ratelimit.Result{}, ratelimit.ErrUnavailable
}

func (awayStore) TakeAll(context.Context, []driver.Demand, []ratelimit.Result) error {
	return ratelimit.ErrUnavailable
}

// Each use of a limiter can have its own policy.
func ExampleLimiter_WithPolicy() {
	closed, err := ratelimit.New(awayStore{}, algorithm.SlidingLog(ratelimit.PerHour("hour", 10)))
	if err != nil {
		log.Fatal(err)
	}
	open := closed.WithPolicy(ratelimit.FailOpen)

	ctx := context.Background()
	_, err = closed.Allow(ctx, "login:ann") // better no login than a guessed password
	fmt.Println(errors.Is(err, ratelimit.ErrUnavailable))
	res, err := open.Allow(ctx, "search:ann") // better too many searches than none
	fmt.Println(res.Allowed, res.Source, err)
	// Output:
	// true
	// true open <nil>
}

// Count decisions with one observer. Do not use the key as a label of the counters: it is user
// data.
func ExampleLimiter_WithObserver() {
	var clock testClock
	store := newExampleStore(&clock)
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("login", 2)))
	if err != nil {
		log.Fatal(err)
	}
	counts := make(map[string]int) // with concurrent callers, guard it with a lock
	limiter = limiter.WithObserver(func(_ context.Context, o ratelimit.Observation) {
		switch {
		case o.Err != nil:
			counts["error"]++
		case o.Admitted:
			counts["admitted"]++
		default:
			counts["refused"]++
		}
	})
	for _, key := range []string{"user:42", "user:42", "user:42", "user:7", ""} {
		_, _ = limiter.Allow(context.Background(), key)
	}
	fmt.Println(counts)
	// Output: map[admitted:3 error:1 refused:1]
}
