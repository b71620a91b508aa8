package rules

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxSize bounds the files of a configuration together, in bytes.
const maxSize = 16 << 20

// maxDepth bounds how deeply lists and maps of a file are nested.
const maxDepth = 50

// parse returns the content of a file in YAML, or nil if it has none or a problem.
func (f *file) parse(data []byte) *yaml.Node {
	if !f.checkText(data) {
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	if err := decoder.Decode(&document); err != nil {
		if !errors.Is(err, io.EOF) {
			f.syntaxError(data, err)
		}
		return nil
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		if err != nil {
			f.syntaxError(data, err)
			return nil
		}
		f.add(&second, "a second document begins here: a file has one")
		return nil
	}
	root := document.Content[0]
	if !f.checkNodes(root, 0) {
		return nil
	}
	return root
}

// checkText reports whether data is text that can be YAML as this package takes it.
func (f *file) checkText(data []byte) bool {
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if !utf8.Valid(text) {
			f.addAt(line, invalidAt(text)+1, "this is not UTF-8")
			return false
		}
		indentation := len(text) - len(bytes.TrimLeft(text, " \t"))
		tab := bytes.IndexByte(text[:indentation], '\t')
		if tab >= 0 && len(bytes.TrimSpace(text)) > 0 {
			f.addAt(line, tab+1, "a tab: YAML is indented by spaces")
			return false
		}
	}
	return true
}

// invalidAt returns how many characters are before the first byte that is not UTF-8.
func invalidAt(text []byte) (n int) {
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r == utf8.RuneError && size == 1 {
			break
		}
		text, n = text[size:], n+1
	}
	return n
}

// syntaxError adds the problem of an error of package yaml.
func (f *file) syntaxError(data []byte, err error) {
	line, text := SyntaxError(data, err)
	if strings.Contains(text, "unknown anchor") ||
		strings.Contains(text, "alphabetic or numeric character") {
		text += `; a value that begins with * needs quotation marks, as in "*"`
	}
	f.addAt(line, 1, "YAML: %s", text)
}

// checkNodes reports whether n has no anchors, aliases and tags, and is not nested too deeply.
func (f *file) checkNodes(n *yaml.Node, depth int) bool {
	switch {
	case depth > maxDepth:
		f.add(n, "lists and maps are nested more than %d deep", maxDepth)
		return false
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		f.add(n, "anchors and aliases are not supported: write the value at each place; a value "+
			"that begins with * or & needs quotation marks")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		f.add(n, "tags such as !!str are not supported")
		return false
	}
	ok := true
	for _, child := range n.Content {
		ok = f.checkNodes(child, depth+1) && ok
	}
	return ok
}
