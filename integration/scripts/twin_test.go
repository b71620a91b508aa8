package scripts

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/logbytes"
)

// twin keeps one state twice: by the Lua step on a server and by the Go step in memory. Sometimes
// the sides swap their bytes. The packages of "make twins" have nothing to do with it.
type twin struct {
	client redis.UniversalClient
	key    string
	state  []byte
	around int // admissions that kept the length of a large state
	calls  []lua.Run
	steps  []twinStep // decided in Go and not on the server
}

// twinStep is a step with the Go result.
type twinStep struct {
	now  int64
	d    driver.Demand
	want driver.Result
}

// stepsAtOnce is the number of steps in a pipeline.
const stepsAtOnce = 64

// newTwin returns a twin. At the end of the test it must have compared all steps, and its key is
// deleted.
func newTwin(t testing.TB, client redis.UniversalClient, name string) *twin {
	t.Helper()
	w := &twin{client: client, key: fmt.Sprintf("%s:%d", name, time.Now().UnixNano())}
	w.calls = make([]lua.Run, stepsAtOnce)
	t.Cleanup(func() {
		if !t.Failed() && len(w.steps) > 0 {
			t.Errorf("%d steps were not compared, want all compared", len(w.steps))
		}
		client.Del(context.Background(), w.key)
	})
	return w
}

// step decides d in Go. The server decides it at the next compare or before.
func (w *twin) step(t testing.TB, now int64, d driver.Demand) driver.Result {
	t.Helper()
	next, keep, want := d.Step(w.state, now)
	if keep > 0 {
		if d.Op == driver.OpTake && len(next) == len(w.state) && len(next) > 5000 {
			w.around++
		}
		w.state = next
	}
	w.steps = append(w.steps, twinStep{now, d, want})
	if len(w.steps) == stepsAtOnce {
		w.compare(t)
	}
	return want
}

// newest returns the stamp of the newest record of a log after an admission.
func newest(now int64, res driver.Result) int64 {
	return now + (res.ResetAfter - res.Limit.Window).Microseconds()
}

