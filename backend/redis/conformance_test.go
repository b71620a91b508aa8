package redisstore_test

import (
	"context"
	crand "crypto/rand"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
)

// addresses are the environment variables with the host:port of servers to test on.
var addresses = []string{"RATELIMIT_REDIS_ADDR", "RATELIMIT_VALKEY_ADDR"}

// eachServer runs f on the servers whose addresses are given. Without an address it skips the test,
// since the packages in integration run the same and more on containers.
func eachServer(t testing.TB, f func(name string, open func(testing.TB) *redis.Client)) {
	t.Helper()
	found := false
	for _, name := range addresses {
		addr := os.Getenv(name)
		if addr == "" {
			continue
		}
		found = true
		f(name, func(t testing.TB) *redis.Client {
			client := redis.NewClient(&redis.Options{Addr: addr})
			t.Cleanup(func() { client.Close() })
			return client
		})
	}
	if !found {
		t.Skipf("neither %s nor %s is set", addresses[0], addresses[1])
	}
}

// harness opens stores with one prefix that no other harness has.
func harness(open func(testing.TB) *redis.Client) conformance.NewStore {
	return func(t testing.TB, now func() int64) conformance.Harness {
		opts := &serverstore.Options{Prefix: "conformance:" + crand.Text() + ":",
			Timeout: 10 * time.Second, Now: now}
		store := func(client *redis.Client) *redisstore.Store {
			s, err := redisstore.New(client, opts)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		client, control := open(t), open(t)
		return conformance.Harness{
			Store:        store(client),
			Second:       func(t testing.TB) driver.Store { return store(open(t)) },
			DropScripts:  func() error { return control.ScriptFlush(context.Background()).Err() },
			Close:        client.Close,
			ClosesClient: true,
		}
	}
}

func TestConformance(t *testing.T) {
	eachServer(t, func(name string, open func(testing.TB) *redis.Client) {
		t.Run(name, func(t *testing.T) { conformance.Run(t, harness(open), nil) })
	})
}

func BenchmarkStore(b *testing.B) {
	eachServer(b, func(name string, open func(testing.TB) *redis.Client) {
		b.Run(name, func(b *testing.B) { conformance.Benchmark(b, harness(open)) })
	})
}
