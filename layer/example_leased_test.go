package layer_test

import (
	"context"
	"fmt"
	"log"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/layer"
)

// Each process of a fleet has its own layer around the store that they share, such as one of
// redisstore.Open.
func ExampleLeased() {
	shared, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer shared.Close()
	store, err := layer.NewLeased(shared, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	tenant := algorithm.SlidingLog(ratelimit.PerMinute("tenant", 1_000_000))
	limiter, err := ratelimit.New(store, tenant)
	if err != nil {
		log.Fatal(err)
	}
	res, err := limiter.Allow(context.Background(), "acme")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Allowed, res.Source) // the first calls of a key ask the store
	// Output: true store
}
