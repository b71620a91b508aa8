package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestExactness measures what a limit promises, on every store: the most that any window admits,
// over the limit; refusals that an exact log would not have made; whether RetryAfter is right to
// the microsecond; and what storms of goroutines and of processes on one key are admitted in all.
// None of it has a tolerance.
func TestExactness(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, name string, tgt *servers.Target, open opener) {
		t.Parallel()
		row := fmt.Sprintf("exactness: %-42s", name)
		t.Run("edges", func(t *testing.T) {
			row += " edges " + traceEdges(t, open).String()
		})
		t.Run("traces", func(t *testing.T) {
			row += "; traces " + traceBursts(t, open).String()
		})
		t.Run("own clock", func(t *testing.T) {
			row += "; own clock " + hammer(t, open).String()
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
	})
}

// history is what one key was answered, as an outsider sees it.
type history struct {
	limit    ratelimit.Limit
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

// verdict sums up histories.
type verdict struct {
	most     float64 // in any window, over the limit
	refusals int
	wrong    int // refusals that an exact log would not have made
	retries  int // values of RetryAfter tried out, and found right
}

func (v verdict) String() string {
	s := fmt.Sprintf("%.2f, %d of %d refusals wrong", v.most, v.wrong, v.refusals)
	if v.retries > 0 {
		s += fmt.Sprintf(", %d retries exact", v.retries)
	}
	return s
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

// check fails t unless v is that of an exact log under more demand than it admits.
func (v *verdict) check(t *testing.T) {
	t.Helper()
	if v.most != 1 || v.wrong != 0 || v.refusals == 0 {
		t.Errorf("most in a window over the limit %.3f, want 1; %d of %d refusals wrong, want none of some", v.most, v.wrong, v.refusals)
	}
}

// tracer asks a store on a clock that it sets.
type tracer struct {
	t     *testing.T
	store ratelimit.Store
	clock atomic.Int64
	verdict
}

func newTracer(t *testing.T, open opener) *tracer {
	tr := &tracer{t: t}
	tr.clock.Store(time.Now().UnixMicro())
	tr.store = open(t, tr.clock.Load)
	return tr
}

func (tr *tracer) decide(d ratelimit.Demand) ratelimit.Result {
	tr.t.Helper()
	res, err := tr.store.Take(tr.t.Context(), d)
	if err != nil {
		tr.t.Fatal(err)
	}
	return res
}

// take asks for n units now and enters the answer into h.
func (tr *tracer) take(h *history, key string, n int64, tryRetry bool) {
	tr.t.Helper()
	now := tr.clock.Load()
	d := ratelimit.Demand{Key: key, Algorithm: algorithm.SlidingLog(h.limit), N: n}
	res := tr.decide(d)
	if res.Allowed {
		h.admitted = append(h.admitted, event{now, n})
		return
	}
	h.refused = append(h.refused, event{now, n})
	if !tryRetry || res.Source == ratelimit.SourceCache { // whose RetryAfter may be of fewer units
		return
	}
	d.Op = ratelimit.OpPeek
	retry := now + res.RetryAfter.Microseconds()
	tr.clock.Store(retry - 1)
	early := tr.decide(d)
	tr.clock.Store(retry)
	exact := tr.decide(d)
	tr.clock.Store(now)
	if early.Allowed || !exact.Allowed {
		tr.t.Errorf("RetryAfter %v: one microsecond earlier allowed is %v, then %v",
			res.RetryAfter, early.Allowed, exact.Allowed)
	}
	tr.retries++
}

// traceEdges aims bursts at the edges of windows that begin at whole minutes, and at those of the
// windows that the bursts begin.
func traceEdges(t *testing.T, open opener) verdict {
	tr := newTracer(t, open)
	start := tr.clock.Load() / time.Minute.Microseconds() * time.Minute.Microseconds()
	for _, limit := range []int64{1, 10, 100} {
		h := &history{limit: ratelimit.PerMinute("minute", limit)}
		for window := range int64(3) {
			for _, offset := range []int64{-1, 0, 1, h.limit.Window.Microseconds() / 2} {
				tr.clock.Store(start + window*h.limit.Window.Microseconds() + offset)
				for i := range 2 * limit {
					tr.take(h, fmt.Sprintf("edges:%d", limit), 1, i == limit)
				}
			}
		}
		tr.judge(h)
	}
	tr.check(t)
	return tr.verdict
}

// traceBursts plays 200 random traces: bursts, pauses, and demands at the microsecond when
// something leaves the window.
func traceBursts(t *testing.T, open opener) verdict {
	tr := newTracer(t, open)
	r := rand.New(rand.NewPCG(1, 2))
	for trace := range 200 {
		h := &history{limit: ratelimit.PerMinute("minute", 1+r.Int64N(20))}
		window := h.limit.Window.Microseconds()
		for range 40 {
			now := tr.clock.Load()
			switch r.IntN(10) {
			case 0:
				now += r.Int64N(window)
			case 1, 2:
				now += r.Int64N(window / 10)
			case 3, 4:
				if len(h.admitted) > 0 {
					edge := h.admitted[r.IntN(len(h.admitted))].at + window
					now = max(now, edge-1+r.Int64N(3))
				}
			case 5:
				now += r.Int64N(3)
			}
			tr.clock.Store(now)
			tr.take(h, fmt.Sprintf("bursts:%d", trace), 1+r.Int64N(min(h.limit.Max, 3)),
				r.IntN(4) == 0)
		}
		tr.judge(h)
	}
	tr.check(t)
	return tr.verdict
}

// hammer keeps one key saturated for ten windows of the store's own clock, from two clients, and
// goes by the stamps of the answers.
func hammer(t *testing.T, open opener) verdict {
	const workers = 4
	h := &history{limit: ratelimit.Limit{Max: 20, Window: 50 * time.Millisecond}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	end := time.Now().Add(10 * h.limit.Window)
	for range 2 {
		store := open(t, nil)
		for range workers {
			wg.Go(func() {
				d := ratelimit.Demand{Key: "hammer", Algorithm: algorithm.SlidingLog(h.limit), N: 1}
				for time.Now().Before(end) {
					res, err := store.Take(t.Context(), d)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if res.Allowed {
						h.admitted = append(h.admitted, event{res.At, d.N})
					} else if len(h.refused) < 100_000 { // a cache gives millions
						h.refused = append(h.refused, event{res.At, d.N})
					}
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	slices.SortFunc(h.admitted, func(a, b event) int { return int(a.at - b.at) })
	var v verdict
	v.judge(h)
	v.check(t)
	return v
}
