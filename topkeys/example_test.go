package topkeys_test

import (
	"context"
	"fmt"
	"log"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/topkeys"
)

// The list has hashes of the keys. Name returns the hash of a key.
func Example() {
	ctx := context.Background()
	store, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerHour("calls", 10)))
	if err != nil {
		log.Fatal(err)
	}

	keys, err := topkeys.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	limiter = limiter.WithObserver(keys.Observe)

	for range 30 {
		if _, err := limiter.Allow(ctx, "user:42"); err != nil {
			log.Fatal(err)
		}
	}
	for _, limit := range keys.Top() {
		for _, k := range limit.Keys {
			fmt.Printf("%s: user:42 is %t, %.0f refusals\n",
				limit.Name, k.Name == keys.Name("user:42"), k.Count)
		}
	}
	// Output:
	// calls: user:42 is true, 20 refusals
}
