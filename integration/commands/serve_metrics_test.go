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

// TestServeMetrics: what /metrics counts is what clients got, and it shows no key.
func TestServeMetrics(t *testing.T) {
	t.Parallel()
	const limit, clients, each = 30, 8, 20
	bin := daemon.Build(t)
	s := servers.Start(t, servers.Images()[0])
	for _, store := range []string{"memory", "redis://" + s.Addr + "?timeout=10s"} {
		name, _, _ := strings.Cut(store, ":")
		t.Run(name, func(t *testing.T) {
			d := daemon.Start(t, bin, "--store="+store, "--on-failure=closed",
				fmt.Sprintf("--limit=all=%d/1h", limit))
			var mu sync.Mutex
			got := make(map[int]int)
			var wg sync.WaitGroup
			for range clients {
				wg.Go(func() {
					for range each {
						status, _, _ := d.Post(t, "/v1/decide", "secret-key")
						mu.Lock()
						got[status]++
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			if got[http.StatusOK] != limit ||
				got[http.StatusTooManyRequests] != clients*each-limit {
				t.Fatalf("clients got %v", got)
			}
			status, metrics := d.Get(t, "/metrics")
			if status != http.StatusOK || strings.Contains(metrics, "secret-key") {
				t.Fatalf("%d: %s", status, metrics)
			}
			for outcome, want := range map[string]int{"admitted": limit,
				"refused": clients*each - limit} {
				series := fmt.Sprintf(`ratelimit_decisions_total{ratelimit_limit="all",`+
					`ratelimit_op="take",ratelimit_outcome=%q,ratelimit_source="store"} %d`+"\n",
					outcome, want)
				if !strings.Contains(metrics, series) {
					t.Errorf("no %s in:\n%s", series, metrics)
				}
			}
		})
	}
}
