package main

import (
	"strings"
	"unicode/utf8"
)

const pageColumns = 100

// wrapProse breaks lines of Markdown prose and lists that are longer than pageColumns. Tables and
// headings do not change.
func wrapProse(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "|") || strings.HasPrefix(line, "#") ||
			utf8.RuneCountInString(line) <= pageColumns+len("\n") {
			b.WriteString(line)
			continue
		}
		indent := ""
		if strings.HasPrefix(line, "- ") {
			indent = "  "
		}
		columns := 0
		for i, word := range strings.Fields(line) {
			n := utf8.RuneCountInString(word)
			switch {
			case i == 0:
			case columns+1+n > pageColumns:
				b.WriteString("\n" + indent)
				columns = len(indent)
			default:
				b.WriteString(" ")
				columns++
			}
			b.WriteString(word)
			columns += n
		}
		b.WriteString("\n")
	}
	return b.String()
}
