package rules

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestKey(t *testing.T) {
	long := strings.Repeat("x", 513)
	tests := []struct {
		values []string
		want   string
	}{
		{nil, "%*"},
		{[]string{""}, "%"},
		{[]string{"user:42"}, "user:42"},
		{[]string{"a/b"}, "a%2Fb"},
		{[]string{"100%"}, "100%25"},
		{[]string{"%"}, "%25"},
		{[]string{"%*"}, "%25*"},
		{[]string{"a", "b", ""}, "a/b/%"},
		{[]string{"", ""}, "%/%"},
		{[]string{long[:512]}, long[:512]},
		{[]string{"é\uFFFD"}, "é\uFFFD"},
		{[]string{"caf\xe9"}, "caf%E9"},
		{[]string{"é/\uFFFD", "\xff\xe2\x82x"}, "é%2F\uFFFD/%FF%E2%82x"},
	}
	for _, test := range tests {
		if got := Key(test.values...); got != test.want {
			t.Errorf("Key(%q) = %q, want %q", test.values, got, test.want)
		}
	}
	// The first value decides what is before the first slash, whatever follows.
	first, _, _ := strings.Cut(Key(long, "a"), "/")
	for _, values := range [][]string{{long}, {long, long}, {long, ""}} {
		key := Key(values...)
		if tag, _, _ := strings.Cut(key, "/"); tag != first || len(tag) != 66 {
			t.Errorf("the first part of %q is not %q", key, first)
		}
	}
	if key := Key("a", long[:300], long[:300]); len(key) != 68 || key[:4] != "a/%#" {
		t.Errorf("a long key is %q", key)
	}
}

func TestKeysAreUnambiguous(t *testing.T) {
	bytes := rapid.SliceOfN(rapid.SampledFrom([]string{"%", "F", "E9", "\xff", "\xe9", "\xa9",
		"\xc3", "\uFFFD"}), 0, 4)
	value := rapid.OneOf(rapid.StringMatching(`[%/*#a25F]{0,4}`),
		rapid.Map(bytes, func(all []string) string { return strings.Join(all, "") }),
		rapid.Map(rapid.IntRange(510, 514), func(n int) string { return strings.Repeat("x", n) }))
	values := rapid.SliceOfN(value, 0, 3)
	rapid.Check(t, func(t *rapid.T) {
		a, b := values.Draw(t, "a"), values.Draw(t, "b")
		if rapid.Bool().Draw(t, "near") && len(a) > 0 {
			b = strings.Split(Key(a...), "/") // what an escape could be confused with
		}
		one, other := Key(a...), Key(b...)
		if one == "" || len(one) > MaxKey || !utf8.ValidString(one) {
			t.Fatalf("Key(%q) = %q", a, one)
		}
		if (one == other) != slices.Equal(a, b) {
			t.Fatalf("Key(%q) = %q, Key(%q) = %q", a, one, b, other)
		}
	})
}

// TestValuesOfKey: a key has the values of which it was made, apart from those that are hashed, and
// any other text is one value.
func TestValuesOfKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.OneOf(rapid.StringMatching(`[a/%*#]{0,5}`),
			rapid.String(), rapid.StringN(600, 600, -1)), 1, 4).Draw(t, "values")
		got, known := valuesOf(Key(values...), len(values))
		for i, value := range values {
			hashed := values[1:]
			if i == 0 {
				hashed = values[:1]
			}
			short := len(strings.Join(hashed, "")) < 100
			if known[i] && got[i] != value || short && !known[i] {
				t.Fatalf("value %d of %.20q is %.20q, %v", i, values, got[i], known[i])
			}
		}
	})
	for _, key := range []string{"a/b", "100%", "%zz", "/", "a/", "%61", "%2f"} {
		if got, known := valuesOf(key, 1); !known[0] || got[0] != key {
			t.Errorf("%q: %q %v", key, got, known)
		}
		if _, known := valuesOf(key, 3); slices.Contains(known, true) {
			t.Errorf("%q has values of three entries: %v", key, known)
		}
	}
}
