package terminal

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// hidden reports whether a terminal may interpret r, or show nothing for it.
func hidden(r rune) bool { return !strconv.IsPrint(r) }

// Value returns a text of someone else for a place in a line: quoted as in Go if it has characters
// that a terminal might interpret.
func Value(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, hidden) {
		return s
	}
	return strconv.Quote(s)
}

// Line returns a sentence that may have such characters in one line, with their escapes.
func Line(s string) string { return escape(s, "") }

// Lines is Line for a text of several lines.
func Lines(s string) string { return escape(s, "\n") }

func escape(s, kept string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return hidden(r) && !strings.ContainsRune(kept, r)
	}) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		invalid := r == utf8.RuneError && size == 1
		if !invalid && (!hidden(r) || strings.ContainsRune(kept, r)) {
			b.WriteString(s[:size])
		} else {
			quoted := strconv.Quote(s[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[size:]
	}
	return b.String()
}
