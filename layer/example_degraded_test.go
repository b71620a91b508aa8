package layer_test

import (
	"context"
	"fmt"
	"log"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// Four processes share a store. While it is unavailable, each admits a fourth of every limit.
func ExampleNewDegraded() {
	var server driver.Store = unplugged{} // such as one of package redisstore

	guarded, err := layer.NewBreaker(server, nil) // fails at once while the server is unavailable
	if err != nil {
		log.Fatal(err)
	}
	store, err := layer.NewDegraded(guarded, &layer.DegradedOptions{Instances: 4})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(driver.PerMinute("minute", 8)))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		res, err := limiter.Allow(context.Background(), "user:42")
		fmt.Println(res.Allowed, res.Remaining, res.Source, err)
	}
	// Output:
	// true 1 local <nil>
	// true 0 local <nil>
	// false 0 local <nil>
}

// unplugged is a store that is always unavailable.
type unplugged struct{}

func (unplugged) Take(context.Context, driver.Demand) (driver.Result, error) {
	return driver.Result{}, driver.ErrUnavailable
}

func (unplugged) TakeAll(context.Context, []driver.Demand, []driver.Result) error {
	return driver.ErrUnavailable
}
