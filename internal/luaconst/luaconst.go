// Package luaconst puts the values of constants, and files, into the text of Lua programs, so that
// neither costs anything when a program runs.
package luaconst

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
)

var (
	// include matches a line such as "--include decode.lua".
	include = regexp.MustCompile(`(?m)^--include (\S+)\n`)
	// comment matches a comment on its own line.
	comment = regexp.MustCompile(`(?m)^ *-- .*\n`)
)

// Source returns the text of a file, with its includes and constants replaced and without comments
// on their own line.
func Source(files fs.FS, name string) string {
	return Inline(comment.ReplaceAllString(read(files, name), ""))
}

// read returns the text of a file and of the files that it includes from the same directory.
func read(files fs.FS, name string) string {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		panic(err)
	}
	return include.ReplaceAllStringFunc(string(text), func(line string) string {
		return read(files, path.Join(path.Dir(name), include.FindStringSubmatch(line)[1]))
	})
}

// definition matches a line such as "local SIZE, MOST = 12, 2 ^ 40 -- comment".
var definition = regexp.MustCompile(
	`(?m)^local ([A-Z_]+(?:, [A-Z_]+)*) = ([^-\n]+?)(?: *--.*)?\n`)

// Inline removes the definitions of constants, which have names in capitals, and replaces the names
// by their values. In Lua 5.1 a constant is a variable, which costs time in each call that defines
// it and in each function that uses it.
func Inline(source string) string {
	for _, line := range definition.FindAllStringSubmatch(source, -1) {
		source = strings.Replace(source, line[0], "", 1)
		values := strings.Split(line[2], ", ")
		for i, name := range strings.Split(line[1], ", ") {
			source = regexp.MustCompile(`\b`+name+`\b`).ReplaceAllString(source, "("+values[i]+")")
		}
	}
	return source
}
