package topkeys_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/truewindow/ratelimit/topkeys"
)

// BenchmarkObserve measures what an observation costs the caller: of an admission, of a refusal of
// a key in the list, and of a refusal of a key that is not in the list.
func BenchmarkObserve(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		for _, c := range []struct {
			name    string
			keys    int
			allowed bool
		}{{"admitted", 1, true}, {"refused", size, false}, {"new", 10 * size, false}} {
			b.Run(fmt.Sprintf("size=%d/%s", size, c.name), func(b *testing.B) {
				sketch := newSketch(b, &topkeys.Options{Size: size})
				keys := make([]string, c.keys)
				for i := range keys {
					keys[i] = "user:" + strconv.Itoa(1_000_000+i)
				}
				o := refused("limit", "")
				o.Results[0].Allowed = c.allowed
				ctx := b.Context()
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					o.Key = keys[i%len(keys)]
					i++
					sketch.Observe(ctx, o)
				}
			})
		}
	}
	b.Run("parallel", func(b *testing.B) {
		sketch := newSketch(b, nil)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			o := refused("limit", "user:1000000")
			for pb.Next() {
				sketch.Observe(b.Context(), o)
			}
		})
	})
}

// BenchmarkTop measures the list.
func BenchmarkTop(b *testing.B) {
	sketch := newSketch(b, nil)
	for i := range topkeys.DefaultSize {
		sketch.Observe(b.Context(), refused("limit", strconv.Itoa(i)))
	}
	b.ReportAllocs()
	for b.Loop() {
		sketch.Top()
	}
}