// compare has the server decide the pending steps and compares the results.
func (w *twin) compare(t testing.TB) {
	t.Helper()
	if len(w.steps) == 0 {
		return
	}
	pipe := newPipeline(w.client)
	replies := make([]*redis.Cmd, len(w.steps))
	for i, s := range w.steps {
		w.calls[i].Begin(s.now)
		if err := w.calls[i].Add([]string{w.key}, []driver.Demand{s.d}); err != nil {
			t.Fatal(err)
		}
		replies[i] = pipe.run(t, &w.calls[i])
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, s := range w.steps {
		var got [1]driver.Result
		if err := w.calls[i].Results(replies[i].Val().(string), 0, got[:]); err != nil {
			t.Fatal(err)
		}
		if got[0] != s.want {
			t.Fatalf("%v of %d at %d under %v: got %+v in Lua, want %+v as in Go",
				s.d.Op, s.d.N, s.now, s.d.Algorithm.Limit(), got[0], s.want)
		}
	}
	w.steps = w.steps[:0]
}

// swap gives each side the bytes of the other.
func (w *twin) swap(t testing.TB) {
	t.Helper()
	w.compare(t)
	lua, err := w.client.Get(t.Context(), w.key).Bytes()
	if err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	if len(w.state) == 0 {
		err = w.client.Del(t.Context(), w.key).Err()
	} else {
		err = w.client.Set(t.Context(), w.key, w.state, time.Hour).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	w.state = bytes.Clone(lua)
}

// compareBytes compares what both sides have written, except what may differ.
func (w *twin) compareBytes(t *testing.T) {
	t.Helper()
	w.compare(t)
	got, err := w.client.Get(t.Context(), w.key).Bytes()
	if err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	want := bytes.Clone(w.state)
	logbytes.ClearFree(got)
	logbytes.ClearFree(want)
	if !bytes.Equal(got, want) {
		t.Fatalf("Lua wrote %s\nGo wrote  %s", brief(got), brief(want))
	}
}

// A recipe describes a random history. On average, the log changes after "change" steps. A
// force at an instant names one near the last "back" stamps.
type recipe struct {
	calm                bool // without demands that empty or fill the log at once
	wide                bool // peeks for any number of units
	steps, change, back int
	swap                int // steps between swaps, on average
	log                 func(*rand.Rand) algorithm.Log
	tick                func(r *rand.Rand, window int64) int64
}

func playTwin(t *testing.T, client redis.UniversalClient, r *rand.Rand, h recipe) *twin {
	t.Helper()
	w := newTwin(t, client, fmt.Sprintf("twin:%d", r.Uint64()))
	now := time.Now().UnixMicro()
	var stamps []int64
	log := h.log(r)
	for range h.steps {
		if r.IntN(h.change) == 0 {
			log = h.log(r)
		}
		now = max(1, now+h.tick(r, log.Limit().Window.Microseconds()))
		stamps = stamps[max(0, len(stamps)-h.back):]
		d := randomDemand(r, log, stamps)
		if h.calm && (d.Op == driver.OpReset || d.Op == driver.OpForce && d.At == 0) {
			d.Op, d.N = driver.OpPeek, min(d.N, d.Algorithm.Limit().Max)
		}
		if h.wide && d.Op == driver.OpPeek {
			d.N = 1 + r.Int64N(log.Limit().Max)
		}
		res := w.step(t, now, d)
		if res.Allowed && (d.Op == driver.OpTake || d.Op == driver.OpForce) {
			stamps = append(stamps, newest(now, res))
		}
		if r.IntN(h.swap) == 0 {
			w.swap(t)
		}
	}
	w.compare(t)
	return w
}

func randomLog(r *rand.Rand) algorithm.Log {
	limit := driver.Limit{
		Name: "twin",
		Max:  []int64{1, 5, 60, 1000}[r.IntN(4)],
		Window: []time.Duration{time.Minute, 10 * time.Minute, 24 * time.Hour,
			driver.MaxWindow}[r.IntN(4)],
	}
	log := algorithm.SlidingLog(limit).WithResolution(
		[]time.Duration{0, 0, 7 * time.Microsecond, time.Second, time.Minute}[r.IntN(5)])
	return randomlyAhead(r, log)
}

// randomlyAhead returns a, or a with a lead, from a microsecond to half of the Window.
func randomlyAhead[A driver.Ahead](r *rand.Rand, a A) A {
	window := a.Limit().Window
	lead := []time.Duration{0, 0, 0, time.Microsecond, window / 100, window / 2}[r.IntN(6)]
	if ahead, ok := a.Ahead(lead).(A); ok {
		return ahead
	}
	return a
}

func randomTick(r *rand.Rand, window int64) int64 {
	switch r.IntN(12) {
	case 0:
		return window - 1 + r.Int64N(3)
	case 1:
		return -r.Int64N(window)
	case 2:
		return -window - r.Int64N(window)
	case 3:
		return r.Int64N(2 * window)
	case 4:
		return 0
	case 5:
		return -window + r.Int64N(8) - 4
	}
	return r.Int64N(window/20 + 1)
}

func randomDemand(r *rand.Rand, log driver.Algorithm, stamps []int64) driver.Demand {
	limit := log.Limit().Max
	d := driver.Demand{Key: "twin", Algorithm: log, N: 1 + r.Int64N(min(limit, 7))}
	switch r.IntN(16) {
	case 0, 1, 2:
		d.Op = driver.OpPeek
	case 3:
		d.Op, d.N = driver.OpForce, 1+r.Int64N(2*limit)
	case 4:
		if r.IntN(8) == 0 {
			d.Op, d.N = driver.OpForce, driver.MaxUnits
		}
	case 5:
		d.Op = driver.OpForce
		if len(stamps) > 0 {
			d.At = stamps[r.IntN(len(stamps))] + r.Int64N(3) - 1
		}
	case 8:
		if r.IntN(10) == 0 {
			d.Op = driver.OpReset
		}
	}
	return d
}
