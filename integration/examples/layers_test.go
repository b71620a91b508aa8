package examples

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/layer"
)

// While the server is unavailable, each of four processes admits up to a fourth of every limit by
// itself, and no call waits for the server.
func Example_layers() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	local, err := newLocalStore(client)
	if err != nil {
		log.Fatal(err)
	}
	defer local.Close()
	limiter, err := ratelimit.New(local, algorithm.SlidingLog(ratelimit.PerMinute("login", 60)))
	if err != nil {
		log.Fatal(err)
	}
	limiter = limiter.WithObserver(func(_ context.Context, o ratelimit.Observation) {
		for i, limit := range o.Limits {
			fmt.Println(limit.Name, o.Results[i].Source, o.Elapsed, o.Err)
		}
	})
	res, err := limiter.Allow(context.Background(), "user:42")
	fmt.Println(res.Allowed, res.Source, err)
}

func newLocalStore(client redis.UniversalClient) (*layer.Degraded, error) {
	server, err := redisstore.New(client, nil) // answers within 100 ms
	if err != nil {
		return nil, err
	}
	guarded, err := layer.NewBreaker(server, nil) // fails at once while the server is unavailable
	if err != nil {
		return nil, err
	}
	return layer.NewDegraded(guarded, &layer.DegradedOptions{Instances: 4})
}
