package algorithm

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// TestGrowthUsesWholeArrays: a log that grows moves to a new array only when its array is full,
// including all bytes that the allocator handed out for it.
func TestGrowthUsesWholeArrays(t *testing.T) {
	const records = 300
	l := SlidingLog(driver.Limit{Name: "growing", Max: records, Window: time.Hour})
	var state []byte
	arrays := 0
	for i := range int64(records) {
		before := cap(state)
		state, _, _ = l.Step(state, epoch+i, take(1))
		if cap(state) == before {
			continue
		}
		arrays++
		if usable := cap(append([]byte(nil), make([]byte, cap(state))...)); usable != cap(state) {
			t.Errorf("an array of %d bytes is used up to byte %d", usable, cap(state))
		}
	}
	if arrays == 0 || arrays > records/10 {
		t.Errorf("%d arrays for %d records", arrays, records)
	}
}

// TestBurstIsForgotten: a key that is used a little takes, one window after a burst, at most twice
// the memory that it would take without the burst.
func TestBurstIsForgotten(t *testing.T) {
	const window = 60 * second
	for _, limit := range []int64{100, 1000, 10_000} {
		for _, little := range []int64{1, 5, 11, 20, 40, 60, 90} {
			l := SlidingLog(driver.PerMinute("minute", limit))
			var state, fresh []byte
			now := epoch
			for range limit {
				now += 10
				state, _, _ = l.Step(state, now, take(1))
			}
			for range little {
				now += window/little + 1
				state, _, _ = l.Step(state, now, take(1))
				fresh, _, _ = l.Step(fresh, now, take(1))
			}
			if cap(state) > 2*cap(fresh) {
				t.Errorf("limit %d, then %d a window: %d bytes, and %d without the burst",
					limit, little, cap(state), cap(fresh))
			}
		}
	}
}

// TestFilledLogIsSmall: a log that fills for the first time, and has dropped no records yet, takes
// at most 14.5 bytes for each of its records.
func TestFilledLogIsSmall(t *testing.T) {
	const window = 60 * second
	for _, tt := range []struct {
		name       string
		limit      int64
		resolution time.Duration
	}{
		{"coarse", 1000, time.Minute / 100},
		{"100", 100, time.Microsecond},
		{"500", 500, time.Microsecond},
		{"1,000", 1000, time.Microsecond},
		{"3,000", 3000, time.Microsecond},
		{"10,000", 10_000, time.Microsecond},
	} {
		l := SlidingLog(driver.PerMinute("minute", tt.limit)).WithResolution(tt.resolution)
		var state []byte
		for i := range tt.limit {
			state, _, _ = l.Step(state, epoch+i*window/tt.limit, take(1))
		}
		g, _ := decodeLog(state)
		if most := 145 * g.count / 10; cap(state) > most {
			t.Errorf("%s: %d records in %d bytes, want at most %d",
				tt.name, g.count, cap(state), most)
		}
	}
}
