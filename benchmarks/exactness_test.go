package main

import (
	"context"
	crand "crypto/rand"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// exactMax is the limit of the traces. On servers the window is a second, since some libraries
// there have no shorter one.
const (
	exactMax    = 10
	aimedTraces = 20

	// exactTick is the resolution of the finest clock of an entry. What lies in one window to the
	// nanosecond can be a whole window apart on such a clock.
	exactTick = time.Microsecond
)

// A call is one decision as its caller saw it: it was made between before and after.
type call struct {
	before, after time.Duration
	admitted      bool
}

// BenchmarkExactness measures how far the entries exceed the limit, and how often they refuse
// wrongly, in real time: bursts aimed at the edges of windows, and random bursts. On a server two
// clients play each trace.
func BenchmarkExactness(b *testing.B) {
	for _, e := range memoryEntries {
		b.Run("memory/entry="+e.name, func(b *testing.B) {
			d, err := e.open(quota{exactMax, time.Second / 2})
			if err != nil {
				b.Fatal(err)
			}
			defer d.close()
			playTraces(b, []decider{d}, time.Second/2)
		})
	}
	for _, e := range redisEntriesExcept(emptyScript) {
		b.Run("server/entry="+e.name, func(b *testing.B) {
			s, q := onServer(b), quota{exactMax, time.Second}
			playTraces(b, []decider{s.open(b, e, q), s.open(b, e, q)}, time.Second)
		})
	}
}

// playTraces plays a trace on each key, all at the same time, for four windows.
func playTraces(b *testing.B, ds []decider, window time.Duration) {
	b.Helper()
	const random = 200
	var mu sync.Mutex
	var most, refused, wrong, calls, failed int
	for b.Loop() {
		prefix, start := crand.Text(), time.Now()
		var wg sync.WaitGroup
		for i := range random + aimedTraces {
			wg.Go(func() {
				next := randomBursts(window, uint64(i))
				if i >= random {
					next = aimedBursts(window, float64(i-random)/aimedTraces)
				}
				trace, errors := play(b.Context(), ds, prefix+keyName(i), start, 4*window, next)
				m, r, w := examine(trace, quota{exactMax, window})
				mu.Lock()
				defer mu.Unlock()
				most, refused, wrong = max(most, m), refused+r, wrong+w
				calls, failed = calls+len(trace)+errors, failed+errors
			})
		}
		wg.Wait()
	}
	b.ReportMetric(float64(most)/exactMax, "most÷limit")
	b.ReportMetric(percent(wrong, refused), "wrong-%")
	b.ReportMetric(percent(failed, calls), "failed-%")
	b.ReportMetric(0, "ns/op")
}

// percent is a share in percent, 0 of nothing.
func percent(part, whole int) float64 { return 100 * float64(part) / float64(max(whole, 1)) }

// play makes the bursts of calls that next returns, each after its pause. It uses the deciders in
// turn.
func play(
	ctx context.Context, ds []decider, key string, start time.Time, length time.Duration,
	next func() (pause time.Duration, calls int),
) (trace []call, failed int) {
	due := time.Duration(0)
	for ctx.Err() == nil {
		pause, calls := next()
		due += pause
		if due > length {
			break
		}
		time.Sleep(due - time.Since(start))
		for i := range calls {
			before := time.Since(start)
			ok, err := ds[i%len(ds)].allow(ctx, key)
			if err != nil {
				failed++
				continue
			}
			trace = append(trace, call{before, time.Since(start), ok})
		}
	}
	return trace, failed
}

// randomBursts returns bursts of 1 to 12 calls, 0 to 0.7 windows apart.
func randomBursts(window time.Duration, seed uint64) func() (time.Duration, int) {
	random := rand.New(rand.NewPCG(seed, 1))
	return func() (time.Duration, int) {
		return time.Duration(random.Float64() * 0.7 * float64(window)), 1 + random.IntN(12)
	}
}

// aimedBursts begins a window with one call, waits for a phase, and then calls as often as the
// limit every twentieth of a window: on both sides of every window edge.
func aimedBursts(window time.Duration, phase float64) func() (time.Duration, int) {
	n := 0
	return func() (time.Duration, int) {
		n++
		switch n {
		case 1:
			return 0, 1
		case 2:
			return time.Duration(phase * float64(window)), exactMax
		}
		return window / 20, exactMax
	}
}

// examine returns the most admissions that certainly lie in one window, the number of refusals, and
// the number of those that are certainly wrong, for a clock of the resolution exactTick.
func examine(trace []call, q quota) (most, refused, wrong int) {
	var admitted []call
	first := 0
	for _, c := range trace {
		if !c.admitted {
			refused++
			live := 0
			for i := len(admitted) - 1; i >= 0 &&
				admitted[i].after > c.before-q.window-exactTick; i-- {
				live++
			}
			if live < int(q.max) {
				wrong++
			}
			continue
		}
		admitted = append(admitted, c)
		for c.after-admitted[first].before > q.window-exactTick {
			first++
		}
		most = max(most, len(admitted)-first)
	}
	return most, refused, wrong
}

func TestExamine(t *testing.T) {
	const ms = time.Millisecond
	at := func(t time.Duration, admitted bool) call { return call{t, t + ms, admitted} }
	q := quota{2, 100 * ms}
	for _, tt := range []struct {
		name                 string
		trace                []call
		most, refused, wrong int
	}{
		{"within the limit",
			[]call{at(0, true), at(50*ms, true), at(60*ms, false), at(100*ms, true)}, 2, 1, 0},
		{"over the limit", []call{at(0, true), at(10*ms, true), at(98*ms, true)}, 3, 0, 0},
		{"over the limit by a microsecond",
			[]call{at(0, true), at(10*ms, true), at(99*ms-exactTick, true)}, 3, 0, 0},
		{"over it by less than a clock tells",
			[]call{at(0, true), at(10*ms, true), at(99*ms-exactTick/2, true)}, 2, 0, 0},
		{"not certain to be over", []call{at(0, true), at(10*ms, true), at(99*ms, true)}, 2, 0, 0},
		{"wrong refusal", []call{at(0, true), at(1*ms, true), at(200*ms, false)}, 2, 1, 1},
		{"wrong refusal by a microsecond",
			[]call{at(0, true), at(1*ms, true), at(101*ms+exactTick, false)}, 2, 1, 1},
		{"wrong by less than a clock tells",
			[]call{at(0, true), at(1*ms, true), at(101*ms, false)}, 2, 1, 0},
		{"refusal not certain to be wrong",
			[]call{at(0, true), at(1*ms, true), at(100*ms, false)}, 2, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			most, refused, wrong := examine(tt.trace, q)
			if most != tt.most || refused != tt.refused || wrong != tt.wrong {
				t.Errorf("got %d, %d, %d, want %d, %d, %d", most, refused, wrong, tt.most,
					tt.refused, tt.wrong)
			}
		})
	}
}
