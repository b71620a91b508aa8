package commands

import (
	"encoding/json"
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

// TestServeBudgets has two processes share budgets on each server and cluster.
func TestServeBudgets(t *testing.T) {
	bin := daemon.Build(t)
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		d := &deployment{name: tgt.Name, addrs: tgt.Addrs[:1]}
		if tgt.Cluster {
			d.kind, d.addrs = "+cluster", tgt.Addrs
		}
		begin := func() *daemon.Daemon {
			return daemon.Start(t, bin, "--store="+d.url("redis", d.addrs)+"&tag=/",
				"--on-failure=closed",
				fmt.Sprintf("--limit=requests=%d/1h,tokens=%d/1h", budgetLimit, 20*budgetLimit),
				fmt.Sprintf("--in-flight=calls=%d/1h,short=1/%v", budgetCalls, shortLease),
				"--block=blocked=1h")
		}
		first, second := begin(), begin()
		t.Run("reserve here, commit there", func(t *testing.T) {
			shareBudget(t, first, second, freshKey(t))
		})
		t.Run("several keys", func(t *testing.T) {
			severalKeys(t, first, tgt.Cluster, freshKey(t))
		})
		t.Run("killed", func(t *testing.T) { leaseOfKilled(t, first, second, freshKey(t)) })
	})
}

const (
	budgetLimit = 50 // calls in all
	budgetCalls = 4  // at once
	shortLease  = 3 * time.Second
	clockSlack  = 100 * time.Millisecond // between the clocks of the test and of the server
)

// shareBudget has workers reserve at one process and commit at the other, until all calls are
// spent. Exactly the limits are admitted, and what was not used is free again. Each reservation is
// settled twice at once, of which one counts.
func shareBudget(t *testing.T, first, second *daemon.Daemon, key string) {
	const used = 7
	var running, most, admitted, late atomic.Int64
	claims := claimsOf(key, "requests 1", "tokens 20", "calls 1", "blocked 0")
	work := func(reserve, commit *daemon.Daemon) {
		for {
			status, body, _ := reserve.PostJSON(t, "/v1/reserve", claims)
			if status == http.StatusTooManyRequests &&
				strings.Contains(body, `"violated-policies":["calls"]`) {
				continue // another worker's call ends first
			}
			if status != http.StatusOK {
				if status != http.StatusTooManyRequests ||
					!strings.Contains(body, `"violated-policies":["requests"`) {
					t.Errorf("reserve: %d %s", status, body)
				}
				return
			}
			admitted.Add(1)
			running.Add(1)
			status, peeked, _ := commit.PostJSON(t, "/v1/peek-all", claims)
			if status != http.StatusOK {
				t.Errorf("peek: %d %s", status, peeked)
			}
			for n := running.Load(); n > most.Load(); n = running.Load() {
				most.Store(n)
			}
			running.Add(-1)
			settlement := fmt.Sprintf(`{"token":%q,"actual":[1,%d,0,0]}`, tokenOf(t, body), used)
			var wg sync.WaitGroup
			for _, d := range []*daemon.Daemon{commit, reserve} { // one of them settles
				wg.Go(func() {
					switch status, body, _ := d.PostJSON(t, "/v1/commit", settlement); status {
					case http.StatusNoContent:
					case http.StatusConflict:
						late.Add(1)
					default:
						t.Errorf("commit: %d %s", status, body)
					}
				})
			}
			wg.Wait()
		}
	}
	var wg sync.WaitGroup
	for range 2 * budgetCalls {
		wg.Go(func() { work(first, second) })
		wg.Go(func() { work(second, first) })
	}
	wg.Wait()
	if got := admitted.Load(); got != budgetLimit || late.Load() != got ||
		most.Load() > budgetCalls {
		t.Errorf("%d admitted, %d at once, %d settled late; want %d, at most %d, and all",
			got, most.Load(), late.Load(), budgetLimit, budgetCalls)
	}
	for _, d := range []*daemon.Daemon{first, second} {
		got := leftOf(t, d, claimsOf(key, "requests 1", "tokens 1", "calls 1", "blocked 0"))
		want := fmt.Sprint([]int64{0, 20*budgetLimit - used*budgetLimit, budgetCalls, 3_600_000})
		if fmt.Sprint(got) != want {
			t.Errorf("left %v, want %s", got, want)
		}
	}
	block := fmt.Sprintf(`{"limit":"blocked","key":%q,"for_ms":3600000}`, key)
	if status, body, _ := first.PostJSON(t, "/v1/block", block); status != http.StatusOK {
		t.Errorf("block: %d %s", status, body)
	}
	if status, body, _ := second.PostJSON(t, "/v1/take-all",
		claimsOf(key, "tokens 1", "blocked 0")); status != http.StatusTooManyRequests {
		t.Errorf("blocked by the other process: %d %s", status, body)
	}
}

