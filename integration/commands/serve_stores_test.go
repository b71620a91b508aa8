package commands

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/faultproxy"
	"github.com/truewindow/ratelimit/integration/servers"
)

// libraries are the client libraries by the schemes of their URLs.
var libraries = []struct {
	scheme string
	cached int // 1 if it caches refusals
}{{"redis", 0}, {"rueidis", 1}, {"valkey", 1}}

// A deployment is a set of servers that daemons open by URL.
type deployment struct {
	name  string
	kind  string // what the scheme ends with
	addrs []string
	path  string
}

func (d *deployment) url(scheme string, addrs []string) string {
	return scheme + d.kind + "://" + strings.Join(addrs, ",") + d.path + "?timeout=5s"
}

// TestServeStores runs daemons on servers, on clusters and behind Sentinels, with each client.
func TestServeStores(t *testing.T) {
	bin := daemon.Build(t)
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		d := &deployment{name: tgt.Name, addrs: tgt.Addrs[:1]}
		if tgt.Cluster {
			d.kind, d.addrs = "+cluster", tgt.Addrs
		}
		d.test(t, bin)
	})
}

func TestServeStoresSentinel(t *testing.T) {
	t.Parallel()
	bin := daemon.Build(t)
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		w := servers.StartSentinels(t, image, 1)
		d := &deployment{image + " Sentinel", "+sentinel", w.Addrs(), "/" + servers.MasterSet(0)}
		d.test(t, bin)
	})
}

func (d *deployment) test(t *testing.T, bin string) {
	for _, lib := range libraries {
		t.Run(lib.scheme, func(t *testing.T) {
			t.Run("two processes", func(t *testing.T) {
				d.storm(t, bin, lib.scheme, lib.cached == 1)
			})
			t.Run("server unavailable", func(t *testing.T) {
				d.unavailableAtStart(t, bin, lib.scheme)
			})
		})
	}
}

// storm makes demands of two processes, on one key above all and on others, and counts what both
// admit.
func (d *deployment) storm(t *testing.T, bin, scheme string, cached bool) {
	const limit, workers, each, others = 50, 16, 30, 3 // workers a process, demands a worker
	limits := fmt.Sprintf("--limit=%d/1h,day=%d/24h", limit, 2*limit)
	if cached {
		limits = fmt.Sprintf("--limit=%d/1h", limit)
	}
	begin := func() *daemon.Daemon {
		began := time.Now()
		p := daemon.Start(t, bin, "--store="+d.url(scheme, d.addrs), "--on-failure=closed", limits)
		if status, body, _ := p.Post(t, "/v1/peek", servers.FreshKey(t)); status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		servers.Measured("serve with %s on %s: first answer %v after the start of the process",
			scheme, d.name, time.Since(began).Round(time.Millisecond))
		return p
	}
	processes := []*daemon.Daemon{begin(), begin()}
	hot := freshKey(t)
	var (
		mu        sync.Mutex
		statuses  = make(map[string]map[int]int) // by key
		fromCache int
		wg        sync.WaitGroup
	)
	for _, p := range processes {
		for range workers {
			wg.Go(func() {
				for i := range each {
					key := hot
					if i%2 == 0 {
						key = fmt.Sprint(hot, "-", i/2%others)
					}
					status, body, _ := p.Post(t, "/v1/decide", key)
					mu.Lock()
					if statuses[key] == nil {
						statuses[key] = make(map[int]int)
					}
					statuses[key][status]++
					if strings.Contains(body, `"source":"cache"`) {
						fromCache++
					}
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	for key, got := range statuses {
		if got[http.StatusOK] != limit || len(got) != 2 || got[http.StatusTooManyRequests] == 0 {
			t.Errorf("%s: statuses %v, want exactly %d admitted and the others refused",
				key, got, limit)
		}
	}
	if len(statuses) != 1+others || (fromCache > 0) != cached {
		t.Errorf("got %d keys and %d refusals from a cache, want %d and cached %t",
			len(statuses), fromCache, 1+others, cached)
	}
	if status, body, _ := processes[0].Post(t, "/v1/reset", hot); status != http.StatusNoContent {
		t.Errorf("reset: %d %s", status, body)
	}
	freed := func() bool {
		status, _, _ := processes[1].Post(t, "/v1/decide", hot)
		return status == http.StatusOK
	}
	if cached { // until the server's notification arrives
		servers.Within(t, freed, "the other process after the reset")
	} else if !freed() {
		t.Error("the other process is refused after the reset")
	}
}

// unavailableAtStart starts a daemon that cannot reach any of the servers. It answers, and decides
// when they are available.
func (d *deployment) unavailableAtStart(t *testing.T, bin, scheme string) {
	var addrs []string
	var heal []func()
	for _, addr := range d.addrs {
		p := servers.Proxy(t, addr)
		p.Set(faultproxy.Fault{Kind: faultproxy.Refuse})
		addrs, heal = append(addrs, p.Addr()), append(heal, p.Heal)
	}
	p := daemon.Start(t, bin, "--store="+d.url(scheme, addrs), "--on-failure=closed",
		"--limit=1/1h")
	key := freshKey(t)
	if status, body, _ := p.Post(t, "/v1/decide", key); status != http.StatusServiceUnavailable {
		t.Errorf("while the server is unavailable: %d %s", status, body)
	}
	for _, f := range heal {
		f()
	}
	took := p.AwaitStore(t, key)
	servers.Measured("serve with %s on %s, unavailable at the start: the store decides %v after "+
		"it is back",
		scheme, d.name, took.Round(time.Millisecond))
	for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		if status, body, _ := p.Post(t, "/v1/decide", key); status != want {
			t.Errorf("take %d: %d %s", i, status, body)
		}
	}
}

// freshKey returns a key that no run of the tests has used: a server that was given by address may
// have the keys of earlier runs.
func freshKey(t *testing.T) string {
	return fmt.Sprint(servers.FreshKey(t), ":", time.Now().UnixNano())
}
