package servers

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTimeAnswer: a call that is late by itself is not excused. Clocks of a bubble are never late.
func TestTimeAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, want := range []time.Duration{0, 50, 100, 101, 300} {
			want *= time.Millisecond
			took := TimeAnswer(100 * time.Millisecond)
			time.Sleep(want)
			if got := took(); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		}
	})
}
