package longkey

import (
	"strings"
	"testing"
)

// TestShorten: keys stay apart, also from the hashes of others, and none is longer than a hash.
func TestShorten(t *testing.T) {
	from := make(map[string]string)
	for _, n := range []int{0, 1, Max - 1, Max, Max + 1, Max + 2, 64 << 10} {
		for _, last := range []string{"a", "b"} {
			key := strings.Repeat("k", n) + last
			for _, key := range []string{key, Shorten(key), Shorten(key)[1:]} {
				short := Shorten(key)
				if before, ok := from[short]; ok && before != key || len(short) > Max+1 {
					t.Errorf("a key of %d bytes and one of %d are %q", len(before), len(key), short)
				}
				if len(key) <= Max && short != key {
					t.Errorf("%q is %q", key, short)
				}
				from[short] = key
			}
		}
	}
}
