package redisstore_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

func Example() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	store, err := redisstore.New(client, nil)
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
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:         []string{"10.0.0.1:6379", "10.0.0.2:6379"},
		DialTimeout:   500 * time.Millisecond,
		DialerRetries: 1,
	})
	defer client.Close()
	store, err := redisstore.New(client, &serverstore.Options{
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
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	store, err := redisstore.New(client, nil)
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
