package lograte_test

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/lograte"
)

// TestBurst: after a silence a burst passes, and then one in each time.
func TestBurst(t *testing.T) {
	l := lograte.Limit{Burst: 3}
	at := time.Unix(1_800_000_000, 0)
	for second, want := range []int{3, 1, 1, 1} {
		passed := 0
		for range 10 {
			if ok, _ := l.Pass(at.Add(time.Duration(second) * time.Second)); ok {
				passed++
			}
		}
		if passed != want {
			t.Errorf("in second %d %d passed, want %d", second, passed, want)
		}
	}
}

func TestLimit(t *testing.T) {
	var l lograte.Limit
	at := time.Unix(1_800_000_000, 0)
	for i, step := range []struct {
		after      time.Duration
		ok         bool
		suppressed int
	}{
		{0, true, 0},
		{0, false, 0},
		{time.Second - 1, false, 0},
		{time.Second, true, 2},
		{2 * time.Second, true, 0},
	} {
		if ok, suppressed := l.Pass(at.Add(step.after)); ok != step.ok ||
			suppressed != step.suppressed {
			t.Errorf("step %d: %v, %d; want %v, %d", i, ok, suppressed, step.ok,
				step.suppressed)
		}
	}
}
