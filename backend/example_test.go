package backend_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/driver"

	_ "github.com/truewindow/ratelimit/backend/memory"
)

// A deployment chooses where limits are stored: in memory, unless an environment variable holds the
// URL of another store. For redis://… the program also imports backend/redis.
func ExampleOpen() {
	url := os.Getenv("EXAMPLE_STORE")
	if url == "" {
		url = "memory"
	}
	ctx := context.Background()
	store, err := backend.Open(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Probe(ctx); err != nil {
		log.Print(store.Name, " cannot decide: ", err)
	}
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(driver.PerMinute("login", 60)))
	if err != nil {
		log.Fatal(err)
	}
	res, err := limiter.Allow(ctx, "user:42")
	fmt.Println(res.Allowed, res.Remaining, err)
	// Output: true 59 <nil>
}
