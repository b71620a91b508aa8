package demo

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
)

// TestSeries compares with a count of every window.
func TestSeries(t *testing.T) {
	if got := new(series).most(time.Second); got != 0 {
		t.Errorf("%d without an admission", got)
	}
	for range 200 {
		var s series
		for range 1 + rand.IntN(30) {
			s.add(attempt{at: rand.Int64N(100), admitted: rand.IntN(4) > 0})
		}
		window, units := 1+rand.Int64N(40), 1+rand.Int64N(5)
		from, to := rand.Int64N(100), rand.Int64N(100)
		from, to = min(from, to), max(from, to)+1
		most, mostIn, wrong := 0, 0, 0
		for end := range int64(100) {
			n, refused := 0, 0
			for _, a := range s.attempts {
				if a.admitted && end-window < a.at && a.at <= end {
					n++
				} else if !a.admitted && a.at == end {
					refused++
				}
			}
			most = max(most, n)
			if from <= end && end < to {
				mostIn = max(mostIn, n)
			}
			if n < int(units) {
				wrong += refused
			}
		}
		w := time.Duration(window) * time.Microsecond
		if got := s.most(w); got != most {
			t.Errorf("most %d, want %d: %v, window %d", got, most, s.admitted, window)
		}
		if got := s.mostIn(from, to, w); got != mostIn {
			t.Errorf("most in [%d, %d) %d, want %d: %v, window %d",
				from, to, got, mostIn, s.admitted, window)
		}
		if got := s.wrong(ratelimit.Limit{Max: units, Window: w}); got != wrong {
			t.Errorf("%d refused wrongly, want %d: %v, window %d, at most %d",
				got, wrong, s.attempts, window, units)
		}
	}
}

func TestCheckExact(t *testing.T) {
	r := newRecording(ratelimit.PerSecond("second", 2))
	exact := &r.series[3]
	for _, at := range []int64{0, 999_999, 1_000_000} {
		exact.add(attempt{at: at, admitted: true})
		if err := r.check(); err != nil {
			t.Errorf("after %d: %v", at, err)
		}
	}
	exact.add(attempt{at: 1_999_998, admitted: true})
	if err := r.check(); err == nil ||
		!strings.Contains(err.Error(), "admitted 3 units within 1s") {
		t.Errorf("three in a window: %v", err)
	}
}
