package algorithm_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/conformance"
)

// stepper runs an algorithm on a state of its own.
type stepper struct {
	state []byte
	now   int64
}

// step decides d and checks what every step keeps: that refusals and peeks write nothing unless the
// clock was ahead, and that numbers are in range.
func (s *stepper) step(t testing.TB, a ratelimit.Algorithm, d ratelimit.Demand) ratelimit.Result {
	t.Helper()
	d.Algorithm = a
	before := bytes.Clone(s.state)
	next, keep, res := d.Step(bytes.Clone(s.state), s.now)
	switch {
	case keep < 0:
		t.Fatalf("%v: a state of the algorithm is corrupt: %x", d.Op, before)
	case keep > 0:
		s.state = next
	case !bytes.Equal(next, before):
		t.Fatalf("%v: another state without a keep: %x, was %x", d.Op, next, before)
	}
	if res.Remaining < 0 || res.Remaining > a.Limit().Max || res.RetryAfter < 0 ||
		res.ResetAfter < 0 || res.Allowed != (res.RetryAfter == 0) || keep > 0 && len(next) > 0 &&
		keep < res.ResetAfter {
		t.Fatalf("%v: %+v, keep %v", d.Op, res, keep)
	}
	return res
}

func (s *stepper) take(t testing.TB, a ratelimit.Algorithm, n int64) ratelimit.Result {
	t.Helper()
	return s.step(t, a, ratelimit.Demand{N: n})
}

// TestFixedWindow: what a window admits, and what begins with the next one.
func TestFixedWindow(t *testing.T) {
	a := algorithm.FixedWindow(ratelimit.PerMinute("f", 3))
	at := func(clock string) int64 {
		when, err := time.Parse(time.TimeOnly, clock)
		if err != nil {
			t.Fatal(err)
		}
		return when.AddDate(2026, 0, 0).UnixMicro()
	}
	s := &stepper{}
	for _, tt := range []struct {
		clock            string
		n                int64
		allowed          bool
		remaining        int64
		retry, untilFree time.Duration
	}{
		{"12:00:50", 2, true, 1, 0, 10 * time.Second},
		{"12:00:59", 2, false, 1, time.Second, time.Second},
		{"12:00:59", 1, true, 0, 0, time.Second},
		{"12:01:00", 3, true, 0, 0, time.Minute}, // six within eleven seconds
		{"12:01:30", 1, false, 0, 30 * time.Second, 30 * time.Second},
		{"12:00:59", 1, false, 0, 61 * time.Second, 61 * time.Second}, // a small step back
		{"11:59:00", 1, false, 0, time.Minute, time.Minute},           // a large one
		{"12:00:00", 1, true, 2, 0, time.Minute},
	} {
		s.now = at(tt.clock)
		res := s.take(t, a, tt.n)
		if res.Allowed != tt.allowed || res.Remaining != tt.remaining ||
			res.RetryAfter != tt.retry || res.ResetAfter != tt.untilFree {
			t.Errorf("%s, %d units: %+v, want %+v", tt.clock, tt.n, res, tt)
		}
	}
}

// TestFixedWindowOffset: windows begin at the offset.
func TestFixedWindowOffset(t *testing.T) {
	day := algorithm.FixedWindow(ratelimit.PerDay("f", 1)).WithOffset(5 * time.Hour)
	s := &stepper{now: time.Date(2026, 11, 23, 4, 0, 0, 0, time.UTC).UnixMicro()}
	if res := s.take(t, day, 1); !res.Allowed || res.ResetAfter != time.Hour {
		t.Errorf("at 04:00: %+v", res)
	}
	s.now += time.Hour.Microseconds()
	if res := s.take(t, day, 1); !res.Allowed || res.ResetAfter != 24*time.Hour {
		t.Errorf("at 05:00: %+v", res)
	}
	s = &stepper{now: 1} // before the first window that begins after the epoch
	if res := s.take(t, day, 1); !res.Allowed || res.ResetAfter != 5*time.Hour-time.Microsecond {
		t.Errorf("in 1970: %+v", res)
	}
}

