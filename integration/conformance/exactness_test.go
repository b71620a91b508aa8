package conformance

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/storeclock"
)

// exactnessEnv names the page to which the table is written.
const exactnessEnv = "RATELIMIT_EXACTNESS_MD"

// TestExactness measures every store: the most units admitted in any window, divided by the limit;
// refusals that an exact log would not have made; whether RetryAfter is right to the microsecond;
// and the total admitted to storms of goroutines and processes on one key. Nothing has a tolerance.
// The other algorithms play the same traces and must give the results that they give in memory.
func TestExactness(t *testing.T) {
	t.Parallel()
	inMemory := make(map[string]verdict)
	var mu sync.Mutex
	var stores []string
	t.Cleanup(func() {
		if page := os.Getenv(exactnessEnv); page != "" && !t.Failed() {
			err := servers.WriteTable(page, "exactness", "make exactness",
				exactnessTable(inMemory, stores))
			if err != nil {
				t.Error(err)
			}
		}
	})
	for _, a := range algorithms.All() {
		inMemory[a.Name] = trace(t, a, func(_ testing.TB, now func() int64) driver.Store {
			return newMemoryStore(t, now)
		})
	}
	eachStore(t, func(t *testing.T, name string, tgt *servers.Target, open opener) {
		t.Parallel()
		row := fmt.Sprintf("exactness: %-42s", name)
		for _, a := range algorithms.All() {
			t.Run(a.Name, func(t *testing.T) {
				v := trace(t, a, open)
				row += fmt.Sprintf(" %s %s;", a.Name, v)
				if want := inMemory[a.Name]; v.most != want.most || v.refusals != want.refusals ||
					v.wrong != want.wrong {
					t.Errorf("got %v, want what it does in memory: %v", v, want)
				}
				if a.Name == "log" {
					v.check(t)
				} else if v.most > 2 || v.refusals == 0 {
					t.Errorf("got %v, want at most twice the limit, and refusals", v)
				}
			})
		}
		t.Run("own clock", func(t *testing.T) {
			row += " own clock " + hammer(t, open).String()
		})
		t.Run("goroutines", func(t *testing.T) {
			row += "; 64×2 goroutines " + stormGoroutines(t, open).String()
		})
		if tgt != nil {
			t.Run("processes", func(t *testing.T) {
				row += "; 2 processes " + stormProcesses(t, tgt).String()
			})
		}
		servers.Measured("%s", row)
		mu.Lock()
		defer mu.Unlock()
		stores = append(stores, name)
	})
}

// history is the answers for one key, as a caller sees them.
type history struct {
	limit    driver.Limit
	admitted []event // in order
	refused  []event
}

type event struct{ at, n int64 } // µs, units

// used returns the units admitted in (t−Window, t].
func (h *history) used(t int64) (used int64) {
	for _, e := range slices.Backward(h.admitted) {
		if e.at <= t-h.limit.Window.Microseconds() {
			break
		}
		if e.at <= t {
			used += e.n
		}
	}
	return used
}

// verdict summarizes histories.
type verdict struct {
	most     float64 // units admitted in any window, divided by the limit
	refusals int
	wrong    int // refusals that an exact log would not have made
	retries  int // values of RetryAfter that were tried and right
}

func (v verdict) String() string {
	s := fmt.Sprintf("%.2f, %d of %d refusals wrong", v.most, v.wrong, v.refusals)
	if v.retries > 0 {
		s += fmt.Sprintf(", %d retries exact", v.retries)
	}
	return s
}

func (v *verdict) add(w verdict) {
	v.most = max(v.most, w.most)
	v.refusals += w.refusals
	v.wrong += w.wrong
	v.retries += w.retries
}

func (v *verdict) judge(h *history) {
	for _, e := range h.admitted {
		v.most = max(v.most, float64(h.used(e.at))/float64(h.limit.Max))
	}
	for _, e := range h.refused {
		v.refusals++
		if h.used(e.at)+e.n <= h.limit.Max {
			v.wrong++
		}
	}
}

// check fails t unless v is the verdict of an exact log under more demand than its limit.
func (v *verdict) check(t *testing.T) {
	t.Helper()
	if v.most != 1 || v.wrong != 0 || v.refusals == 0 {
		t.Errorf("a window admitted %.3f times the limit, want 1; %d of %d refusals are wrong, "+
			"want none", v.most, v.wrong, v.refusals)
	}
}

// hammer saturates one key from two clients for ten windows of the store's clock, and longer on a
// slow server, until it refuses. It judges by that clock.
func hammer(t *testing.T, open opener) verdict {
	const workers = 4
	h := &history{limit: driver.Limit{Max: 20, Window: 50 * time.Millisecond}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	end := time.Now().Add(10 * h.limit.Window)
	done := func() bool {
		mu.Lock()
		defer mu.Unlock()
		late := time.Since(end)
		return late > time.Minute || late > 0 && len(h.refused) > 0
	}
	for range 2 {
		store := open(t, nil)
		for range workers {
			wg.Go(func() {
				d := driver.Demand{Key: "hammer", Algorithm: algorithm.SlidingLog(h.limit), N: 2}
				ds, out := []driver.Demand{d, storeclock.Show(d.Key)}, make([]driver.Result, 2)
				for !done() {
					if err := store.TakeAll(t.Context(), ds, out); err != nil {
						t.Error(err)
						return
					}
					e := event{storeclock.Of(out[1], end.UnixMicro()), d.N}
					mu.Lock()
					if out[0].Allowed {
						h.admitted = append(h.admitted, e)
					} else if len(h.refused) < 100_000 { // a cache makes millions
						h.refused = append(h.refused, e)
					}
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	slices.SortFunc(h.admitted, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	var v verdict
	v.judge(h)
	v.check(t)
	return v
}
