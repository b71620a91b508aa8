// Package yamlfile reads files in YAML and reports all that is wrong with them, with positions.
package yamlfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Format says what of YAML a file may have.
type Format struct {
	// Strict files have one document, without anchors, aliases and tags.
	Strict bool
	// Unknown says what is wrong with a key that is not among the known ones of a map.
	Unknown func(key, what string, known []string) string
}

// A File adds the problems of one file.
type File struct {
	Name     string
	Problems *Problems
	Format   *Format
	// Left is how many values may still be read of files that are not Strict; nil: any number. An
	// alias stands for all that its anchor has, so a short file can stand for a very long one.
	Left *int
}

// AddAt adds a problem at a line and a column.
func (f *File) AddAt(line, column int, format string, args ...any) {
	*f.Problems = append(*f.Problems,
		Problem{Position{f.Name, line, column}, fmt.Sprintf(format, args...)})
}

// Add adds a problem of a value.
func (f *File) Add(n *yaml.Node, format string, args ...any) {
	f.AddAt(max(n.Line, 1), max(n.Column, 1), format, args...)
}

// At returns the position of a value.
func (f *File) At(n *yaml.Node) Position { return Position{f.Name, n.Line, n.Column} }

// Fields returns the values of a map whose keys are known. It adds a problem for all others, and
// for keys that occur twice. what names the map in problems. ok is false for what is no map.
func (f *File) Fields(
	n *yaml.Node, what string, known ...string,
) (values map[string]*yaml.Node, ok bool) {
	values = make(map[string]*yaml.Node)
	ok = f.Each(n, what, func(key, value *yaml.Node) {
		if !slices.Contains(known, key.Value) {
			f.Add(key, "%s", f.Format.Unknown(key.Value, what, known))
			return
		}
		values[key.Value] = value
	})
	return values, ok
}

// Other reports whether n is a file of something else, which may be secret: a problem that quotes
// none of it is added then. Other files have some of the known keys.
func (f *File) Other(n *yaml.Node, what string, known ...string) bool {
	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null":
		f.Add(n, "%s is a map, not a text", what)
		return true
	case n.Kind != yaml.MappingNode || len(n.Content) == 0:
		return false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if slices.Contains(known, n.Content[i].Value) {
			return false
		}
	}
	key := n.Content[0]
	f.Add(key, "%s has none of its keys%s", what, SuggestKey(key.Value, known))
	return true
}

// Each calls visit with each key of a map, which is text, and its value. It adds a problem for keys
// that occur twice. In files that are not Strict the key << brings the entries of other maps. It
// returns false for what is no map.
func (f *File) Each(n *yaml.Node, what string, visit func(key, value *yaml.Node)) bool {
	if n.Kind != yaml.MappingNode {
		f.Add(n, "%s is a map, not %s", what, KindOf(n))
		return false
	}
	f.each(n, what, make(map[string]bool), maxMerges, visit)
	return true
}

// maxMerges bounds how deeply maps that << brings are nested. An alias within its own anchor has no
// end.
const maxMerges = 64

// each visits the keys of n that have not been visited, and then those of merged maps.
func (f *File) each(
	n *yaml.Node, what string, visited map[string]bool, depth int,
	visit func(key, value *yaml.Node),
) {
	lines := make(map[string]int)
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content) && len(*f.Problems) <= MaxProblems; i += 2 {
		if !f.Spend(n) {
			return
		}
		key, value := Resolve(n.Content[i]), Resolve(n.Content[i+1])
		switch {
		case key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" && !f.Format.Strict:
			merged = append(merged, value)
			continue
		case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!null":
			f.Add(key, "a key of %s is a name, not %s", what, KindOf(key))
			continue
		case lines[key.Value] > 0:
			f.Add(key, "the key %q is in line %d already", key.Value, lines[key.Value])
			continue
		}
		lines[key.Value] = max(key.Line, 1)
		if !visited[key.Value] {
			visited[key.Value] = true
			visit(key, value)
		}
	}
	for _, from := range merged {
		f.merge(from, what, visited, depth-1, visit)
	}
}

func (f *File) merge(
	from *yaml.Node, what string, visited map[string]bool, depth int,
	visit func(key, value *yaml.Node),
) {
	switch {
	case depth == 0:
		f.Add(from, "<< is nested more than %d deep", maxMerges)
	case from.Kind == yaml.MappingNode:
		f.each(from, what, visited, depth, visit)
	case from.Kind == yaml.SequenceNode:
		for _, element := range f.elements(from) {
			f.merge(element, what, visited, depth-1, visit)
		}
	default:
		f.Add(from, "<< needs a map, or a list of them")
	}
}

// List returns the elements of a list.
func (f *File) List(n *yaml.Node, what string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		f.Add(n, "%s is a list, not %s", what, KindOf(n))
		return nil
	}
	return f.elements(n)
}

func (f *File) elements(n *yaml.Node) []*yaml.Node {
	elements := make([]*yaml.Node, 0, len(n.Content))
	for _, element := range n.Content {
		if !f.Spend(element) {
			break
		}
		elements = append(elements, Resolve(element))
	}
	return elements
}

// Spend counts a value. It returns false if it is one too many.
func (f *File) Spend(n *yaml.Node) bool {
	if f.Left == nil {
		return true
	}
	if *f.Left--; *f.Left == 0 {
		f.Add(n, "the files have too many values, aliases included")
	}
	return *f.Left > 0
}

// Resolve returns what an alias stands for.
func Resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

// IsNull reports whether there is no value.
func IsNull(n *yaml.Node) bool {
	return n == nil || n.Kind == 0 || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// KindOf says what a value is, in problems.
func KindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case IsNull(n) || n.Value == "":
		return "empty"
	default:
		return strconv.Quote(Clip(n.Value))
	}
}

// Clip bounds a text that a problem quotes.
func Clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
