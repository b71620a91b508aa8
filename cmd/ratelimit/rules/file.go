package rules

import (
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/yamlfile"
)

type (
	// A Position is a place in a file. The zero Position is that of a limit which no file has.
	Position = yamlfile.Position
	// A Problem is what is wrong at a place in a file.
	Problem = yamlfile.Problem
	// Problems are all that is wrong with limits, sorted by position.
	Problems = yamlfile.Problems
)

var format = yamlfile.Format{Strict: true, Unknown: unknownKey}

// A file reads the values of one file.
type file struct {
	yamlfile.File
	reader *reader // of the files that this one names
}

// text returns a text, which is not empty.
func (f *file) text(n *yaml.Node, what string) (string, bool) {
	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && n.Value != "":
		return n.Value, true
	case n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" && n.Value != "":
		f.Add(n, "%s is a text: write %q", what, n.Value)
	default:
		f.Add(n, "%s is a text, not %s", what, yamlfile.KindOf(n))
	}
	return "", false
}

// scalar returns a value as it is written: a text, a number or a time.
func (f *file) scalar(n *yaml.Node, what string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		f.Add(n, "%s is one value, not %s", what, yamlfile.KindOf(n))
		return "", false
	}
	return n.Value, true
}

// choice returns one of several texts.
func (f *file) choice(n *yaml.Node, what string, choices ...string) string {
	text, ok := f.text(n, what)
	if ok && !slices.Contains(choices, text) {
		f.Add(n, "%s is %s, not %q%s", what, or(choices), text, yamlfile.Suggest(text, choices))
		return ""
	}
	return text
}

// count returns an integer that is not less than least.
func (f *file) count(n *yaml.Node, what string, least int) int {
	text, ok := f.scalar(n, what)
	if !ok {
		return 0
	}
	i, err := strconv.Atoi(text)
	if err != nil || i < least || n.ShortTag() == "!!str" {
		f.Add(n, "%s is an integer from %d, not %q", what, least, text)
		return 0
	}
	return i
}

// or returns texts as "a, b or c".
func or(texts []string) string {
	s := texts[0]
	for i, text := range texts[1:] {
		if i == len(texts)-2 {
			s += " or " + text
		} else {
			s += ", " + text
		}
	}
	return s
}
