//go:build !race

package scripts

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestGuardAllocations bounds the allocations of a decision on a server, including the client's:
// go-redis alone makes about half of them.
func TestGuardAllocations(t *testing.T) {
	s := servers.Start(t, servers.Images()[0])
	g := &guarded{client: redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: time.Minute})}
	defer g.client.Close()
	ctx := t.Context()
	for _, guard := range []struct {
		name  string
		max   int64
		bound float64
	}{
		{"refused", 1, 22},
		{"admitted", 1_000_000, 24},
	} {
		l := g.limiter(t, driver.PerDay("day", guard.max), nil)
		decide := func() {
			if _, err := l.Allow(ctx, guard.name); err != nil {
				t.Fatal(err)
			}
		}
		if n := testing.AllocsPerRun(1000, decide); n > guard.bound {
			t.Errorf("%s: %v allocations a decision, want at most %v", guard.name, n, guard.bound)
		}
	}
}
