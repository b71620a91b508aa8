package conformance

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/internal/algorithms"
)

// Instants and distances of traces, in µs. Traces begin at the beginning of an hour, the window of
// their limits. Servers forget in real time what has run out in the time of a trace, so a burst
// before the end of a window comes so long before it that no burst takes longer.
const (
	tracesBegin = int64(1_800_000_000_000_000)
	beforeEnd   = int64(10_000_000)
)

// trace plays all traces with an algorithm, each on keys of its own.
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

// tracer asks a store on a clock that it sets.
type tracer struct {
	t         *testing.T
	algorithm algorithms.Named
	store     ratelimit.Store
	clock     atomic.Int64
	verdict
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
	d := ratelimit.Demand{Key: key, Algorithm: tr.algorithm.New(h.limit), N: n}
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

// traceEdges aims bursts at the edges of windows that begin at whole hours, and at those of the
// windows that the bursts begin.
func traceEdges(tr *tracer) {
	for _, limit := range []int64{1, 10, 100} {
		h := &history{limit: ratelimit.PerHour("hour", limit)}
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

// traceSteady asks for the whole limit at the end of a window, and then for four times as much as
// the limit, evenly, for one and a half windows.
func traceSteady(tr *tracer) {
	for _, limit := range []int64{1, 10, 100} {
		h := &history{limit: ratelimit.PerHour("hour", limit)}
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

// traceBursts plays 200 random traces: bursts, pauses, and demands at the microsecond when
// something leaves the window.
func traceBursts(tr *tracer) {
	r := rand.New(rand.NewPCG(1, 2))
	for trace := range 200 {
		h := &history{limit: ratelimit.PerHour("hour", 1+r.Int64N(20))}
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
