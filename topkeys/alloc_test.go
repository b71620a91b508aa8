//go:build !race

package topkeys_test

import (
	"strconv"
	"testing"

	"github.com/truewindow/ratelimit/topkeys"
)

// TestAllocations: an admission, and a refusal of a key in the list, allocate nothing. A new key
// allocates one copy of itself.
func TestAllocations(t *testing.T) {
	sketch := newSketch(t, &topkeys.Options{Size: 10})
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = "user:" + strconv.Itoa(i)
	}
	admitted := refused("limit", "user")
	admitted.Results[0].Allowed = true
	kept, other := refused("limit", "kept"), refused("limit", "")
	for range 100 {
		sketch.Observe(t.Context(), kept)
	}
	next := 0
	for _, c := range []struct {
		what string
		do   func()
		want float64
	}{
		{"an admission", func() { sketch.Observe(t.Context(), admitted) }, 0},
		{"a key in the list", func() { sketch.Observe(t.Context(), kept) }, 0},
		{"a new key", func() {
			other.Key = keys[next%len(keys)]
			next++
			sketch.Observe(t.Context(), other)
		}, 1},
	} {
		for range 20 {
			c.do()
		}
		if n := testing.AllocsPerRun(500, c.do); n > c.want {
			t.Errorf("%s: %v allocations, want %v", c.what, n, c.want)
		}
	}
}
