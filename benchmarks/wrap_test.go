package main

import (
	"strings"
	"testing"
)

// TestWrapProse: long lines of prose and lists are broken at 100 columns; nothing else changes.
func TestWrapProse(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("wörd ", 30))
	text := "# " + long + "\n\n" + long + "\n- " + long + "\n\n| " + long + " |\nshort\n"
	first := strings.TrimSpace(strings.Repeat("wörd ", 20))
	rest := strings.TrimSpace(strings.Repeat("wörd ", 10))
	item := strings.TrimSpace(strings.Repeat("wörd ", 19))
	want := "# " + long + "\n\n" + first + "\n" + rest + "\n- " + item + "\n  wörd " + rest +
		"\n\n| " + long + " |\nshort\n"
	if got := wrapProse(text); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
