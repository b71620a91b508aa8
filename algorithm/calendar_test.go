package algorithm_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

const days = 24 * time.Hour

// offsets are offsets of windows of weeks, months and quarters.
var offsets = []time.Duration{0, time.Microsecond, -2 * time.Hour, 5*time.Hour + 30*time.Minute,
	-24 * time.Hour, 24 * time.Hour, 7*days - time.Microsecond, -6 * days}

// TestCalendar: what is taken in a week, a month or a quarter counts until its end, from 1970 to
// 2112. A calendar that counts days, and not package time, says when that is.
func TestCalendar(t *testing.T) {
	for weekday := time.Sunday; weekday <= time.Saturday; weekday++ {
		testCalendar(t, algorithm.Weekly("w", 5, weekday), func(_, _, _ int, count int) bool {
			return (count+4)%7 == int(weekday) // 1 January 1970 was a Thursday
		})
	}
	for day := 1; day <= 31; day++ {
		if !depth.Full && day > 2 && day < 28 {
			continue
		}
		begins := func(year, month, d, _ int) bool {
			return d == min(day, lengthOf(year, time.Month(month)))
		}
		testCalendar(t, algorithm.Monthly("m", 5).WithDay(day), begins)
		testCalendar(t, algorithm.Quarterly("q", 5).WithDay(day), func(y, m, d, n int) bool {
			return m%3 == 1 && begins(y, m, d, n)
		})
	}
}

// testCalendar tries a on the days around the ends of its windows, in a full run on all days.
// begins reports whether a window begins on a day, which is also counted from 1 January 1970.
func testCalendar(
	t *testing.T, a algorithm.Fixed, begins func(year, month, day, count int) bool,
) {
	t.Helper()
	used := offsets
	if !depth.Full {
		used = []time.Duration{0, offsets[rand.IntN(len(offsets))]}
	}
	var window []int64 // the days of the window, from the day on which it begins
	windows := 0
	tryWindow := func(end int64) {
		windows++
		for i, day := range window {
			if !depth.Full && i > 0 && i < len(window)-4 {
				continue
			}
			for _, offset := range used {
				tryDay(t, a.WithOffset(offset), day, end, offset)
			}
		}
	}
	count := int64(0)
	for year := 1970; year < 2112; year++ {
		for month := 1; month <= 12; month++ {
			for day := range lengthOf(year, time.Month(month)) {
				if begins(year, month, day+1, int(count)) {
					if windows > 0 {
						tryWindow(count)
					} else {
						windows = 1 // the first one begins before the epoch
					}
					window = window[:0]
				}
				window = append(window, count)
				count++
			}
		}
	}
	if windows < 4*141 {
		t.Fatalf("%d windows: this test proves nothing", windows)
	}
}

// tryDay takes units in the first and the last microsecond of a day of the window that ends with
// another day. Both count from the epoch.
func tryDay(t *testing.T, a algorithm.Fixed, day, end int64, offset time.Duration) {
	t.Helper()
	for _, after := range []time.Duration{0, days - time.Microsecond} {
		at := time.Duration(day)*days + after
		s := &stepper{now: (at + offset).Microseconds()}
		if s.now < 0 {
			continue
		}
		want := time.Duration(end)*days - at
		if res := s.take(t, a, 2); !res.Allowed || res.ResetAfter != want {
			t.Fatalf("%v at %v: %+v, want a ResetAfter of %v", a, time.UnixMicro(s.now).UTC(), res,
				want)
		} else if res := s.take(t, a, 4); res.Allowed || res.RetryAfter != want {
			t.Fatalf("%v at %v: %+v, want a RetryAfter of %v", a, time.UnixMicro(s.now).UTC(), res,
				want)
		}
	}
}

// lengthOf returns the number of days of a month.
func lengthOf(year int, month time.Month) int {
	switch month {
	case time.February:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case time.April, time.June, time.September, time.November:
		return 30
	}
	return 31
}

// TestDayOfWindow: only months and quarters have a day, from 1 to 31.
func TestDayOfWindow(t *testing.T) {
	for _, a := range []algorithm.Fixed{
		algorithm.Monthly("m", 1), algorithm.Quarterly("m", 1).WithDay(31),
	} {
		if err := a.Validate(); err != nil {
			t.Error(err)
		}
	}
	for _, a := range []algorithm.Fixed{
		algorithm.Monthly("m", 1).WithDay(0), algorithm.Monthly("m", 1).WithDay(-1),
		algorithm.Quarterly("m", 1).WithDay(32), algorithm.Weekly("w", 1, time.Monday).WithDay(1),
		algorithm.FixedWindow(driver.PerDay("d", 1)).WithDay(2),
	} {
		if err := a.Validate(); err == nil {
			t.Errorf("%v is valid", a)
		}
	}
}

// TestOtherDay: after a change of the day, what a window has counted counts in the window that
// contains its middle.
func TestOtherDay(t *testing.T) {
	s := &stepper{now: time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC).UnixMicro()}
	a := algorithm.Monthly("m", 5)
	s.take(t, a, 2)
	for day, ends := range map[int]string{10: "2026-12-01", 20: "2026-11-20", 31: "2026-11-30"} {
		at, _ := time.Parse(time.DateOnly, ends)
		res := s.step(t, a.WithDay(day), driver.Demand{N: 1, Op: driver.OpPeek})
		want := at.Sub(time.UnixMicro(s.now))
		if res.Remaining != 3 || res.ResetAfter != want {
			t.Errorf("from day %d: %+v, want 3 left and a ResetAfter of %v", day, res, want)
		}
	}
}
