package algorithm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// TestForceAt: a Force with an At adds its units to the first record in the window with that stamp
// or a later one, in each form, and to a new record if there is none.
func TestForceAt(t *testing.T) {
	for _, tt := range []struct {
		form    string
		records int64
	}{{"small", 8}, {"line", 100}, {"ring", 500}} {
		n, step := tt.records, 60*second/tt.records
		for name, c := range map[string]struct {
			at     float64 // in steps after the first record
			after  int64   // steps after the newest record at which it is forced
			record int64   // that gets the units; n is a new one
		}{
			"before all":           {-5, 0, 0},
			"the first":            {0, 0, 0},
			"after the first":      {0.5, 0, 1},
			"among the copies":     {3, 0, 3},
			"in the middle":        {float64(n/2) - 0.5, 0, n / 2},
			"the last but one":     {float64(n - 2), 0, n - 2},
			"the newest":           {float64(n-2) + 0.5, 0, n - 1},
			"later than all":       {float64(n-1) + 0.5, 1, n},
			"expired":              {0, n/2 + 1, n/2 + 1},
			"after an expired one": {float64(n) * 3 / 4, n/2 + 1, n * 3 / 4},
			"when all are expired": {0, 2 * n, n},
		} {
			t.Run(tt.form+"/"+name, func(t *testing.T) {
				l := SlidingLog(driver.PerMinute("minute", 10*n))
				var state []byte
				var model naive
				decide := func(now int64, d driver.Demand) logState {
					t.Helper()
					next, keep, res := l.Step(state, now, d)
					want, _ := model.step(l, now, d)
					if state = next; keep <= 0 || res != want {
						t.Fatalf("keep %v, got %+v, want %+v", keep, res, want)
					}
					if d.Op == driver.OpForce || n < 50 || now%31 == 0 {
						compare(t, int(now-epoch), state, now, &model)
					}
					g, _ := decodeLog(state)
					return g
				}
				var g logState
				for i := range n {
					g = decide(epoch+i*step, take(1))
				}
				if isLarge(len(state)) { // as if all copies were in use
					g.flags &= ringFlag
					state = g.encode()
				}
				size := len(state)
				now := epoch + (n-1+c.after)*step
				d := driver.Demand{Op: driver.OpForce, N: 7,
					At: epoch + int64(c.at*float64(step))}
				g = decide(now, d)
				if c.record == n {
					if g.newest != now || g.record(g.count-1).units() != 7 {
						t.Errorf("the newest record is at %d with %d units, want 7 at %d",
							g.newest, g.record(g.count-1).units(), now)
					}
				} else if r := g.record(int(c.record)); r.units() != 8 || len(state) != size {
					t.Errorf("record %d has %d units in %d bytes, want 8 in %d",
						c.record, r.units(), len(state), size)
				} else if n := g.flags &^ ringFlag; isLarge(size) && n > 0 != (c.record < 4) {
					t.Errorf("%d copies are stale after record %d has changed", n, c.record)
				}
				// What has been added leaves with its record.
				for i := range n {
					decide(now+i*step+1, take(1))
				}
			})
		}
	}
}

// TestForceAtCapsUnits: units beyond the largest sum are not added.
func TestForceAtCapsUnits(t *testing.T) {
	l := SlidingLog(driver.PerMinute("minute", 10))
	state, _, _ := l.Step(nil, epoch, take(1))
	for range 300 {
		d := driver.Demand{Op: driver.OpForce, N: driver.MaxUnits, At: epoch}
		state, _, _ = l.Step(state, epoch+1, d)
	}
	g, ok := decodeLog(state)
	if !ok || g.count != 1 || g.used != max48 || g.record(0).units() != max48 {
		t.Errorf("%d records with %d units; decodes %v", g.count, g.used, ok)
	}
}

// TestForceAtAnyTime compares Step with the model on logs of each form, with forces at any instant
// and a clock that steps.
func TestForceAtAnyTime(t *testing.T) {
	for _, most := range []int64{3, 40, 300, 2000} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("%d/%d", most, seed), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, uint64(most)))
				l := SlidingLog(driver.PerMinute("minute", most))
				if seed == 1 {
					l = l.WithResolution(7 * time.Microsecond)
				}
				window := 60 * second
				var state []byte
				var model naive
				now, joined := epoch, 0
				for i := range 4000 {
					now += r.Int64N(2 * window / most)
					switch r.IntN(500) {
					case 0:
						now += r.Int64N(window)
					case 1:
						now -= r.Int64N(window + window/4)
					}
					d := take(1)
					switch r.IntN(8) {
					case 0, 1:
						d.Op, d.N = driver.OpForce, 1+r.Int64N(3)
						d.At = now + window/10 - r.Int64N(window*3/2)
						if r.IntN(3) == 0 {
							d.At = now - r.Int64N(2*window/most)
						}
					case 2:
						d = peek(1 + r.Int64N(most))
					}
					before := bytes.Clone(state)
					next, keep, res := l.Step(state, now, d)
					if want, _ := model.step(l, now, d); res != want || keep < 0 {
						t.Fatalf("step %d: %v of %d at %d: got %+v, want %+v",
							i, d.Op, d.N, d.At, res, want)
					}
					if keep > 0 {
						state = next
					}
					if d.Op == driver.OpForce && len(state) == len(before) {
						joined++
					}
					if i%8 == 0 || most < 50 {
						compare(t, i, state, now, &model)
					}
				}
				if joined < 200 {
					t.Errorf("%d forces kept the length: too few for what this tests", joined)
				}
			})
		}
	}
}
