package commands

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestServeOnFailure freezes the server of daemons with each policy. During the outage each daemon
// answers according to its policy, at once when the breaker is open. After it the store decides.
func TestServeOnFailure(t *testing.T) {
	t.Parallel()
	const (
		limit, instances = 40, 2
		timeout          = 100 * time.Millisecond
		failures         = 20 // that open the breaker
		calls            = 2 * failures
	)
	bin := daemon.Build(t)
	servers.EachImage(t, func(t *testing.T, image string) {
		t.Parallel()
		s := servers.Start(t, image)
		daemon := func(policy string) *outageDaemon {
			d := daemon.Start(t, bin, fmt.Sprintf("--store=redis://%s?timeout=%v", s.Addr, timeout),
				"--on-failure="+policy, fmt.Sprintf("--instances=%d", instances),
				fmt.Sprintf("--limit=%d/1h", limit))
			return &outageDaemon{Daemon: d, policy: policy}
		}
		var daemons []*outageDaemon
		for _, policy := range []string{"closed", "open", "local", "local"} {
			var d *outageDaemon
			// on a busy machine the store's answer may come too late
			servers.Within(t, func() bool {
				d = daemon(policy)
				d.AwaitStore(t, policy)
				d.take(t, 1)
				return d.seen["200 store"] == 1
			}, policy+", before the fault")
			daemons = append(daemons, d)
		}
		s.Pause(t)
		for _, d := range daemons {
			clear(d.seen)
			d.take(t, failures)
			d.took = nil
			d.take(t, calls-failures)
			slices.Sort(d.took)
			if d.took[0] > timeout/2 { // without a breaker none would be faster than the timeout
				t.Errorf("%s: the fastest answer after %d failures took %v",
					d.policy, failures, d.took[0])
			}
			servers.Measured("serve --on-failure=%s on %s, frozen: answers after %d failures took "+
				"%v in the median, %v at most",
				d.policy, image, failures, d.took[len(d.took)/2].Round(10*time.Microsecond),
				d.took[len(d.took)-1].Round(time.Millisecond))
		}
		if closed := daemons[0].seen; closed["503 "] != calls {
			t.Errorf("closed: got %v, want %d answers of 503", closed, calls)
		}
		if open := daemons[1].seen; open["200 open"] != calls {
			t.Errorf("open: got %v, want %d admissions by the policy", open, calls)
		}
		for _, local := range daemons[2:] {
			if seen := local.seen; seen["200 local"] != limit/instances-1 ||
				seen["429 local"] != calls-seen["200 local"] {
				t.Errorf("local: got %v, want the share of %d but for the one taken before",
					seen, limit/instances)
			}
		}

		s.Unpause(t)
		for _, d := range daemons {
			took := d.AwaitStore(t, d.policy)
			servers.Measured("serve --on-failure=%s on %s: the store decides %v after the server "+
				"was frozen", d.policy, image, took.Round(time.Millisecond))
		}
		// Each daemon with local decisions has recorded what it admitted, so less than the whole
		// limit is left.
		local := daemons[2:]
		admitted := 2 + local[0].seen["200 local"] + local[1].seen["200 local"]
		for _, d := range local {
			clear(d.seen)
			d.take(t, limit+1)
			// on a machine so busy that an answer comes too late
			admitted += d.seen["200 store"] + d.seen["200 local"]
			if d.seen["429 store"] == 0 {
				t.Errorf("local, with the server back: got %v, want a refusal by the store", d.seen)
			}
		}
		if most := limit + instances*(limit/instances); admitted > most {
			t.Errorf("%d were admitted around the outage, %d is the most", admitted, most)
		}
		servers.Measured("serve --on-failure=local on %s: %d were admitted around an outage, at a "+
			"limit of %d and with %d shares of it", image, admitted, limit, instances)
	})
}

// outageDaemon is a daemon with what it has answered, such as "200 store".
type outageDaemon struct {
	*daemon.Daemon
	policy string
	seen   map[string]int
	took   []time.Duration
}

// take takes a unit n times. All daemons of a policy share the key.
func (d *outageDaemon) take(t *testing.T, n int) {
	t.Helper()
	if d.seen == nil {
		d.seen = make(map[string]int)
	}
	for range n {
		status, body, took := d.Post(t, "/v1/decide", d.policy)
		_, source, _ := strings.Cut(body, `"source":"`)
		source, _, _ = strings.Cut(source, `"`)
		d.seen[fmt.Sprint(status, " ", source)]++
		d.took = append(d.took, took)
		if status == http.StatusInternalServerError {
			t.Error(body)
		}
	}
}

// TestServeBlocksInOutage stops the server of two daemons with local decisions. A key that a daemon
// has blocked, or has refused because of its block, stays blocked by this daemon. One that is
// blocked in the outage is blocked by both after it.
func TestServeBlocksInOutage(t *testing.T) {
	t.Parallel()
	bin := daemon.Build(t)
	servers.EachImage(t, func(t *testing.T, image string) {
		t.Parallel()
		s := servers.Start(t, image)
		var daemons [2]*daemon.Daemon
		for i := range daemons {
			daemons[i] = daemon.Start(t, bin, "--store=redis://"+s.Addr+"?timeout=1s",
				"--on-failure=local", "--instances=2", "--limit=requests=100/1h",
				"--block=blocked=1h")
			daemons[i].AwaitStore(t, "any")
		}
		first, second := daemons[0], daemons[1]
		want := func(d *daemon.Daemon, path, key string, status int, source string) {
			t.Helper()
			body := fmt.Sprintf(`{"limit":"blocked","key":%q}`, key)
			switch path {
			case "/v1/block":
				body = fmt.Sprintf(`{"limit":"blocked","key":%q,"for_ms":1800000}`, key)
			case "/v1/decide":
				body = fmt.Sprintf(`{"claims":[{"limit":"blocked","key":%[1]q},`+
					`{"limit":"requests","key":%[1]q}]}`, key)
			}
			got, answer, _ := d.PostJSON(t, path, body)
			if got != status || !strings.Contains(answer, source) {
				t.Errorf("%s for %s: %d %s, want %d with %q",
					path, key, got, answer, status, source)
			}
		}
		const store, local = `"source":"store"`, `"source":"local"`
		for _, key := range []string{"before", "seen", "lifted"} {
			want(first, "/v1/block", key, 200, store)
		}
		want(second, "/v1/decide", "seen", 429, store)
		want(second, "/v1/decide", "lifted", 429, store)
		want(first, "/v1/reset", "lifted", 204, "")
		want(second, "/v1/decide", "lifted", 200, store)
		s.Stop(t)
		for range 30 { // before and after the breaker opens
			want(first, "/v1/decide", "before", 429, local)
		}
		want(first, "/v1/decide", "lifted", 200, local)
		want(second, "/v1/decide", "seen", 429, local)
		want(second, "/v1/decide", "lifted", 200, local)
		want(first, "/v1/reset", "before", 503, "")
		want(first, "/v1/decide", "before", 429, local)
		want(first, "/v1/block", "during", 200, local)
		want(first, "/v1/decide", "during", 429, local)
		s.Start(t)
		for _, d := range daemons {
			d.AwaitStore(t, "any")
		}
		servers.Within(t, func() bool {
			_, answer, _ := second.PostJSON(t, "/v1/peek",
				`{"claims":[{"limit":"blocked","key":"during"}]}`)
			return strings.Contains(answer, `"allowed":false,"source":"store"`)
		}, "the block that was set in the outage, by the other daemon")
		want(second, "/v1/reset", "during", 204, "")
		want(first, "/v1/decide", "during", 200, store)
	})
}
