package replay

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

func TestWidths(t *testing.T) {
	for i, w := range widths[1:] {
		if w%widths[i] != 0 {
			t.Errorf("%d is no multiple of %d", w, widths[i])
		}
	}
	if maxInstant/widths[len(widths)-1] > 1 {
		t.Error("two intervals may not be enough for all times")
	}
}

// TestTimeline compares with counts by intervals of the width that was found.
func TestTimeline(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 4))
		step := widths[r.IntN(len(widths)-8)]
		at := r.Int64N(1e15)
		l := timeline{series: make([][]int64, 2)}
		l.begin(at)
		var events [2][]int64
		for range 1 + r.IntN(3000) {
			at = min(at+r.Int64N(2*step), maxInstant-1)
			l.advance(at)
			series := r.IntN(2)
			l.count(series)
			events[series] = append(events[series], at)
		}
		for _, c := range []timeline{l, l.atMost(64), l.atMost(2)} {
			w := widths[c.width]
			for i, series := range c.series {
				want := make([]int64, len(series))
				for _, at := range events[i] {
					want[(at-c.from)/w]++
				}
				if !reflect.DeepEqual(series, want) || c.from%w != 0 {
					t.Fatalf("seed %d, width %d from %d:\ngot  %v\nwant %v",
						seed, w, c.from, series, want)
				}
			}
			if c.end != c.from+int64(len(c.series[0]))*w {
				t.Errorf("seed %d: it ends at %d", seed, c.end)
			}
		}
		if len(l.series[0]) > maxIntervals || len(l.atMost(64).series[0]) > 64 {
			t.Errorf("%d intervals", len(l.series[0]))
		}
	}
}
