package conformance

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// Times in traces, in µs. A trace begins at a full hour, and its limits' windows are an hour.
// Servers expire keys in real time, so a burst near the end of a window starts early enough to
// finish within it.
const (
	tracesBegin = int64(1_800_000_000_000_000)
	beforeEnd   = int64(10_000_000)
)

// trace plays all traces with an algorithm, each on its own keys.
func trace(t *testing.T, a algorithms.Named, open opener) (sum verdict) {
	t.Helper()
	for _, play := range []func(*tracer){traceEdges, traceSteady, traceBursts} {
		tr := &tracer{t: t, algorithm: a}
		tr.clock.Store(tracesBegin)
		tr.store = open(t, tr.clock.Load)
		play(tr)
		sum.add(tr.verdict)
	}
	return sum
}

// tracer takes from a store whose clock it sets.
type tracer struct {
	t         *testing.T
	algorithm algorithms.Named
	store     driver.Store
	clock     atomic.Int64
	verdict
}

func (tr *tracer) decide(d driver.Demand) driver.Result {
	tr.t.Helper()
	res, err := tr.store.Take(tr.t.Context(), d)
	if err != nil {
		tr.t.Fatal(err)
	}
	return res
}

// take takes n units and adds the answer to h.
func (tr *tracer) take(h *history, key string, n int64, tryRetry bool) {
	tr.t.Helper()
	now := tr.clock.Load()
	d := driver.Demand{Key: key, Algorithm: tr.algorithm.New(h.limit), N: n}
	res := tr.decide(d)
	if res.Allowed {
		h.admitted = append(h.admitted, event{now, n})
		return
	}
	h.refused = append(h.refused, event{now, n})
	if !tryRetry || res.Source == driver.SourceCache { // it may be that of fewer units
		return
	}
	d.Op = driver.OpPeek
	retry := now + res.RetryAfter.Microseconds()
	tr.clock.Store(retry - 1)
	early := tr.decide(d)
	tr.clock.Store(retry)
	exact := tr.decide(d)
	tr.clock.Store(now)
	if early.Allowed || !exact.Allowed {
		tr.t.Errorf("RetryAfter %v: Allowed is %t a microsecond early, want false, and then %t",
			res.RetryAfter, early.Allowed, exact.Allowed)
	}
	tr.retries++
}

// traceEdges places bursts at the edges of windows that begin at full hours, and at the edges of
// the windows that the bursts begin.
func traceEdges(tr *tracer) {
	for _, limit := range []int64{1, 10, 100} {
		h := &history{limit: driver.PerHour("hour", limit)}
		for window := range int64(3) {
			hour := h.limit.Window.Microseconds()
			for _, offset := range []int64{-beforeEnd - 1, -beforeEnd, 1 - beforeEnd, 0, hour / 2} {
				tr.clock.Store(tracesBegin + window*hour + offset)
				for i := range 2 * limit {
					tr.take(h, fmt.Sprintf("edges:%d", limit), 1, i == limit)
				}
			}
		}
		tr.judge(h)
	}
}

// traceSteady takes the whole limit at the end of a window, and then four times the limit, evenly
// over one and a half windows.
func traceSteady(tr *tracer) {
	for _, limit := range []int64{1, 10, 100} {
		h := &history{limit: driver.PerHour("hour", limit)}
		window := h.limit.Window.Microseconds()
		tr.clock.Store(tracesBegin + 2*window - beforeEnd)
		for range limit {
			tr.take(h, fmt.Sprintf("steady:%d", limit), 1, false)
		}
		for i := range 6 * limit {
			tr.clock.Add(window / (4 * limit))
			tr.take(h, fmt.Sprintf("steady:%d", limit), 1, i%limit == 0)
		}
		tr.judge(h)
	}
}

// traceBursts plays random traces: bursts, pauses, and demands at the microsecond at which
// something leaves the window.
func traceBursts(tr *tracer) {
	r := rand.New(rand.NewPCG(1, 2))
	for trace := range depth.Of(20, 200) {
		h := &history{limit: driver.PerHour("hour", 1+r.Int64N(20))}
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
}
