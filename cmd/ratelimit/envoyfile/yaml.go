package envoyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// maxNodes bounds how much of files is read. An alias stands for all that its anchor has, so a
// short file can stand for a very long one.
const maxNodes = 1 << 20

// maxDepth bounds how deep a file is. An alias within its own anchor has no end.
const maxDepth = 64

// maxFile is the largest size of a file in bytes.
const maxFile = 16 << 20

// A document reads one file. It collects all that is wrong.
type document struct {
	file     string
	problems *rules.Problems
	ignored  *rules.Problems
	left     *int // nodes that may still be read
}

func (d *document) at(n *yaml.Node) rules.Position {
	return rules.Position{File: d.file, Line: n.Line, Column: n.Column}
}

func (d *document) problem(n *yaml.Node, format string, args ...any) {
	*d.problems = append(*d.problems,
		rules.Problem{At: d.at(n), Text: fmt.Sprintf(format, args...)})
}

// parse returns the value of the document, or nil if the file is wrong.
func (d *document) parse(text []byte) *yaml.Node {
	start := &yaml.Node{Line: 1, Column: 1}
	if len(text) > maxFile {
		d.problem(start, "the file is larger than %d MiB", maxFile>>20)
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var first, second yaml.Node
	err := dec.Decode(&first)
	if err == nil {
		err = dec.Decode(&second)
	}
	switch {
	case err == nil && !isNull(content(&second)):
		d.problem(content(&second), "a second document: a file has one domain, so put it in a "+
			"file of its own")
	case err != nil && !errors.Is(err, io.EOF):
		line, problem := rules.SyntaxError(text, err)
		start.Line = line
		d.problem(start, "%s", problem)
		return nil
	}
	if first.Kind == 0 {
		return start
	}
	return content(&first)
}

// content returns the value of a document node.
func content(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.DocumentNode && len(n.Content) == 1 {
		return resolve(n.Content[0])
	}
	return n
}

// resolve returns what an alias stands for.
func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

// isNull reports whether there is no value.
func isNull(n *yaml.Node) bool {
	return n == nil || n.Kind == 0 || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// spend counts a node. It returns false if it is one too many.
func (d *document) spend(n *yaml.Node) bool {
	if *d.left--; *d.left == 0 {
		d.problem(n, "the files have more than %d values, aliases included", maxNodes)
	}
	return *d.left > 0
}

// A mapping has the fields of a mapping node by their names.
type mapping map[string]*yaml.Node

// fields returns the fields of a mapping, which must be among known. A null is no field. what names
// the mapping in problems. A key << brings the fields of other mappings.
func (d *document) fields(n *yaml.Node, what string, known ...string) (m mapping, ok bool) {
	if n.Kind != yaml.MappingNode {
		d.problem(n, "%s is not a mapping; its fields are %s", what, strings.Join(known, ", "))
		return nil, false
	}
	m = make(mapping)
	d.collect(m, n, what, known, maxDepth)
	for name, value := range m {
		if isNull(value) {
			delete(m, name)
		}
	}
	return m, true
}

// collect adds the fields of n that m does not have.
func (d *document) collect(m mapping, n *yaml.Node, what string, known []string, depth int) {
	own := make(map[string]bool, len(n.Content)/2)
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if !d.spend(n) {
			return
		}
		key, value := resolve(n.Content[i]), resolve(n.Content[i+1])
		switch {
		case key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge":
			merged = append(merged, value)
			continue
		case key.Kind != yaml.ScalarNode || !slices.Contains(known, key.Value):
			d.problem(key, "%s", d.unknown(key, what, known))
			continue
		case own[key.Value]:
			d.problem(key, "%s is given twice", key.Value)
			continue
		}
		own[key.Value] = true
		if _, has := m[key.Value]; !has {
			m[key.Value] = value
		}
	}
	for _, from := range merged {
		d.merge(m, from, what, known, depth-1)
	}
}

func (d *document) merge(m mapping, from *yaml.Node, what string, known []string, depth int) {
	switch {
	case depth == 0:
		d.problem(from, "<< is nested more than %d deep", maxDepth)
	case from.Kind == yaml.MappingNode:
		d.collect(m, from, what, known, depth)
	case from.Kind == yaml.SequenceNode:
		for _, element := range from.Content {
			if !d.spend(element) {
				return
			}
			d.merge(m, resolve(element), what, known, depth-1)
		}
	default:
		d.problem(from, "<< needs a mapping, or a list of them")
	}
}

// places says where a field stands that is often elsewhere.
var places = map[string]string{
	"shadow_mode": "beside rate_limit", "quota_mode": "beside rate_limit",
	"metadata": "beside rate_limit", "detailed_metric": "beside rate_limit",
	"value_to_metric": "beside rate_limit", "share_threshold": "beside rate_limit",
	"unit": "in rate_limit", "requests_per_unit": "in rate_limit", "unlimited": "in rate_limit",
	"name": "in rate_limit", "replaces": "in rate_limit", "domain": "at the top of the file",
}

func (d *document) unknown(key *yaml.Node, what string, known []string) string {
	if place, ok := places[key.Value]; ok && key.Kind == yaml.ScalarNode {
		return fmt.Sprintf("%s stands %s, not in %s", key.Value, place, what)
	}
	return fmt.Sprintf("%q is not a field of %s; they are %s", clip(key.Value), what,
		strings.Join(known, ", "))
}

// clip bounds a text that a problem quotes.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// texts are the tags of what is a text, as it is written. << is one of them as a value.
var texts = []string{"!!str", "!!int", "!!bool", "!!timestamp", "!!merge"}

// text returns a field that is a text. As envoyproxy/ratelimit reads files, a whole number, a
// boolean and a date are texts too, as they are written, and a number that is not whole is an
// error.
func (d *document) text(m mapping, name string) string {
	n := m[name]
	if n == nil {
		return ""
	}
	if n.Kind == yaml.ScalarNode {
		switch tag := n.ShortTag(); {
		case slices.Contains(texts, tag), !strings.HasPrefix(tag, "!!"):
			return n.Value
		case tag == "!!binary":
			var s string
			if n.Decode(&s) == nil {
				return s
			}
		}
	}
	d.problem(n, "%s is not a text: put it in quotation marks", name)
	return ""
}

// required is text for a field that must not be empty. n and what say where it is missing.
func (d *document) required(m mapping, name string, n *yaml.Node, what string) string {
	if m[name] == nil || m[name].Kind == yaml.ScalarNode && m[name].Value == "" {
		d.problem(n, "%s has no %s, or an empty one", what, name)
		return ""
	}
	return d.text(m, name)
}

// flags are the words of YAML 1.1 for a boolean, in lower case.
var flags = map[string]bool{
	"true": true, "yes": true, "on": true, "y": true,
	"false": false, "no": false, "off": false, "n": false,
}

// flag returns a field that is true or false.
func (d *document) flag(m mapping, name string) bool {
	n := m[name]
	if n == nil {
		return false
	}
	b, ok := flags[strings.ToLower(n.Value)]
	if !ok || n.Kind != yaml.ScalarNode {
		d.problem(n, "%s is neither true nor false", name)
	}
	return b
}

// list returns the elements of a field that is a list.
func (d *document) list(m mapping, name string) []*yaml.Node {
	n := m[name]
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		d.problem(n, "%s is not a list: each element begins with a dash", name)
		return nil
	}
	elements := make([]*yaml.Node, 0, len(n.Content))
	for _, element := range n.Content {
		if !d.spend(element) {
			return nil
		}
		elements = append(elements, resolve(element))
	}
	return elements
}
