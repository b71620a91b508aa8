package keyspace

import "testing"

func TestSlot(t *testing.T) {
	// What CLUSTER KEYSLOT answers.
	for key, want := range map[string]int{
		"":                    0,
		"123456789":           12739,
		"foo":                 12182,
		"foo{bar}{zap}":       5061,
		"bar":                 5061,
		"foo{}{bar}":          8363,
		"foo{{bar}}zap":       4015,
		"{bar":                4015,
		"x}{bar}":             5061,
		"rl:{=user:42}:1m0s:": Slot("=user:42"),
	} {
		if got := Slot(key); got != want {
			t.Errorf("Slot(%q) = %d, want %d", key, got, want)
		}
	}
}

func TestOneSlot(t *testing.T) {
	for _, tt := range []struct {
		keys []string
		want bool
	}{
		{nil, true},
		{[]string{"foo"}, true},
		{[]string{"foo", "{foo}1", "2{foo}"}, true},
		{[]string{"foo", "{foo}1", "bar"}, false},
	} {
		if got := OneSlot(tt.keys); got != tt.want {
			t.Errorf("OneSlot(%q) = %t", tt.keys, got)
		}
	}
}
