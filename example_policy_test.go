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
