package backend_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend"

	_ "github.com/truewindow/ratelimit/backend/memory"
)

// A deployment says where the state of limits lives: in memory unless an environment variable says
// redis://…, where the program imports backend/redis as well.
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
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("login", 60)))
	if err != nil {
		log.Fatal(err)
	}
	res, err := limiter.Allow(ctx, "user:42")
	fmt.Println(res.Allowed, res.Remaining, err)
	// Output: true 59 <nil>
}
