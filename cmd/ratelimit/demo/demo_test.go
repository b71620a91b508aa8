package demo

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
)

func TestProgressLine(t *testing.T) {
	r := &recording{limit: ratelimit.Limit{Max: 20, Window: 2 * time.Second}, start: 1_000_000}
	for _, test := range []struct {
		until int64
		want  string
	}{
		{0, "░░░░░░░░░░░░░░░░  0.0s of 10s"},
		{3_500_000, "████░░░░░░░░░░░░  2.5s of 10s"},
		{12_000_000, "████████████████ 11.0s of 10s"},
	} {
		r.until = test.until
		if got := progressLine(r); got != test.want {
			t.Errorf("at %d: %q, want %q", test.until, got, test.want)
		}
	}
}
