package redisstore_test

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/backend/serverstore"
)

// TestReload: when a primary does not answer, the store reloads the state of the cluster, at most
// every 200ms however many calls fail.
func TestReload(t *testing.T) {
	silent := listen(t, func(net.Conn) {})
	var asked atomic.Int64
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			asked.Add(1)
			return []redis.ClusterSlot{{Start: 0, End: 16383,
				Nodes: []redis.ClusterNode{{Addr: silent}}}}, nil
		},
	})
	s := newStore(t, client, &serverstore.Options{Timeout: 20 * time.Millisecond})
	if _, err := client.MasterForKey(t.Context(), "k"); err != nil { // loads the state by itself
		t.Fatal(err)
	}

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
		time.Sleep(time.Millisecond) // the client reloads in a goroutine of its own
	}
	most := 2 + int64(time.Since(start)/(200*time.Millisecond))
	if n := asked.Load() - before; n < 1 || n > most {
		t.Errorf("reloaded %d times, want 1 to %d", n, most)
	}
}

// TestReloadAgain: a node that does not answer a reload does not keep the store from querying
// another.
func TestReloadAgain(t *testing.T) {
	silent := listen(t, func(net.Conn) {})
	var asked atomic.Int64
	release := make(chan struct{})
	defer close(release)
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			if asked.Add(1) > 1 {
				<-release
			}
			return []redis.ClusterSlot{{Start: 0, End: 16383,
				Nodes: []redis.ClusterNode{{Addr: silent}}}}, nil
		},
	})
	s := newStore(t, client, &serverstore.Options{Timeout: 20 * time.Millisecond})
	for start := time.Now(); asked.Load() < 4; {
		if s.Take(t.Context(), take("k")); time.Since(start) > 10*time.Second {
			t.Fatalf("reloaded %d times", asked.Load())
		}
	}
}

// TestAbandonedCallsEnd: calls to a server that does not answer end at their timeout, except those
// that have a connection.
func TestAbandonedCallsEnd(t *testing.T) {
	const calls, pool, own = 60, 2, 10 // goroutines that the client may have of its own
	silent := listen(t, func(net.Conn) {})
	client := redis.NewClient(&redis.Options{Addr: silent, PoolSize: pool})
	s := newStore(t, client, &serverstore.Options{Timeout: 10 * time.Millisecond})
	before := runtime.NumGoroutine()
	for range calls {
		s.Take(t.Context(), take("k"))
	}
	n := runtime.NumGoroutine()
	start := time.Now()
	for ; n > before+pool+own && time.Since(start) < 10*time.Second; n = runtime.NumGoroutine() {
		time.Sleep(time.Millisecond) // until the last calls end
	}
	if n > before+pool+own {
		t.Errorf("%d goroutines after %d calls, were %d", n, calls, before)
	}
}
