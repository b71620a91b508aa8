// Package luaconst puts the values of constants, and files, into the text of Lua programs, so that
// neither costs anything when a program runs. Each process does that at its start, so it has to be
// fast.
package luaconst

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// Source returns the text of a file, with its includes and constants replaced and without comments
// on their own line. An include is a line such as "--include decode.lua".
func Source(files fs.FS, name string) string {
	var text strings.Builder
	read(&text, files, name)
	return Inline(text.String())
}

// read writes the text of a file, and of the files that it includes from the same directory,
// without comments.
func read(to *strings.Builder, files fs.FS, name string) {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(text)) {
		if included, ok := strings.CutPrefix(line, "--include "); ok {
			read(to, files, path.Join(path.Dir(name), strings.TrimSpace(included)))
		} else if !strings.HasPrefix(strings.TrimLeft(line, " "), "-- ") {
			to.WriteString(line)
		}
	}
}

// definition matches a line such as "local SIZE, MOST = 12, 2 ^ 40 -- comment".
var definition = regexp.MustCompile(
	`^local ([A-Z_]+(?:, [A-Z_]+)*) = ([^-\n]+?)(?: *--.*)?\n$`)

// Inline removes the definitions of constants, which have names in capitals, and replaces the names
// by their values. In Lua 5.1 a constant is a variable, which costs time in each call that defines
// it and in each function that uses it.
func Inline(source string) string {
	constants := make(map[string]string)
	var text strings.Builder
	for line := range strings.Lines(source) {
		m := definition.FindStringSubmatch(line)
		if m == nil {
			text.WriteString(line)
			continue
		}
		values := strings.Split(m[2], ", ")
		for i, name := range strings.Split(m[1], ", ") {
			constants[name] = "(" + values[i] + ")"
		}
	}
	return replaceWords(text.String(), constants)
}

// replaceWords replaces words, of letters, digits and underscores, by others.
func replaceWords(text string, by map[string]string) string {
	var replaced strings.Builder
	for len(text) > 0 {
		n := max(1, len(text)-len(strings.TrimLeftFunc(text, inWord)))
		word, ok := by[text[:n]]
		if !ok {
			word = text[:n]
		}
		replaced.WriteString(word)
		text = text[n:]
	}
	return replaced.String()
}

func inWord(r rune) bool {
	return r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
}
