package commands

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestServeSharded: a daemon whose URL names a cluster of one shard as a single server warns of it,
// and decides the requests of many clients exactly.
func TestServeSharded(t *testing.T) {
	t.Parallel()
	const callers, keys, limit = 32, 20, 10
	bin := daemon.Build(t)
	servers.EachImage(t, func(t *testing.T, image string) {
		addr := servers.StartClusterOf(t, image, 1).Nodes[0].Addr
		for _, lib := range libraries {
			t.Run(lib.scheme, func(t *testing.T) {
				start := func() *daemon.Daemon {
					return daemon.Start(t, bin, "--store="+lib.scheme+"://"+addr+"?timeout=5s",
						"--on-failure=open", fmt.Sprintf("--limit=%d/1h", limit))
				}
				d := start()
				for strings.Contains(d.Logged(), "the store cannot decide") { // a busy machine
					d = start()
				}
				d.AwaitStore(t, lib.scheme+" first")
				var (
					mu       sync.Mutex
					statuses = make(map[int]int)
					wg       sync.WaitGroup
				)
				for caller := range callers {
					wg.Go(func() {
						for i := range keys {
							key := fmt.Sprint(lib.scheme, (caller+i)%keys)
							status, _, _ := d.Post(t, "/v1/decide", key)
							mu.Lock()
							statuses[status]++
							mu.Unlock()
						}
					})
				}
				wg.Wait()
				if statuses[http.StatusOK] != keys*limit ||
					statuses[http.StatusTooManyRequests] != keys*(callers-limit) {
					t.Errorf("statuses %v, want %d admitted and the others refused",
						statuses, keys*limit)
				}
				if !strings.Contains(d.Logged(), "The server is a cluster") {
					t.Error("no warning")
				}
			})
		}
	})
}