func TestFixedWindowInvalid(t *testing.T) {
	day := ratelimit.PerDay("f", 1)
	for name, a := range map[string]algorithm.Fixed{
		"no limit":          {},
		"a negative offset": algorithm.FixedWindow(day).WithOffset(-1),
		"a whole window":    algorithm.FixedWindow(day).WithOffset(24 * time.Hour),
	} {
		if err := a.Validate(); !errors.Is(err, ratelimit.ErrInvalidLimit) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFixedWindowGivesBack: units go back to their window, not more than were taken, and not after
// its end.
func TestFixedWindowGivesBack(t *testing.T) {
	a := algorithm.FixedWindow(ratelimit.PerMinute("f", 5))
	s := &stepper{now: 90_000_000}
	first := s.take(t, a, 3)
	s.now += 20_000_000
	s.take(t, a, 1)
	back := ratelimit.Demand{Op: ratelimit.OpGiveBack, N: 2, At: first.At}
	if res := s.step(t, a, back); res.Remaining != 3 {
		t.Errorf("two of four given back: %+v", res)
	}
	back.N = 100
	if res := s.step(t, a, back); res.Remaining != 5 {
		t.Errorf("more than there are: %+v", res)
	}
	s.now = 120_000_000 // the next window
	s.take(t, a, 5)
	if res := s.step(t, a, back); res.Remaining != 0 {
		t.Errorf("after the window: %+v", res)
	}
}

// TestFixedWindowRetryAfter: after RetryAfter the demand is admitted, and one microsecond sooner it
// is not, whatever the history, with limits that change and a clock that steps.
func TestFixedWindowRetryAfter(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	refusals := 0
	for range 300 {
		s := &stepper{now: 1e15}
		for range 100 {
			window := time.Duration(1+random.Int64N(50)) * time.Second
			a := algorithm.FixedWindow(ratelimit.Limit{Name: "f", Max: 1 + random.Int64N(9),
				Window: window}).WithOffset(time.Duration(random.Int64N(int64(window))))
			s.now += random.Int64N(40_000_000) - 10_000_000
			op := [...]ratelimit.Op{ratelimit.OpTake, ratelimit.OpTake, ratelimit.OpTake,
				ratelimit.OpForce}[random.IntN(4)]
			n := 1 + random.Int64N(a.Limit().Max)
			res := s.step(t, a, ratelimit.Demand{Op: op, N: n})
			if res.Allowed {
				continue
			}
			refusals++
			then := *s
			then.now += res.RetryAfter.Microseconds()
			if !then.step(t, a, ratelimit.Demand{Op: ratelimit.OpPeek, N: n}).Allowed {
				t.Fatalf("refused after RetryAfter of %v", res.RetryAfter)
			}
			then.now--
			if then.step(t, a, ratelimit.Demand{Op: ratelimit.OpPeek, N: n}).Allowed {
				t.Fatalf("admitted before RetryAfter of %v", res.RetryAfter)
			}
			if res.RetryAfter > 2*window {
				t.Fatalf("RetryAfter %v is more than two windows of %v", res.RetryAfter, window)
			}
		}
	}
	if refusals < 1000 {
		t.Errorf("only %d refusals", refusals)
	}
}

// TestFixedWindowWorst: two Max are admitted around the end of a window, and never more in any
// rolling window.
func TestFixedWindowWorst(t *testing.T) {
	const limit = 10
	a := algorithm.FixedWindow(ratelimit.PerSecond("f", limit))
	random := rand.New(rand.NewPCG(3, 4))
	s := &stepper{now: 1e15}
	var admitted []int64
	for range 20_000 {
		if random.IntN(10) == 0 { // to the end of the window
			s.now += 999_999 - s.now%1_000_000
		}
		for range random.IntN(15) {
			if s.take(t, a, 1).Allowed {
				admitted = append(admitted, s.now)
			}
		}
		s.now += random.Int64N(300_000)
	}
	most := 0
	for first, last := 0, 0; last < len(admitted); last++ {
		for admitted[last]-admitted[first] >= 1_000_000 {
			first++
		}
		most = max(most, last-first+1)
	}
	if most != 2*limit {
		t.Errorf("the fullest window holds %d, want %d", most, 2*limit)
	}
}

// FuzzFixedWindow: whatever the state, a step does not panic, and returns numbers in range.
func FuzzFixedWindow(f *testing.F) {
	f.Add(make([]byte, 32), int64(1e15), int64(5), uint8(0), int64(60), int64(3))
	s := &stepper{now: 1e15}
	s.take(f, algorithm.FixedWindow(ratelimit.PerMinute("f", 5)), 2)
	f.Add(s.state, int64(1e15), int64(5), uint8(3), int64(60), int64(3))
	f.Fuzz(func(t *testing.T, state []byte, now, n int64, op uint8, window, most int64) {
		now = max(0, now) % (1 << 52)
		a := algorithm.FixedWindow(ratelimit.Limit{Name: "f", Max: 1 + max(0, most)%(1<<40),
			Window: time.Millisecond + time.Duration(max(0, window)%int64(ratelimit.MaxWindow))})
		d := ratelimit.Demand{Algorithm: a, Op: ratelimit.Op(op % 5), N: 1 + max(0, n)%(1<<40),
			At: now}
		next, keep, res := d.Step(bytes.Clone(state), now)
		if keep < 0 {
			return
		}
		if keep == 0 && !bytes.Equal(next, state) {
			t.Fatalf("another state without a keep")
		}
		if res.Remaining < 0 || res.Remaining > a.Limit().Max || res.RetryAfter < 0 ||
			res.ResetAfter < 0 || res.Allowed != (res.RetryAfter == 0) {
			t.Fatalf("%+v", res)
		}
		if keep > 0 && len(next) > 0 {
			if _, again, _ := d.Step(bytes.Clone(next), now); again < 0 {
				t.Fatalf("it does not read its own state %x", next)
			}
		}
	})
}

// TestFixedWindowOnMemory runs the public suite.
func TestFixedWindowOnMemory(t *testing.T) {
	conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
		store, err := memorystore.New(&memorystore.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		return conformance.Harness{Store: store}
	}, &conformance.Options{
		Algorithms: []func(ratelimit.Limit) ratelimit.Algorithm{
			func(l ratelimit.Limit) ratelimit.Algorithm { return algorithm.SlidingLog(l) },
			func(l ratelimit.Limit) ratelimit.Algorithm { return algorithm.FixedWindow(l) },
		},
		Except: map[string]string{
			"window":                  "a fixed window lets two Max into one rolling Window",
			"clock/back-up-to-window": "it looks into a rolling Window",
		},
	})
}

func BenchmarkFixedWindow(b *testing.B) {
	d := ratelimit.Demand{N: 1, Algorithm: algorithm.FixedWindow(ratelimit.PerSecond("f", 1000))}
	var state []byte
	now := int64(1e15)
	b.ReportAllocs()
	for b.Loop() {
		now += 100
		if next, keep, _ := d.Step(state, now); keep > 0 {
			state = next
		}
	}
}
