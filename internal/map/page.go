package main

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/truewindow/ratelimit/internal/tree"
)

// A way is a numbered list of the page whose steps the picture shows.
type way struct {
	heading, class, legend string
}

var ways = []way{
	{"### A Take on memory", "memory", "a Take on memory"},
	{"### A Take on a server", "server", "a Take on a server"},
}

// steps are consecutive items of such a list that are in one package.
type steps struct {
	way         string // the class
	first, last int
}

// String returns the numbers, such as "7" or "3–5".
func (st steps) String() string {
	if st.first == st.last {
		return strconv.Itoa(st.first)
	}
	return fmt.Sprintf("%d–%d", st.first, st.last)
}

// item matches the number of an item and the first file or directory that it names.
var item = regexp.MustCompile("^([0-9]+)\\. [^`]*`([^`]+)`")

// stepsOf returns the steps by directory. A step is in the package of the first file that it names.
func stepsOf(page string, packages []*tree.Package) map[string][]steps {
	isPackage := func(dir string) bool {
		return slices.ContainsFunc(packages, func(p *tree.Package) bool { return p.Dir == dir })
	}
	byDir := make(map[string][]steps)
	for _, w := range ways {
		_, list, _ := strings.Cut(page, w.heading+"\n")
		list, _, _ = strings.Cut(list, "\n#")
		for line := range strings.Lines(list) {
			m := item.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			number, _ := strconv.Atoi(m[1])
			dir := path.Dir(m[2])
			for dir != "." && !isPackage(dir) {
				dir = path.Dir(dir)
			}
			all := byDir[dir]
			if n := len(all); n > 0 && all[n-1].way == w.class && all[n-1].last == number-1 {
				all[n-1].last = number
			} else {
				byDir[dir] = append(all, steps{w.class, number, number})
			}
		}
	}
	return byDir
}

const (
	roomsBegin = "<!-- rooms: written by make map -->\n"
	roomsEnd   = "<!-- end of rooms -->\n"
)

// withRooms returns page with a current list of packages.
func withRooms(page string, packages []*tree.Package) (string, error) {
	before, rest, ok := strings.Cut(page, roomsBegin)
	_, after, found := strings.Cut(rest, roomsEnd)
	if !ok || !found {
		return "", fmt.Errorf("docs/map.md lacks the line %q or %q", roomsBegin, roomsEnd)
	}
	var s strings.Builder
	s.WriteString(before + roomsBegin)
	s.WriteString("| directory | the package |\n|---|---|\n")
	for _, p := range packages {
		if p.Doc == "" {
			return "", fmt.Errorf("%s has no package comment", p.Dir)
		}
		fmt.Fprintf(&s, "| [`%s`](../%s) | %s |\n", p.Dir, p.Dir, sentence(p))
	}
	return s.String() + roomsEnd + after, nil
}

// link matches the link to a declaration in a doc comment.
var link = regexp.MustCompile(`\[([\w.]+)\]`)

// sentence returns what the package comment says after "Package x" or "Command x".
func sentence(p *tree.Package) string {
	words := strings.Fields(p.Doc)
	if slices.Contains([]string{"Package", "Command"}, words[0]) {
		words = words[2:]
	}
	text := link.ReplaceAllString(strings.Join(words, " "), "`$1`")
	if start, ok := strings.CutSuffix(text, ":"); ok { // before a list
		return start + "."
	}
	return text
}
