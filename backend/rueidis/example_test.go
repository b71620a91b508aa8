package rueidisstore_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	rueidisstore "github.com/truewindow/ratelimit/backend/rueidis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

func Example() {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store, err := rueidisstore.New(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(driver.PerMinute("minute", 60)))
	if err != nil {
		log.Fatal(err)
	}
	res, err := limiter.Allow(context.Background(), "user:42")
	switch {
	case err != nil:
		fmt.Println("undecided:", err)
	case res.Allowed:
		fmt.Println("go ahead;", res.Remaining, "left")
	default:
		fmt.Println("try again after", res.RetryAfter)
	}
}

// A cluster decides on several keys at once if they have the same tag.
func ExampleOptions_tag() {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{"10.0.0.1:6379", "10.0.0.2:6379"},
		Dialer: net.Dialer{
			Timeout: 500 * time.Millisecond, KeepAlive: 200 * time.Millisecond,
		},
		ConnWriteTimeout: 500 * time.Millisecond,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store, err := rueidisstore.New(client, &serverstore.Options{
		Prefix: "api:",
		Tag: func(key string) string { // "tenant:42:user:7" belongs to "tenant:42"
			tenant, _, _ := strings.Cut(key, ":user:")
			return tenant
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	perTenant := algorithm.SlidingLog(driver.PerMinute("minute", 1000))
	perUser := algorithm.SlidingLog(driver.PerMinute("minute", 10))
	results := make([]driver.Result, 2)
	err = store.TakeAll(context.Background(), []driver.Demand{
		{Key: "tenant:42", Algorithm: perTenant, N: 1},
		{Key: "tenant:42:user:7", Algorithm: perUser, N: 1},
	}, results)
	fmt.Println(results, err)
}

// At the start of a program Probe reports what is missing on the server.
func ExampleStore_Probe() {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store, err := rueidisstore.New(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	server, err := store.Probe(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("%s %s", server.Name, server.Version)
	for _, warning := range server.Warnings {
		log.Print(warning)
	}
}

// A caller that is over the limit and keeps calling is refused without a request to the server.
func ExampleOpen() {
	option := rueidis.ClientOption{InitAddress: []string{"localhost:6379"}}
	store, err := rueidisstore.Open(option, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(driver.PerMinute("minute", 60)))
	if err != nil {
		log.Fatal(err)
	}
	for range 100 {
		res, err := limiter.Allow(context.Background(), "user:42")
		fmt.Println(res.Allowed, res.Source, err)
	}
	fmt.Println(store.Stats().Cache.Hits, "of them came from the cache")
}
