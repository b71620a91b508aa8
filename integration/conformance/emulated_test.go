package conformance

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// An emulation is a server that behaves in one respect as a service that cannot be run here.
type emulation struct {
	conformanceCase
	usual bool // also at every commit
	once  bool // through one client library: what differs is on the server
	start func(t *testing.T, image string) *servers.Target
}

var emulations = []emulation{
	{
		conformanceCase: conformanceCase{name: "strict-scripts"}, usual: true,
		start: speaking(servers.Dialect{Declared: true, Forgetful: true, Arguments: 3999}),
	},
	{
		conformanceCase: conformanceCase{name: "RESP2", resp2: true},
		start:           speaking(servers.Dialect{}),
	},
	{
		conformanceCase: conformanceCase{name: "Lua-5.4", resp2: true, slow: true},
		once:            true,
		start: func(t *testing.T, image string) *servers.Target {
			addr := servers.SpeakLua54(t, servers.Start(t, image).Addr)
			return &servers.Target{Name: image + " emulating", Image: image, Addrs: []string{addr}}
		},
	},
	{
		conformanceCase: conformanceCase{name: "one-shard",
			several: "the server refuses keys of several slots"},
		start: oneShard(false),
	},
	{
		conformanceCase: conformanceCase{name: "one-shard-cluster"},
		start:           oneShard(true),
	},
	{
		conformanceCase: conformanceCase{name: "loaded"},
		start:           loaded,
	},
}

// TestEmulated runs the suite on emulations with each client library; at every commit on the one
// that changes scripts most, through go-redis.
func TestEmulated(t *testing.T) {
	t.Parallel()
	servers.OneImage(t, servers.Newest(), func(t *testing.T, image string) {
		for _, e := range emulations {
			t.Run(e.name, func(t *testing.T) {
				clients.Each(t, func(t *testing.T, lib clients.Library) {
					first := lib.Name == clients.Libraries[0].Name
					if !first && (e.once || !depth.Full) || !e.usual && !depth.Full {
						return
					}
					t.Parallel()
					e.run(t, e.start(t, image), lib)
				})
			})
		}
	})
}

func speaking(d servers.Dialect) func(*testing.T, string) *servers.Target {
	return func(t *testing.T, image string) *servers.Target {
		addr := d.Speak(t, servers.Start(t, image).Addr)
		return &servers.Target{Name: image + " emulating", Image: image, Addrs: []string{addr}}
	}
}

// oneShard starts a cluster whose only node has all slots, for clients of a cluster or of a server.
func oneShard(cluster bool) func(*testing.T, string) *servers.Target {
	return func(t *testing.T, image string) *servers.Target {
		return &servers.Target{Name: image + " emulating", Image: image, Cluster: cluster,
			Addrs: servers.StartClusterOf(t, image, 1).Addrs()}
	}
}

// loaded starts a server on which a second program writes, reads and flushes scripts all the time.
func loaded(t *testing.T, image string) *servers.Target {
	addr := servers.Start(t, image).Addr
	client := redis.NewClient(&redis.Options{Addr: addr})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				client.Set(ctx, servers.FreshKey(t), i, time.Minute)
				client.Eval(ctx, "return redis.call('INCR', KEYS[1])", []string{"counter"})
				if i%100 == 0 {
					client.ScriptFlush(ctx)
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		client.Close()
	})
	return &servers.Target{Name: image + " emulating", Image: image, Addrs: []string{addr}}
}
