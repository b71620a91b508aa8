package edges

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestRollingRestart: two services behind nginx restart one after the other, three times, under
// load. Every request of the clients is decided.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	bin := daemon.Build(t)
	var services [2]*daemon.Daemon
	start := func(i, port int) {
		services[i] = daemon.Start(t, bin, fmt.Sprintf("--addr=0.0.0.0:%d", port), "--host=limits",
			"--limit=1000000/1h", "--drain=500ms")
	}
	var ports [2]int
	addresses := []string{"limits-1:8080", "", "limits-2:8080", ""}
	for i := range services {
		port, err := servers.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		start(i, port)
		ports[i], addresses[2*i+1] = port, fmt.Sprintf("%s:%d", servers.HostName, port)
	}
	proxy := startWith(t, nginx, "nginx-upstream.conf", strings.NewReplacer(addresses...))

	var decided atomic.Int64
	stop := load(t, "http://"+proxy.IP+"/v1/decide", &decided)
	defer stop()
	more := func(what string) {
		t.Helper()
		before := decided.Load()
		servers.Within(t, func() bool { return decided.Load() >= before+200 }, what)
	}
	more("there is no load")
	for range 3 {
		for i, port := range ports {
			services[i].Signal(t, syscall.SIGTERM)
			if code := services[i].Wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			more("the other service gets no requests")
			start(i, port)
		}
	}
	stop()
	servers.Measured("%s: %d requests, none failed", t.Name(), decided.Load())
}

// load sends requests from 8 clients until the function that it returns is called.
func load(t *testing.T, url string, decided *atomic.Int64) (stop func()) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	var stopped atomic.Bool
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for !stopped.Load() {
				res, err := client.Post(url, "application/json", strings.NewReader(`{"key":"k"}`))
				if err != nil {
					t.Error(err)
					return
				}
				body, _ := io.ReadAll(res.Body)
				res.Body.Close()
				if res.StatusCode != http.StatusOK {
					t.Errorf("%d %s", res.StatusCode, body)
				}
				decided.Add(1)
			}
		})
	}
	return func() {
		stopped.Store(true)
		wg.Wait()
		client.CloseIdleConnections()
	}
}
