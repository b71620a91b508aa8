package commands

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestServeLeases: two processes with --lease decide a hot key themselves, admit together no more
// than the limit, and show in answers, metrics and explain what they did. A limit without a lease
// is exact.
func TestServeLeases(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "limits.yaml")
	const limits = `
limits:
  - {name: hot, key: [tenant], max: 3000/1h, lease: 10%}
  - {name: exact, key: [user], max: 10/1h, lease: 0%}
`
	if err := os.WriteFile(file, []byte(limits), 0o644); err != nil {
		t.Fatal(err)
	}
	store := "redis://" + servers.Start(t, servers.Newest()).Addr + "?timeout=5s"
	var processes []*daemon.Daemon
	for range 2 {
		processes = append(processes, daemon.Start(t, daemon.Build(t), "--config="+file,
			"--store="+store, "--on-failure=closed", "--lease=2%"))
	}
	var mu sync.Mutex
	var calls sync.WaitGroup
	admitted, here := 0, 0
	for _, d := range processes {
		for range 4 {
			calls.Go(func() {
				for range 500 {
					const body = `{"descriptor":{"tenant":"a"}}`
					status, answer, _ := d.PostJSON(t, "/v1/decide", body)
					mu.Lock()
					if status == http.StatusOK {
						admitted++
					}
					if strings.Contains(answer, `"source":"lease"`) {
						here++
					}
					mu.Unlock()
				}
			})
		}
	}
	calls.Wait()
	if admitted > 3000 || admitted < 2700 || here < 1000 {
		t.Errorf("%d of 3000 are admitted, and %d of 4000 decided here", admitted, here)
	}
	_, metrics := processes[0].Get(t, "/metrics")
	n := regexp.MustCompile(`(?m)^ratelimit_lease_admitted_total\S* (\d+)$`).
		FindStringSubmatch(metrics)
	if n == nil {
		t.Fatalf("no metric of leases: %s", metrics)
	}
	if count, err := strconv.Atoi(n[1]); err != nil || count < 500 {
		t.Errorf("%d are admitted from leases, %v", count, err)
	}
	if !strings.Contains(metrics, `ratelimit_source="lease"`) {
		t.Error("no decision has the source lease")
	}
	for i, want := range []int{200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 429} {
		status, answer, _ := processes[i%2].PostJSON(t, "/v1/decide", `{"descriptor":{"user":"u"}}`)
		if status != want || !strings.Contains(answer, `"source":"store"`) {
			t.Errorf("request %d: %d %s", i, status, answer)
		}
	}
}