// severalKeys takes claims on two keys as one. A cluster can do so if the keys are of one group.
func severalKeys(t *testing.T, d *daemon.Daemon, cluster bool, key string) {
	for _, tt := range []struct {
		one, other string
		together   bool
	}{{"a/", "a/b/", true}, {"a/", "b/", !cluster}} {
		status, body, _ := d.PostJSON(t, "/v1/take-all", fmt.Sprintf(
			`{"claims":[{"limit":"tokens","key":%q},{"limit":"tokens","key":%q}]}`,
			tt.one+key, tt.other+key))
		refused := status == http.StatusUnprocessableEntity &&
			strings.Contains(body, "#claims-not-together")
		if (status == http.StatusOK) != tt.together || refused == tt.together {
			t.Errorf("%s and %s: %d %s", tt.one, tt.other, status, body)
		}
	}
}

// leaseOfKilled kills the process that has acquired a call in flight, which is free after its
// window, and no sooner.
func leaseOfKilled(t *testing.T, killed, other *daemon.Daemon, key string) {
	acquire := fmt.Sprintf(`{"limit":"short","key":%q,"wait_ms":1000}`, key)
	began := time.Now()
	if status, body, _ := killed.PostJSON(t, "/v1/acquire", acquire); status != http.StatusOK {
		t.Fatalf("acquire: %d %s", status, body)
	}
	killed.Kill(t)
	refused := 0
	servers.Within(t, func() bool {
		status, body, _ := other.PostJSON(t, "/v1/acquire", acquire)
		if status != http.StatusOK && status != http.StatusTooManyRequests {
			t.Errorf("acquire: %d %s", status, body)
		}
		refused++
		return status == http.StatusOK
	}, "the lease of a killed process")
	took := time.Since(began)
	if took < shortLease-clockSlack {
		t.Errorf("the lease was free after %v, want %v", took, shortLease)
	}
	servers.Measured("serve: a lease of %v of a killed process was free after %v, refused %d times",
		shortLease, took.Round(time.Millisecond), refused-1)
}

// claimsOf returns the body of a request for claims such as "tokens 20" on the key.
func claimsOf(key string, claims ...string) string {
	var parts []string
	for _, c := range claims {
		limit, n, _ := strings.Cut(c, " ")
		parts = append(parts, fmt.Sprintf(`{"limit":%q,"key":%q,"n":%s}`, limit, key, n))
	}
	return `{"claims":[` + strings.Join(parts, ",") + `]}`
}

func tokenOf(t *testing.T, body string) string {
	t.Helper()
	var answer struct{ Token string }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || answer.Token == "" {
		t.Errorf("no token (%v): %s", err, body)
	}
	return answer.Token
}

// leftOf returns what is left of the limit of each claim.
func leftOf(t *testing.T, d *daemon.Daemon, claims string) (left []int64) {
	t.Helper()
	_, body, _ := d.PostJSON(t, "/v1/peek-all", claims)
	var answer struct{ Limits []struct{ Remaining int64 } }
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for _, l := range answer.Limits {
		left = append(left, l.Remaining)
	}
	return left
}
