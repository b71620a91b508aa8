// Package luaconst gives Lua 5.1 the constants of Lua 5.4, and parts of functions in files of
// their own. Both cost a program nothing when it runs.
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
	// comment matches a line that is a comment.
	comment = regexp.MustCompile(`(?m)^ *-- .*\n`)
)

// Source returns the text of a file with included files in the places of their lines, with
// constants in place, and without the comments that have a line of their own.
func Source(files fs.FS, name string) string {
	return Inline(comment.ReplaceAllString(read(files, name), ""))
}

// read returns the text of a file with those that it includes from the same directory.
func read(files fs.FS, name string) string {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		panic(err)
	}
	return include.ReplaceAllStringFunc(string(text), func(line string) string {
		return read(files, path.Join(path.Dir(name), include.FindStringSubmatch(line)[1]))
	})
}

// definition matches a line such as "local SIZE <const>, MOST <const> = 12, 2 ^ 40 -- comment".
var definition = regexp.MustCompile(
	`(?m)^local ((?:[A-Z_]+ <const>(?:, )?)+) = ([^-\n]+?)(?: *--.*)?\n`)

// Inline removes the definitions of constants from source, and puts their values in place of
// their names. In Lua 5.1 a constant would be a variable, which each call pays for that defines
// it and each function that uses it.
func Inline(source string) string {
	for _, line := range definition.FindAllStringSubmatch(source, -1) {
		source = strings.Replace(source, line[0], "", 1)
		values := strings.Split(line[2], ", ")
		for i, name := range strings.Split(strings.ReplaceAll(line[1], " <const>", ""), ", ") {
			source = regexp.MustCompile(`\b`+name+`\b`).ReplaceAllString(source, "("+values[i]+")")
		}
	}
	return source
}
