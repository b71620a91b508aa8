package main

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A lane is a column of the picture.
type lane struct {
	title string
	holds []string // directories
	x, w  float64
}

func newLanes() []*lane {
	return []*lane{
		{title: "services", holds: []string{"cmd", "daemon", "httplimit"}},
		{title: "limits and algorithms", holds: []string{".", "algorithm"}},
		{title: "backends", holds: []string{"backend"}},
		{title: "layers", holds: []string{"layer"}},
	}
}

func (l *lane) has(dir string) bool {
	return slices.ContainsFunc(l.holds, func(held string) bool {
		return dir == held || strings.HasPrefix(dir, held+"/")
	})
}

// Sizes of boxes, in pixels.
const (
	boxHeight    = 42 // without statements
	perStatement = 1. / 22
	bendWidth    = 6
	boxGap       = 12 // beside a box
	bendGap      = 6  // beside a bend
	stepGap      = 3
)

// A box is a package, the folder of the tests on servers, or a bend of the arrows to the box below.
// A bend has no directory.
type box struct {
	dir        string
	statements int
	steps      []steps
	imports    []*box
	importers  []*box
	level      int // above the levels of all imports
	lane       *lane
	x, y, w, h float64 // x and y of the upper left corner
}

func (b *box) isBend() bool { return b.dir == "" }

// gap returns the least space beside b.
func (b *box) gap() float64 {
	if b.isBend() {
		return bendGap
	}
	return boxGap
}

func (b *box) middle() float64 { return b.x + b.w/2 }

func (b *box) name() string {
	switch b.dir {
	case ".":
		return "ratelimit"
	case "cmd/ratelimit", "conformance/linear":
		return b.dir
	}
	return path.Base(b.dir)
}

// isPublic reports whether users may import or run the package.
func (b *box) isPublic() bool {
	return !b.isInternal() && (b.lane != nil || strings.HasPrefix(b.dir, "conformance"))
}

func (b *box) isInternal() bool { return slices.Contains(strings.Split(b.dir, "/"), "internal") }

// rounded returns n rounded to two significant digits.
func rounded(n int) int {
	unit := 1
	for n/unit >= 100 {
		unit *= 10
	}
	return (n + unit/2) / unit * unit
}

// small returns the second line of a box: the number of statements.
func (b *box) small() string {
	n := strconv.Itoa(rounded(b.statements))
	if len(n) > 3 {
		n = n[:len(n)-3] + "," + n[len(n)-3:]
	}
	return n
}

func (st steps) width() float64 { return 9.5 + 6.5*float64(utf8.RuneCountInString(st.String())) }

// resize sets the size of a box to fit its texts and its statements.
func (b *box) resize() {
	if b.isBend() {
		b.w, b.h = bendWidth, 0
		return
	}
	name := 9.2*float64(len(b.name())) + 4*float64(strings.Count(b.name(), "m"))
	for _, st := range b.steps {
		name += st.width() + stepGap
	}
	b.w = 18 + max(name, 6.5*float64(len(b.small())))
	b.h = boxHeight + perStatement*float64(b.statements)
}
