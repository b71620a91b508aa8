package migrating

import (
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
)

// unreachable returns a client of a server that does not listen.
func unreachable(t *testing.T) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: closedAddr(t), MaxRetries: -1, DialerRetries: 1,
	})
	t.Cleanup(func() { client.Close() })
	return client
}

// closedAddr returns an address of this machine at which nothing listens.
func closedAddr(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return l.Addr().String()
}
