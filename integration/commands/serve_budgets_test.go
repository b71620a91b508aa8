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
	"github.com/truewindow/ratelimit/internal/testkit/depth"
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
				fmt.Sprintf("--in-flight=calls=%d/1h,short=1/%v", budgetCalls, shortHold),
				"--block=blocked=1h")
		}
		first, second := begin(), begin()
		t.Run("hold here, settle there", func(t *testing.T) {
			shareBudget(t, first, second, freshKey(t))
		})
		t.Run("several keys", func(t *testing.T) {
			severalKeys(t, first, tgt.Cluster, freshKey(t))
		})
		if !tgt.Cluster {
			t.Run("nothing left", func(t *testing.T) {
				nothingLeft(t, bin, d.url("redis", d.addrs))
			})
		}
		t.Run("killed", func(t *testing.T) { holdOfKilled(t, first, second, freshKey(t)) })
	})
}

const (
	budgetLimit = 50 // calls in all
	budgetCalls = 4  // at once
	shortHold   = 3 * time.Second
	clockSlack  = 100 * time.Millisecond // between the clocks of the test and of the server
)

// shareBudget has workers hold units at one process and settle them at the other, until all are
// spent. Exactly the limits are admitted, and what was not used is free again. Each id is settled
// twice at once, of which one counts.
func shareBudget(t *testing.T, first, second *daemon.Daemon, key string) {
	const used = 7
	var running, most, admitted, late atomic.Int64
	claims := claimsOf(key, "requests 1", "tokens 20", "calls 1", "blocked 0")
	work := func(holder, settler *daemon.Daemon) {
		for {
			status, body, _ := holder.PostJSON(t, "/v1/decide", holding(claims))
			answer := parse(t, body)
			if status == http.StatusTooManyRequests && answer.Limits[0].Allowed &&
				answer.Limits[1].Allowed {
				continue // another worker's call ends first
			}
			if status != http.StatusOK {
				if status != http.StatusTooManyRequests || answer.Limits[0].Allowed {
					t.Errorf("decide: %d %s", status, body)
				}
				return
			}
			admitted.Add(1)
			running.Add(1)
			status, peeked, _ := settler.PostJSON(t, "/v1/peek", claims)
			if status != http.StatusOK {
				t.Errorf("peek: %d %s", status, peeked)
			}
			for n := running.Load(); n > most.Load(); n = running.Load() {
				most.Store(n)
			}
			running.Add(-1)
			settlement := fmt.Sprintf(
				`{"id":%q,"used":[{"limit":"requests","n":1},{"limit":"tokens","n":%d}]}`,
				answer.ID, used)
			var wg sync.WaitGroup
			for _, d := range []*daemon.Daemon{settler, holder} { // one of them settles
				wg.Go(func() {
					switch status, body, _ := d.PostJSON(t, "/v1/settle", settlement); status {
					case http.StatusNoContent:
					case http.StatusConflict:
						late.Add(1)
					default:
						t.Errorf("settle: %d %s", status, body)
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
	if status, body, _ := second.PostJSON(t, "/v1/decide",
		claimsOf(key, "tokens 1", "blocked 0")); status != http.StatusTooManyRequests ||
		!strings.HasPrefix(body, `{"name":"blocked",`) {
		t.Errorf("blocked by the other process: %d %s", status, body)
	}
}

// nothingLeft settles what many requests hold on one key beside a block of a day. Only what is open
// stays on the server.
func nothingLeft(t *testing.T, bin, url string) {
	const workers, open = 8, 7
	pairs := depth.Of(400, 2000)
	prefix := fmt.Sprintf("left%d:", servers.FreshNumber())
	d := daemon.Start(t, bin, "--store="+url+"&prefix="+prefix, "--on-failure=closed",
		"--limit=tokens=1000000/1s", "--in-flight=calls=100/1h", "--block=blocked=24h")
	if status, body, _ := d.PostJSON(t, "/v1/block",
		`{"limit":"blocked","key":"other","for_ms":86400000}`); status != http.StatusOK {
		t.Fatalf("block: %d %s", status, body)
	}
	claims := holding(claimsOf("all", "tokens 5", "calls 1", "blocked 0"))
	pair := func(settled bool) {
		status, body, _ := d.PostJSON(t, "/v1/decide", claims)
		if status != http.StatusOK || !settled {
			if status != http.StatusOK {
				t.Errorf("decide: %d %s", status, body)
			}
			return
		}
		settlement := fmt.Sprintf(`{"id":%q,"used":3}`, parse(t, body).ID)
		if status, body, _ := d.PostJSON(t, "/v1/settle", settlement); status != 204 {
			t.Errorf("settle: %d %s", status, body)
		}
	}
	began := time.Now()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range pairs / workers {
				pair(true)
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	for range open {
		pair(false)
	}
	client := servers.Connect(t, strings.TrimPrefix(url[:strings.IndexByte(url, '?')], "redis://"))
	count := func() (keys int, holds int64) {
		all := client.Scan(t.Context(), 0, prefix+"*", 1000).Iterator()
		for all.Next(t.Context()) {
			keys++
			if n, err := client.HLen(t.Context(), all.Val()).Result(); err == nil {
				holds += n - 1 // without the header
			}
		}
		if err := all.Err(); err != nil {
			t.Error(err)
		}
		return keys, holds
	}
	// The log of tokens, its holds, the calls and the block. The log ends with its window.
	if keys, holds := count(); keys > 4 || holds != 2*open {
		t.Errorf("%d keys with %d holds, want at most 4 with %d", keys, holds, 2*open)
	}
	servers.Within(t, func() bool {
		keys, _ := count()
		return keys == 3
	}, "the end of the log")
	servers.Measured("serve: %d pairs of decide and settle, %d at once, took %v", pairs, workers,
		took.Round(time.Millisecond))
}

// severalKeys takes claims on two keys as one. A cluster can do so if the keys are of one group.
func severalKeys(t *testing.T, d *daemon.Daemon, cluster bool, key string) {
	for _, tt := range []struct {
		one, other string
		together   bool
	}{{"a/", "a/b/", true}, {"a/", "b/", !cluster}} {
		status, body, _ := d.PostJSON(t, "/v1/decide", fmt.Sprintf(
			`{"claims":[{"limit":"tokens","key":%q},{"limit":"tokens","key":%q}]}`,
			tt.one+key, tt.other+key))
		refused := status == http.StatusUnprocessableEntity &&
			strings.Contains(body, "#claims-not-together")
		if (status == http.StatusOK) != tt.together || refused == tt.together {
			t.Errorf("%s and %s: %d %s", tt.one, tt.other, status, body)
		}
	}
}

// holdOfKilled kills the process that has begun a call in flight, which is free after its time-out,
// and no sooner.
func holdOfKilled(t *testing.T, killed, other *daemon.Daemon, key string) {
	acquire := fmt.Sprintf(
		`{"hold_ms":0,"wait_ms":1000,"claims":[{"limit":"short","key":%q}]}`, key)
	began := time.Now()
	if status, body, _ := killed.PostJSON(t, "/v1/decide", acquire); status != http.StatusOK {
		t.Fatalf("decide: %d %s", status, body)
	}
	killed.Kill(t)
	refused := 0
	servers.Within(t, func() bool {
		status, body, _ := other.PostJSON(t, "/v1/decide", acquire)
		if status != http.StatusOK && status != http.StatusTooManyRequests {
			t.Errorf("decide: %d %s", status, body)
		}
		refused++
		return status == http.StatusOK
	}, "the call of a killed process")
	took := time.Since(began)
	if took < shortHold-clockSlack {
		t.Errorf("the call was free after %v, want %v", took, shortHold)
	}
	servers.Measured("serve: a call of a killed process with a time-out of %v was free after %v, "+
		"refused %d times", shortHold, took.Round(time.Millisecond), refused-1)
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

// holding returns a request for claims that holds them.
func holding(claims string) string { return `{"hold_ms":0,` + claims[1:] }

// answer is the answer to a decision.
type answer struct {
	ID     string
	Limits []struct {
		Allowed   bool
		Remaining int64
	}
}

func parse(t *testing.T, body string) (a answer) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &a); err != nil || len(a.Limits) == 0 {
		t.Fatalf("%v: %s", err, body)
	}
	return a
}

// leftOf returns what is left of the limit of each claim.
func leftOf(t *testing.T, d *daemon.Daemon, claims string) (left []int64) {
	t.Helper()
	_, body, _ := d.PostJSON(t, "/v1/peek", claims)
	for _, l := range parse(t, body).Limits {
		left = append(left, l.Remaining)
	}
	return left
}
