package edge_test

import (
	"math"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/edge"
)

// TestJitter: each number of units from the wait to the longest is told about as often as another,
// and nothing else.
func TestJitter(t *testing.T) {
	for _, tt := range []struct {
		wait, unit        time.Duration
		share             float64
		shortest, longest time.Duration
	}{
		{time.Nanosecond, time.Second, 0.1, time.Second, 2 * time.Second},
		{time.Second, time.Second, 0.1, time.Second, 2 * time.Second},
		{time.Second + 1, time.Second, 1, 2 * time.Second, 4 * time.Second},
		{time.Minute, time.Second, 0.1, time.Minute, 66 * time.Second},
		{time.Minute - 1, time.Second, 0.11, time.Minute, 67 * time.Second},
		{7 * time.Millisecond, time.Millisecond, 0.5, 7 * time.Millisecond, 11 * time.Millisecond},
	} {
		const each = 1000
		told := make(map[time.Duration]int)
		values := int((tt.longest-tt.shortest)/tt.unit) + 1
		for range each * values {
			told[edge.Jitter(tt.wait, tt.unit, tt.share)]++
		}
		for d := tt.shortest; d <= tt.longest; d += tt.unit {
			if n := told[d]; n < each*3/4 || n > each*5/4 { // 7 standard deviations and more
				t.Errorf("%v, %v: %v was told %d times, want about %d",
					tt.wait, tt.share, d, n, each)
			}
			delete(told, d)
		}
		if len(told) > 0 {
			t.Errorf("%v, %v: told %v too", tt.wait, tt.share, told)
		}
	}
	for _, wait := range []time.Duration{0, 1, time.Minute - 1, math.MaxInt64} {
		if got := edge.Jitter(wait, time.Second, 0); got != wait {
			t.Errorf("%v without jitter: %v", wait, got)
		}
	}
	const long = math.MaxInt64 / 4
	for _, wait := range []time.Duration{long - 1, long, long + 1, math.MaxInt64} {
		if got := edge.Jitter(wait, time.Second, 1); got < wait {
			t.Errorf("%v: %v", wait, got)
		}
	}
}

func TestValidJitter(t *testing.T) {
	for share, want := range map[float64]bool{0: true, 0.1: true, 1: true, -0.1: false, 1.1: false,
		math.NaN(): false, math.Inf(1): false} {
		if got := edge.ValidJitter(share); got != want {
			t.Errorf("%v: %v", share, got)
		}
	}
}
