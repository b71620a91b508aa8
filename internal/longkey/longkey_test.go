package longkey

import (
	"strings"
	"testing"
)

// TestShorten: different keys stay different, even from the hashes of others, and none is longer
// than a hash.
func TestShorten(t *testing.T) {
	from := make(map[string]string)
	for _, n := range []int{0, 1, Max - 1, Max, Max + 1, Max + 2, 64 << 10} {
		for _, last := range []string{"a", "b"} {
			key := strings.Repeat("k", n) + last
			for _, key := range []string{key, Shorten(key), Shorten(key)[1:]} {
				short := Shorten(key)
				if before, ok := from[short]; ok && before != key || len(short) > Max+1 {
					t.Errorf("keys of %d and %d bytes both became %q, want different short ones",
						len(before), len(key), short)
				}
				if len(key) <= Max && short != key {
					t.Errorf("Shorten(%q) = %q, want it unchanged", key, short)
				}
				from[short] = key
			}
		}
	}
}
