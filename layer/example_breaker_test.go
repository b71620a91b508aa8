package layer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// While the server is unavailable, each demand takes the store's timeout, until the breaker opens.
// Then demands fail at once.
func ExampleNewBreaker() {
	var server driver.Store = unplugged{} // such as one of package redisstore

	store, err := layer.NewBreaker(server, &layer.BreakerOptions{
		Failures: 2,
		Pause:    500 * time.Millisecond,
		OnChange: func(from, to layer.BreakerState) {
			fmt.Println("the breaker was", from, "and is", to)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(driver.PerMinute("minute", 60)))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		_, err := limiter.Allow(context.Background(), "user:42")
		fmt.Println(errors.Is(err, driver.ErrUnavailable), errors.Is(err, layer.ErrBreakerOpen))
	}
	// Output:
	// true false
	// the breaker was closed and is open
	// true false
	// true true
}
