package redisstore_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

// TestReload holds that a primary that does not answer makes the store ask anew for the state of the cluster, not more often than every 200ms
// however many calls fail, and not when callers give up.
func TestReload(t *testing.T) {
	silent := listen(t, func(net.Conn) {})
	var asked atomic.Int64
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			asked.Add(1)
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: silent}}}}, nil
		},
	})
	s := newStore(t, client, &redisstore.Options{Timeout: 20 * time.Millisecond})

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(5*time.Millisecond, cancel)
	s.Take(ctx, take("k"))
	before := asked.Load() // the client's own

	start := time.Now()
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 5 {
				s.Take(t.Context(), take("k"))
			}
		})
	}
	wg.Wait()
	for asked.Load() == before && time.Since(start) < 10*time.Second {
		time.Sleep(time.Millisecond) // the client asks in a goroutine of its own
	}
	most := 2 + int64(time.Since(start)/(200*time.Millisecond))
	if n := asked.Load() - before; n < 1 || n > most {
		t.Errorf("asked %d times, want 1 to %d", n, most)
	}
}
