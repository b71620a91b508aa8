package lograte_test

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/lograte"
)

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
