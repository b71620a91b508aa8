package yamlfile

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// A Position is a place in a file. The zero Position is that of a limit which no file has.
type Position struct {
	File         string
	Line, Column int // from 1
}

// String returns the position as file:line:column.
func (p Position) String() string {
	s := p.File
	if p.Line > 0 {
		s += ":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column)
	}
	return s
}

func (p Position) compare(q Position) int {
	return cmp.Or(cmp.Compare(p.File, q.File), cmp.Compare(p.Line, q.Line),
		cmp.Compare(p.Column, q.Column))
}

// A Problem is what is wrong at a place in a file.
type Problem struct {
	At   Position
	Text string
}

// String returns the problem as file:line:column: text.
func (p Problem) String() string {
	if p.At == (Position{}) {
		return p.Text
	}
	return p.At.String() + ": " + p.Text
}

// Problems are all that is wrong with files, sorted by position.
type Problems []Problem

// Error returns a line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

// MaxProblems bounds the problems that are reported, since a generated file may have millions.
const MaxProblems = 1000

// Err returns the sorted problems, or nil if there are none.
func (p Problems) Err() error {
	if len(p) == 0 {
		return nil
	}
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(a.At.compare(b.At), cmp.Compare(a.Text, b.Text))
	})
	if len(p) > MaxProblems {
		p = append(p[:MaxProblems:MaxProblems], Problem{p[MaxProblems].At, "more problems follow"})
	}
	return p
}
