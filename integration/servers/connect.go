package servers

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// Connect returns a client of the server at addr, closed at the end of the test.
func Connect(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { c.Close() })
	return c
}
