package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// luaToken matches the words that open or close a block, and comments and strings, which may
// contain such words.
var luaToken = regexp.MustCompile(`--\[\[[\s\S]*?\]\]|--[^\n]*|` +
	`"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|` +
	`(?:(\w+)\s*=\s*)?\bfunction\b\s*([\w.:]*)|\b(?:if|do|repeat|end|until)\b`)

// printLua prints a table of the Lua files below root.
func printLua(w io.Writer, root string) error {
	fmt.Fprint(w, "\n| Lua file | lines | longest function | lines |\n|---|---|---|---|\n")
	return filepath.WalkDir(root, func(file string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".lua" {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		short, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name, lines := longestLua(string(text))
		_, err = fmt.Fprintf(w, "| %s | %d | %s | %d |\n",
			filepath.ToSlash(short), strings.Count(string(text), "\n"), name, lines)
		return err
	})
}

// longestLua returns the longest function of a Lua source and its number of lines. The code outside
// of functions counts as a function, the body.
func longestLua(source string) (name string, lines int) {
	type block struct {
		function string
		begin    int // the line
	}
	var open []block
	name, lines = "(body)", strings.Count(source, "\n")
	longest := 0
	var longestName string
	for _, m := range luaToken.FindAllStringSubmatchIndex(source, -1) {
		word, line := source[m[0]:m[1]], strings.Count(source[:m[0]], "\n")
		switch {
		case strings.HasPrefix(word, "--") || word[0] == '"' || word[0] == '\'':
		case strings.Contains(word, "function"):
			b := block{"(anonymous)", line}
			if m[5] > m[4] {
				b.function = source[m[4]:m[5]]
			} else if m[2] >= 0 {
				b.function = source[m[2]:m[3]]
			}
			open = append(open, b)
		case word == "end" || word == "until":
			if len(open) == 0 {
				continue
			}
			b := open[len(open)-1]
			open = open[:len(open)-1]
			if b.function == "" {
				continue
			}
			n := line - b.begin + 1
			if n > longest {
				longest, longestName = n, b.function
			}
			if len(open) == 0 {
				lines -= n
			}
		default:
			open = append(open, block{})
		}
	}
	if longest >= lines {
		return longestName, longest
	}
	return name, lines
}
