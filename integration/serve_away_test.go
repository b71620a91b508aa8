package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestServeOnFailure freezes the server under daemons of each policy. While it is away each answers by its policy, at once when the breaker is open, and
// when it is back the store decides.
func TestServeOnFailure(t *testing.T) {
	t.Parallel()
	const (
		limit, instances = 40, 2
		timeout          = 100 * time.Millisecond
		failures         = 20 // that open the breaker
		calls            = 2 * failures
	)
	bin := buildDaemon(t)
	for _, image := range images {
		t.Run(strings.NewReplacer(":", "-", "/", "-").Replace(image), func(t *testing.T) {
			t.Parallel()
			s := startServer(t, image)
			daemon := func(policy string) *awayDaemon {
				d := startDaemon(t, bin, "--store=redis://"+s.addr, "--on-failure="+policy, fmt.Sprintf("--instances=%d", instances),
					fmt.Sprintf("--limit=%d/1h", limit), "--timeout="+timeout.String())
				return &awayDaemon{daemon: d, policy: policy}
			}
			daemons := []*awayDaemon{daemon("closed"), daemon("open"), daemon("local"), daemon("local")}
			for _, d := range daemons {
				d.awaitStore(t, d.policy)
				d.take(t, 1)
				if d.seen["200 store"] != 1 {
					t.Fatalf("%s, before the fault: %v", d.policy, d.seen)
				}
			}
			s.pause(t)
			for _, d := range daemons {
				clear(d.seen)
				d.take(t, failures)
				d.took = nil
				d.take(t, calls-failures)
				slices.Sort(d.took)
				if d.took[0] > timeout/2 { // without a breaker none would be faster than the timeout
					t.Errorf("%s: the fastest answer after %d failures took %v", d.policy, failures, d.took[0])
				}
				ran.measured("serve --on-failure=%s on %s, frozen: answers after %d failures took %v in the median, %v at most",
					d.policy, image, failures, d.took[len(d.took)/2].Round(10*time.Microsecond), d.took[len(d.took)-1].Round(time.Millisecond))
			}
			if closed := daemons[0].seen; closed["503 "] != calls {
				t.Errorf("closed: %v", closed)
			}
			if open := daemons[1].seen; open["200 open"] != calls {
				t.Errorf("open: %v", open)
			}
			for _, local := range daemons[2:] {
				if seen := local.seen; seen["200 local"] != limit/instances-1 || seen["429 local"] != calls-seen["200 local"] {
					t.Errorf("local: %v, want the share of %d but for the one that was taken before", seen, limit/instances)
				}
			}

			s.unpause(t)
			for _, d := range daemons {
				took := d.awaitStore(t, d.policy)
				ran.measured("serve --on-failure=%s on %s: the store decides %v after the server was frozen", d.policy, image, took.Round(time.Millisecond))
			}
			// Each of the local ones has recorded what it admitted, so that what is left to admit is less than the whole limit.
			local := daemons[2:]
			admitted := 2 + local[0].seen["200 local"] + local[1].seen["200 local"]
			for _, d := range local {
				clear(d.seen)
				d.take(t, limit+1)
				admitted += d.seen["200 store"] + d.seen["200 local"] // on a machine so busy that an answer comes too late
				if d.seen["429 store"] == 0 {
					t.Errorf("local, with the server back: %v", d.seen)
				}
			}
			if most := limit + instances*(limit/instances); admitted > most {
				t.Errorf("%d were admitted around the outage, %d is the most", admitted, most)
			}
			ran.measured("serve --on-failure=local on %s: %d were admitted around an outage, at a limit of %d and with %d parts of it", image, admitted, limit, instances)
		})
	}
}

// awayDaemon is a daemon with what it has answered, such as "200 store".
type awayDaemon struct {
	*daemon
	policy string
	seen   map[string]int
	took   []time.Duration
}

// take asks n times for a unit. All daemons of a policy share the key.
func (d *awayDaemon) take(t *testing.T, n int) {
	t.Helper()
	if d.seen == nil {
		d.seen = make(map[string]int)
	}
	for range n {
		status, body, took := d.post(t, "/v1/take", d.policy)
		_, source, _ := strings.Cut(body, `"source":"`)
		source, _, _ = strings.Cut(source, `"`)
		d.seen[fmt.Sprint(status, " ", source)]++
		d.took = append(d.took, took)
		if status == http.StatusInternalServerError {
			t.Error(body)
		}
	}
}
