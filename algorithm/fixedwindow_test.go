package algorithm_test

import (
	"errors"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// TestFixedWindow: a window admits up to Max, and the next one begins anew.
func TestFixedWindow(t *testing.T) {
	a := algorithm.FixedWindow(driver.PerMinute("f", 3))
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
	day := algorithm.FixedWindow(driver.PerDay("f", 1)).WithOffset(5 * time.Hour)
	s := &stepper{now: time.Date(2026, 11, 23, 4, 0, 0, 0, time.UTC).UnixMicro()}
	if res := s.take(t, day, 1); !res.Allowed || res.ResetAfter != time.Hour {
		t.Errorf("at 04:00: %+v", res)
	}
	s.now += time.Hour.Microseconds()
	if res := s.take(t, day, 1); !res.Allowed || res.ResetAfter != 24*time.Hour {
		t.Errorf("at 05:00: %+v", res)
	}
	early := algorithm.FixedWindow(driver.PerDay("f", 1)).WithOffset(-2 * time.Hour)
	s = &stepper{now: time.Date(2026, 11, 23, 21, 0, 0, 0, time.UTC).UnixMicro()}
	if res := s.take(t, early, 1); !res.Allowed || res.ResetAfter != time.Hour {
		t.Errorf("at 21:00: %+v", res)
	}
	s = &stepper{now: 1} // before the first window that begins after the epoch
	if res := s.take(t, day, 1); !res.Allowed || res.ResetAfter != 5*time.Hour-time.Microsecond {
		t.Errorf("in 1970: %+v", res)
	}
	if res := s.take(t, day, 1); res.Allowed || res.RetryAfter != 5*time.Hour-time.Microsecond {
		t.Errorf("again in 1970: %+v", res)
	}
}

// TestFixedWindowOffsetChanged: what is counted stays counted in the window that has most of it.
func TestFixedWindowOffsetChanged(t *testing.T) {
	march := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		a             algorithm.Fixed
		at            time.Time
		before, after time.Duration // offsets
		refused       time.Duration
	}{
		"days, later": {algorithm.FixedWindow(driver.PerDay("f", 1)), march.Add(20 * time.Hour),
			0, 5 * time.Hour, 4 * time.Hour},
		"days, earlier": {algorithm.FixedWindow(driver.PerDay("f", 1)), march.Add(20 * time.Hour),
			0, -2 * time.Hour, 2 * time.Hour},
		"months, later": {algorithm.Monthly("f", 1), march.AddDate(0, 0, 20),
			0, 5 * time.Hour, 11 * 24 * time.Hour},
		"months, earlier": {algorithm.Monthly("f", 1), march.AddDate(0, 0, 20),
			0, -2 * time.Hour, 11*24*time.Hour - 2*time.Hour},
		"months, from the first to the last instant": {algorithm.Monthly("f", 1), march,
			-24 * time.Hour, 24 * time.Hour, 30 * 24 * time.Hour},
	} {
		s := &stepper{now: tt.at.UnixMicro()}
		s.take(t, tt.a.WithOffset(tt.before), 1)
		res := s.take(t, tt.a.WithOffset(tt.after), 1)
		if res.Allowed || res.RetryAfter != tt.refused || res.ResetAfter != tt.refused {
			t.Errorf("%s: %+v, want it refused for %v", name, res, tt.refused)
		}
		s.wantExactRetry(t, tt.a.WithOffset(tt.after), 1, res)
	}
}

func TestFixedWindowInvalid(t *testing.T) {
	day := driver.PerDay("f", 1)
	for name, a := range map[string]algorithm.Fixed{
		"no limit":               {},
		"a whole window":         algorithm.FixedWindow(day).WithOffset(24 * time.Hour),
		"a whole window earlier": algorithm.FixedWindow(day).WithOffset(-24 * time.Hour),
		"months without units":   algorithm.Monthly("f", 0),
		"months with a space":    algorithm.Monthly("f f", 1),
		"a whole month":          algorithm.Monthly("f", 1).WithOffset(31 * 24 * time.Hour),
		"a whole month earlier":  algorithm.Monthly("f", 1).WithOffset(-31 * 24 * time.Hour),
	} {
		if err := a.Validate(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, a := range []algorithm.Fixed{algorithm.FixedWindow(day), algorithm.Monthly("f", 1)} {
		for _, sign := range []time.Duration{-1, 1} {
			offset := sign * (a.Limit().Window - time.Microsecond)
			if err := a.WithOffset(offset).Validate(); err != nil {
				t.Errorf("%s with an offset of %v: %v", a.Name(), offset, err)
			}
		}
	}
}

// TestFixedWindowShortened: units of a longer window count until the end of the window of the new
// length that contains the time half of the new length after its begin.
func TestFixedWindowShortened(t *testing.T) {
	const minute = int64(time.Minute / time.Microsecond)
	hour, seven := driver.PerHour("f", 5), driver.Limit{Name: "f", Max: 5, Window: 7 * time.Minute}
	counts := make(map[int64]bool)
	for h := range int64(20) {
		begin := (470_000 + h) * 60 * minute
		state, _, _ := algorithm.FixedWindow(hour).Step(nil, begin, driver.Demand{N: 1})
		_, _, res := algorithm.FixedWindow(seven).Step(state, begin,
			driver.Demand{Op: driver.OpPeek, N: 1})
		want := (begin+minute*7/2)/(7*minute)*7*minute + 7*minute - begin
		want = min(want, 7*minute)
		if got := res.ResetAfter.Microseconds(); got != want {
			t.Errorf("hour %d: the unit counts for %d µs, want %d", h, got, want)
		}
		counts[want] = true
	}
	if len(counts) < 3 {
		t.Errorf("it counts for %v: this test proves nothing", counts)
	}
}
