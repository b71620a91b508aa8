package layer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// Two parts of a program share a store, and no key.
func ExampleNewPrefix() {
	shared, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer shared.Close()
	for _, prefix := range []string{"api:", "mail:"} {
		store, err := layer.NewPrefix(shared, prefix)
		if err != nil {
			log.Fatal(err)
		}
		limiter, err := ratelimit.New(store, algorithm.SlidingLog(driver.PerMinute("minute", 1)))
		if err != nil {
			log.Fatal(err)
		}
		res, err := limiter.Allow(context.Background(), "user:42")
		fmt.Println(prefix, res.Allowed, err)
	}
	// Output:
	// api: true <nil>
	// mail: true <nil>
}

// The store inside gets a hash of each key. Whoever has the secret finds the key.
func ExampleNewHashedKeys() {
	shared, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer shared.Close()
	secret := []byte("32 random bytes, such as of a file")

	store, err := layer.NewHashedKeys(shared, secret)
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(driver.PerMinute("login", 5)))
	if err != nil {
		log.Fatal(err)
	}
	res, err := limiter.Allow(context.Background(), "anna@example.com")
	fmt.Println(res.Remaining, err)
	fmt.Println(limiter.Reset(context.Background(), "anna@example.com"))
	// Output:
	// 4 <nil>
	// <nil>
}

// A store that has no deadline of its own gets one.
func ExampleNewTimeout() {
	store, err := layer.NewTimeout(hanging{}, 20*time.Millisecond)
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(driver.PerMinute("minute", 1)))
	if err != nil {
		log.Fatal(err)
	}
	_, err = limiter.Allow(context.Background(), "user:42")
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output: true
}
