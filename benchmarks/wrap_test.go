package main

import (
	"strings"
	"testing"
)

// TestWrapProse: prose and lists have at most 100 columns, and nothing else changes.
func TestWrapProse(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("wörd ", 30))
	text := "# " + long + "\n\n" + long + "\n- " + long + "\n\n| " + long + " |\nshort\n"
	first := strings.TrimSpace(strings.Repeat("wörd ", 20))
	rest := strings.TrimSpace(strings.Repeat("wörd ", 10))
	item := strings.TrimSpace(strings.Repeat("wörd ", 19))
	want := "# " + long + "\n\n" + first + "\n" + rest + "\n- " + item + "\n  wörd " + rest +
		"\n\n| " + long + " |\nshort\n"
	if got := wrapProse(text); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
