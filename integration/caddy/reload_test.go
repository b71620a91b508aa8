package caddy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/servers"
)

const (
	maxOfUser   = 300 // on the server
	maxOfAll    = 450
	maxInMemory = 500

	reloadInterval = 100 * time.Millisecond
	leastReloads   = 20
)

// TestReloads: while clients make requests and Caddy loads another configuration several times a
// second, two limits on a server and one in memory admit exactly what they should, and no request
// fails. An admitted request counts where Caddy forwards it to, since a reload breaks off
// connections that Caddy has not accepted.
func TestReloads(t *testing.T) {
	t.Parallel()
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		seen := counts{n: make(map[string]int)}
		behind := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen.add(r.URL.Path + " " + r.Header.Get("X-User"))
			seen.add("configuration " + r.Header.Get("X-Configuration"))
		}))
		t.Cleanup(behind.Close)
		file := fmt.Sprintf(`
http://localhost:8080 {
	request_header X-Configuration "NUMBER"
	limits /server {
		store redis://%s?timeout=10s
		limit user %d/1h {
			key {http.request.header.X-User}
		}
		limit all %d/1h {
			key all
		}
	}
	limits /memory {
		limit user %d/1h {
			key {http.request.header.X-User}
		}
	}
	reverse_proxy %s
}
`, servers.Start(t, image).Addr, maxOfUser, maxOfAll, maxInMemory, behind.URL)
		numbered := func(n int64) string {
			return strings.ReplaceAll(file, "NUMBER", fmt.Sprint(n))
		}
		p := start(t, numbered(0))
		answers := counts{n: make(map[string]int)}
		var reloads, broken atomic.Int64
		enough := func() bool {
			return reloads.Load() >= leastReloads && answers.of("/memory 429") >= maxInMemory &&
				answers.of("/server 429") >= maxOfAll
		}
		end := time.Now().Add(time.Minute)
		var clients sync.WaitGroup
		for i := range 8 {
			path, user := []string{"/server", "/memory"}[i%2], []string{"ann", "bob"}[i/2%2]
			clients.Go(func() {
				for !enough() && time.Now().Before(end) {
					status, err := p.get(path, user)
					if err != nil {
						broken.Add(1)
						continue
					}
					answers.add(fmt.Sprint(path, " ", status))
					time.Sleep(2 * time.Millisecond)
				}
			})
		}
		for !enough() && time.Now().Before(end) {
			if err := p.reload(numbered(reloads.Add(1))); err != nil {
				t.Error(err)
			}
			time.Sleep(reloadInterval)
		}
		clients.Wait()

		if !enough() {
			t.Errorf("%d reloads and %v are too few", reloads.Load(), answers.n)
		}
		ann, bob := seen.of("/server ann"), seen.of("/server bob")
		if ann+bob != maxOfAll || ann > maxOfUser || bob > maxOfUser {
			t.Errorf("the server admitted %d and %d, want %d in all and at most %d each", ann, bob,
				maxOfAll, maxOfUser)
		}
		ann, bob = seen.of("/memory ann"), seen.of("/memory bob")
		if ann != maxInMemory || bob != maxInMemory {
			t.Errorf("memory admitted %d and %d, want %d each", ann, bob, maxInMemory)
		}
		configurations := 0
		for what := range seen.n {
			if strings.HasPrefix(what, "configuration ") {
				configurations++
			}
		}
		if configurations < 3 {
			t.Errorf("requests were admitted under %d configurations, want at least 3",
				configurations)
		}
		for what, n := range answers.n {
			if !strings.HasSuffix(what, " 200") && !strings.HasSuffix(what, " 429") {
				t.Errorf("%d answers of %s", n, what)
			}
		}
		servers.Measured("Caddy: exact over %d reloads, requests admitted under %d "+
			"configurations, %d connections broken off", reloads.Load(), configurations,
			broken.Load())
	})
}

// get requests a path as a user.
func (p *process) get(path, user string) (status int, err error) {
	r, err := http.NewRequestWithContext(p.Context(), http.MethodGet, p.url+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	r.Header.Set("X-User", user)
	res, err := p.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

// counts counts what happens.
type counts struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counts) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[what]++
}

func (c *counts) of(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[what]
}
