package algorithm

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/holdmodel"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// heldKinds are the limits with holds. The model of a log is one by its definition.
var heldKinds = map[string]holdmodel.Kind{
	"log":    heldLog(1),
	"coarse": heldLog(100),
	"fixed": heldKind(func(l driver.Limit) driver.Algorithm {
		return FixedWindow(l).WithOffset(l.Window / 3)
	}),
	"months": heldKind(func(l driver.Limit) driver.Algorithm {
		return Monthly(l.Name, l.Max).WithOffset(-2 * time.Hour)
	}),
	"bucket": heldKind(func(l driver.Limit) driver.Algorithm { return GCRA(l) }),
	"bucket with a debt": heldKind(func(l driver.Limit) driver.Algorithm {
		return GCRA(l).WithDebt(l.Window)
	}),
	"counter":   heldKind(func(l driver.Limit) driver.Algorithm { return SlidingWindowCounter(l) }),
	"in flight": heldInFlight,

	"charged log": charged(heldLog(1), func(l driver.Limit, at int64) int64 {
		return at + l.Window.Microseconds()
	}),
	"charged fixed": charged(heldKind(func(l driver.Limit) driver.Algorithm {
		return FixedWindow(l)
	}), func(l driver.Limit, at int64) int64 {
		window := l.Window.Microseconds()
		return (at/window + 1) * window
	}),
	"charged months": charged(heldKind(func(l driver.Limit) driver.Algorithm {
		return Monthly(l.Name, l.Max).WithDay(31)
	}), func(_ driver.Limit, at int64) int64 {
		year, month, _ := time.UnixMicro(at).UTC().Date()
		end := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC)
		if end.UnixMicro() <= at {
			end = time.Date(year, month+2, 0, 0, 0, 0, 0, time.UTC)
		}
		return end.UnixMicro()
	}),
	"charged bucket": charged(heldKind(func(l driver.Limit) driver.Algorithm { return GCRA(l) }),
		func(l driver.Limit, at int64) int64 { return at + l.Window.Microseconds() }),
}

// charged returns limits that charge what times out.
func charged(
	kind holdmodel.Kind, leaves func(l driver.Limit, at int64) int64,
) holdmodel.Kind {
	return func(l driver.Limit, timeout time.Duration) (driver.Holder, holdmodel.Limit) {
		holder, limit := kind(l, timeout)
		limit.Leaves = func(at int64) int64 { return leaves(limit.Limit, at) }
		h := holder.(Held).ChargeTimeouts()
		_, limit.Windows = h.Inside().(Fixed)
		return h, limit
	}
}

func heldLog(parts time.Duration) holdmodel.Kind {
	return func(l driver.Limit, timeout time.Duration) (driver.Holder, holdmodel.Limit) {
		resolution := time.Microsecond
		if parts > 1 {
			resolution = (l.Window / parts).Truncate(time.Microsecond)
		}
		return Budget(SlidingLog(l).WithResolution(resolution)).WithTimeout(timeout),
			holdmodel.Limit{Inside: holdmodel.Log{Of: l, Resolution: resolution}, Limit: l,
				Timeout: timeout}
	}
}

func heldKind(newAlgorithm func(driver.Limit) driver.Algorithm) holdmodel.Kind {
	return func(l driver.Limit, timeout time.Duration) (driver.Holder, holdmodel.Limit) {
		a := newAlgorithm(l)
		return Budget(a).WithTimeout(timeout),
			holdmodel.Limit{Inside: a, Limit: a.Limit(), Timeout: timeout}
	}
}

func heldInFlight(l driver.Limit, timeout time.Duration) (driver.Holder, holdmodel.Limit) {
	a := InFlight(l.Name, l.Max).WithTimeout(timeout)
	return a, holdmodel.Limit{Limit: a.Limit(), Timeout: timeout}
}

// TestHeldIsModel compares random histories with the model. In those that are calm, what counts in
// a window is never more than Max; in all, never more than Max and what was forced.
func TestHeldIsModel(t *testing.T) {
	for name, kind := range heldKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range depth.Of[uint64](80, 2000) {
				p := holdmodel.NewPlayer(rand.New(rand.NewPCG(seed, 1)), kind,
					1_800_000_000_123_457, 16*time.Millisecond<<(6*(seed%2)))
				p.Calm = seed%4 == 0
				if err := playHeld(p); err != "" {
					t.Fatalf("history %d: %s\n%s", seed, err, strings.Join(p.Trace(), "\n"))
				}
			}
		})
	}
}

