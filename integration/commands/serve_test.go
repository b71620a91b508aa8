package commands

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// A tally counts, by key, the units that daemons admitted and those that they may have.
type tally struct {
	mu      sync.Mutex
	keys    map[string]*units
	slowest time.Duration // of the answers
}

type units struct{ admitted, unknown int }

// take takes a unit from d, counts it, and returns the status. The answer must be a decision or a
// 503 without one.
func (a *tally) take(t *testing.T, d *daemon.Daemon, key string) int {
	t.Helper()
	status, body, took := d.Post(t, "/v1/decide", key)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slowest = max(a.slowest, took)
	if a.keys[key] == nil {
		a.keys[key] = new(units)
	}
	switch {
	case status == http.StatusOK:
		a.keys[key].admitted++
	case status == http.StatusServiceUnavailable && strings.Contains(body, "#ErrOutcomeUnknown"):
		a.keys[key].unknown++
	case status == http.StatusServiceUnavailable && strings.Contains(body, "#ErrUnavailable"):
	case status == http.StatusTooManyRequests:
	default:
		t.Errorf("take: %d %s", status, body)
	}
	return status
}

// TestServeWithoutServer freezes the server of a daemon, and stops it under heavy traffic. All
// demands are answered in time, the limit of each of many keys holds over all faults, and the
// daemon recovers by itself.
func TestServeWithoutServer(t *testing.T) {
	const (
		limit   = 10
		workers = 8
		each    = limit + 2 // demands on a key, before the storm goes on to the next
		keys    = 500
		timeout = 100 * time.Millisecond
		slack   = 250 * time.Millisecond // of a busy machine, besides what it adds to all answers
	)
	bin := daemon.Build(t)
	servers.EachImage(t, func(t *testing.T, image string) {
		s := servers.Start(t, image)
		d := daemon.Start(t, bin, fmt.Sprintf("--store=redis://%s?timeout=%v", s.Addr, timeout),
			"--on-failure=closed", fmt.Sprintf("--limit=%d/1h", limit))
		watched := d.WatchHealth(t)
		count := tally{keys: make(map[string]*units)}
		undecided := func(fault string) {
			t.Helper()
			for range 5 {
				if status := count.take(t, d, "key:0"); status != http.StatusServiceUnavailable {
					t.Errorf("%s: %d, want 503", fault, status)
				}
			}
		}
		back := func(fault string) {
			t.Helper()
			took := d.AwaitStore(t, "key:0")
			servers.Measured("serve on %s: back %v after the server %s",
				image, took.Round(time.Millisecond), fault)
		}

		servers.Within(t, func() bool { return count.take(t, d, "key:0") == http.StatusOK },
			"before the faults")
		s.Pause(t)
		undecided("frozen")
		s.Unpause(t)
		back("was frozen")

		var (
			wg      sync.WaitGroup
			demands atomic.Int64
			ended   = make(chan struct{})
			blowing = make(chan struct{})
		)
		for range workers {
			wg.Go(func() {
				for {
					select {
					case <-ended:
						return
					default:
					}
					i := demands.Add(1)
					count.take(t, d, fmt.Sprintf("key:%d", i/each%keys))
					if i == keys {
						close(blowing)
					}
				}
			})
		}
		<-blowing
		s.Stop(t)
		undecided("stopped")
		close(ended)
		wg.Wait()
		s.Start(t)
		back("was started again")

		unknown := 0
		for key, u := range count.keys {
			usedUp := func() bool { // a busy machine may leave a demand undecided
				status := http.StatusOK
				for status == http.StatusOK && u.admitted <= limit {
					status = count.take(t, d, key)
				}
				return status != http.StatusServiceUnavailable
			}
			servers.Within(t, usedUp, key)
			if u.admitted > limit || u.admitted+u.unknown < limit {
				t.Errorf("%s: got %+v, want %d admitted, or fewer by those unknown",
					key, *u, limit)
			}
			unknown += u.unknown
		}
		if health := watched(); count.slowest > timeout+slack+2*health {
			t.Errorf("an answer took %v at a deadline of %v, and one without the store %v",
				count.slowest, timeout, health)
		}
		servers.Measured("serve on %s: %d demands on %d keys while the server stopped, %d with an "+
			"unknown outcome; slowest answer %v at a deadline of %v",
			image, demands.Load(), len(count.keys), unknown,
			count.slowest.Round(time.Millisecond), timeout)
	})
}

// TestServeRefusesToStart: with a wrong password, or none, the daemon does not start with any
// client, and shows no password. Nor does it on a server without scripts.
func TestServeRefusesToStart(t *testing.T) {
	t.Parallel()
	bin := daemon.Build(t)
	s := servers.Start(t, servers.Images()[0], "--requirepass", "right")
	unscripted := servers.Start(t, servers.Images()[0], "--rename-command", "EVAL", "",
		"--rename-command", "EVALSHA", "")
	for _, lib := range libraries {
		out := daemon.RunRefused(t, bin, "--store="+lib.scheme+"://"+unscripted.Addr)
		if !strings.Contains(out, "the server runs no scripts (EVAL, EVALSHA); use Redis") {
			t.Errorf("%s without scripts: %s", lib.scheme, out)
		}
		for _, params := range []string{"", "?cache-entries=0"}[:1+lib.cached] {
			for name, user := range map[string]string{
				"wrong password": "user:marked-wrong@", "no user": ":marked-wrong@",
				"no password": "",
			} {
				t.Run(lib.scheme+params+" "+name, func(t *testing.T) {
					out := daemon.RunRefused(t, bin, "--store="+lib.scheme+"://"+user+s.Addr+params)
					if !strings.Contains(out, "access denied") || strings.Contains(out, "marked") {
						t.Errorf("%s", out)
					}
				})
			}
		}
		d := daemon.Start(t, bin, "--on-failure=closed",
			"--store="+lib.scheme+"://:right@"+s.Addr+"?timeout=5s")
		if status, body, _ := d.Post(t, "/v1/decide", lib.scheme); status != http.StatusOK {
			t.Errorf("%s with the password: %d %s", lib.scheme, status, body)
		}
	}
}
