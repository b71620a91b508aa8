package rules

import (
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// A file adds the problems of one file.
type file struct {
	name     string
	problems *Problems
}

func (f *file) addAt(line, column int, format string, args ...any) {
	*f.problems = append(*f.problems,
		Problem{Position{f.name, line, column}, fmt.Sprintf(format, args...)})
}

func (f *file) add(n *yaml.Node, format string, args ...any) {
	f.addAt(max(n.Line, 1), max(n.Column, 1), format, args...)
}

func (f *file) at(n *yaml.Node) Position { return Position{f.name, n.Line, n.Column} }

// fields returns the values of a map whose keys are known. It adds a problem for all others, and
// for keys that occur twice.
func (f *file) fields(n *yaml.Node, what string, known []string) map[string]*yaml.Node {
	values := make(map[string]*yaml.Node)
	f.each(n, what, func(key, value *yaml.Node) {
		if !slices.Contains(known, key.Value) {
			f.add(key, "unknown key %q in %s%s", key.Value, what, suggestKey(key.Value, known))
			return
		}
		values[key.Value] = value
	})
	return values
}

// topFields is fields for the top of a file. One that is no map, or has none of the keys, is a file
// of something else, which may be secret: its problems quote nothing.
func (f *file) topFields(n *yaml.Node, what string, known []string) map[string]*yaml.Node {
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
		f.add(n, "%s is a map, not a text", what)
		return nil
	}
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		if slices.Contains(known, n.Content[i].Value) {
			return f.fields(n, what, known)
		}
	}
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		return f.fields(n, what, known)
	}
	key := n.Content[0]
	f.add(key, "%s has none of its keys%s", what, suggestKey(key.Value, known))
	return nil
}

// each calls visit with each key of a map, which is text, and its value. It adds a problem for keys
// that occur twice.
func (f *file) each(n *yaml.Node, what string, visit func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		f.add(n, "%s is a map, not %s", what, kindOf(n))
		return
	}
	lines := make(map[string]int)
	for i := 0; i+1 < len(n.Content) && len(*f.problems) <= maxProblems; i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!null" {
			f.add(key, "a key of %s is a name, not %s", what, kindOf(key))
			continue
		}
		if line, ok := lines[key.Value]; ok {
			f.add(key, "the key %q is in line %d already", key.Value, line)
			continue
		}
		lines[key.Value] = key.Line
		visit(key, value)
	}
}

// list returns the elements of a list.
func (f *file) list(n *yaml.Node, what string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		f.add(n, "%s is a list, not %s", what, kindOf(n))
		return nil
	}
	return n.Content
}

// text returns a text, which is not empty.
func (f *file) text(n *yaml.Node, what string) (string, bool) {
	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && n.Value != "":
		return n.Value, true
	case n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" && n.Value != "":
		f.add(n, "%s is a text: write %q", what, n.Value)
	default:
		f.add(n, "%s is a text, not %s", what, kindOf(n))
	}
	return "", false
}

// scalar returns a value as it is written: a text, a number or a time.
func (f *file) scalar(n *yaml.Node, what string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		f.add(n, "%s is one value, not %s", what, kindOf(n))
		return "", false
	}
	return n.Value, true
}

// choice returns one of several texts.
func (f *file) choice(n *yaml.Node, what string, choices ...string) string {
	text, ok := f.text(n, what)
	if ok && !slices.Contains(choices, text) {
		f.add(n, "%s is %s, not %q%s", what, or(choices), text, suggest(text, choices))
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
		f.add(n, "%s is an integer from %d, not %q", what, least, text)
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

func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!null" || n.Value == "":
		return "empty"
	default:
		return strconv.Quote(n.Value)
	}
}