func playHeld(p *holdmodel.Player) string {
	var state []byte
	l := holdmodel.NewLedger()
	for range 100 {
		d := p.Next()
		before := p.Key
		want := p.Do(d)
		given := bytes.Clone(state)
		if peeked, keep, res := d.Peek(bytes.Clone(state), p.Now); keep > 0 && res.Allowed {
			if _, _, res := d.Step(peeked, p.Now); !holdmodel.Same(res, want) {
				return "after a peek that wrote, the last demand returned " + holdmodel.Show(res)
			}
		}
		next, keep, got := d.Step(given, p.Now)
		if keep < 0 {
			return "the state is corrupt"
		}
		if !holdmodel.Same(got, want) {
			return "the last demand returned " + holdmodel.Show(got)
		}
		if keep == 0 && !bytes.Equal(given, state) {
			return "the state changed without a write"
		}
		if keep > 0 {
			state = next
		}
		if problem := l.Note(p, before, d, want); problem != "" {
			return problem
		}
	}
	return ""
}

// TestDeadlinesAreFew places holds of one length, and of all lengths from 1/16 to 16 time-outs, as
// often as their deadlines can differ, and counts those that are open at once.
func TestDeadlinesAreFew(t *testing.T) {
	const second = 1_000_000
	for _, timeout := range []int64{16_000, second, 60 * second, 1<<26 - 1000} {
		for _, tt := range []struct{ shortest, longest, most int64 }{
			{timeout, timeout, 17}, {timeout / 16, 16 * timeout, 89},
		} {
			unit := roundedTo(tt.shortest)
			open, most := make(map[int64]bool), 0
			for now := epoch; now < epoch+2*tt.longest; now += unit {
				for length := tt.shortest; length <= tt.longest; length += roundedTo(length) {
					unit := roundedTo(length)
					open[(now+length+unit-1)/unit*unit] = true
				}
				maps.DeleteFunc(open, func(end int64, _ bool) bool { return end <= now })
				most = max(most, len(open))
			}
			if most > int(tt.most) || most < int(tt.most)*7/8 {
				t.Errorf("lengths from %d to %d µs have %d deadlines, want %d or a little less",
					tt.shortest, tt.longest, most, tt.most)
			}
		}
	}
}

// TestTimedOutHoldsAreBounded: a hold is remembered while fewer than 32,768 others have timed out
// after it, and forgotten when twice as many have, so that the state does not grow for ever.
func TestTimedOutHoldsAreBounded(t *testing.T) {
	h, now, id := InFlight("calls", 1<<40).WithTimeout(time.Second), epoch, uint64(0)
	var state []byte
	do := func(op driver.Op, id uint64, n int64) driver.Result {
		d := driver.Demand{Algorithm: h, Op: op, ID: id, N: n}
		next, keep, res := d.Step(state, now)
		if keep > 0 {
			state = next
		}
		return res
	}
	timeOut := func(holds int) {
		for range holds {
			id++
			do(driver.OpHold, id, 1)
		}
		now += 2_000_000
	}
	timeOut(1)
	timeOut(generation - 1)
	peek := driver.Demand{Algorithm: h, Op: driver.OpHold, ID: 1}
	if _, _, res := peek.Step(bytes.Clone(state), now); res.Units != 1 {
		t.Errorf("the first of %d holds is forgotten", generation)
	}
	for range 3 {
		timeOut(generation)
	}
	if _, _, res := peek.Step(bytes.Clone(state), now); res.Units != 0 {
		t.Error("a hold is remembered when 98,304 others have timed out")
	}
	if most := (4*generation + 100) * entrySize; len(state) > most {
		t.Errorf("the state has %d bytes, want at most %d", len(state), most)
	}
}

// TestChargesAreFew: however often the clock is set back, the holds that a month charges have few
// ends. Each step back by more than the time-out moves the end of the month on the clock of holds.
func TestChargesAreFew(t *testing.T) {
	h := Budget(Monthly("m", driver.MaxUnits)).WithTimeout(time.Second).ChargeTimeouts()
	now, state := int64(1_800_000_000_000_000), []byte(nil)
	for id := range uint64(3000) {
		next, keep, res := h.Step(state, now, driver.Demand{Algorithm: h, Op: driver.OpHold, N: 1,
			ID: id + 1})
		var s holds
		if keep <= 0 || !res.Allowed || !s.decode(next) || len(s.sums) > mostExact+17 {
			t.Fatalf("hold %d: keep %v, %+v, %d sums", id, keep, res, len(s.sums))
		}
		state = next
		now -= 2 * time.Second.Microseconds()
	}
}
