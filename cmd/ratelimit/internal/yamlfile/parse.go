package yamlfile

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxDepth bounds how deeply lists and maps of a Strict file are nested.
const maxDepth = 50

// Parse returns the value of a file in YAML, or nil if it has a problem. A file without a value is
// a null.
func (f *File) Parse(data []byte) *yaml.Node {
	if f.Format.Strict && !f.checkText(data) {
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	err := decoder.Decode(&first)
	if err == nil {
		err = decoder.Decode(&second)
	}
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		f.syntaxError(data, err)
		return nil
	case err == nil && (f.Format.Strict || !IsNull(value(&second))):
		f.Add(&second, "a second document begins here: a file has one")
		return nil
	}
	root := value(&first)
	if f.Format.Strict && !f.checkNodes(root, 0) {
		return nil
	}
	return root
}

// value returns the value of a document.
func value(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.DocumentNode && len(n.Content) == 1 {
		return Resolve(n.Content[0])
	}
	return n
}

// checkText reports whether data is text that can be YAML as this package takes it.
func (f *File) checkText(data []byte) bool {
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if !utf8.Valid(text) {
			f.AddAt(line, invalidAt(text)+1, "this is not UTF-8")
			return false
		}
		indentation := len(text) - len(bytes.TrimLeft(text, " \t"))
		tab := bytes.IndexByte(text[:indentation], '\t')
		if tab >= 0 && len(bytes.TrimSpace(text)) > 0 {
			f.AddAt(line, tab+1, "a tab: YAML is indented by spaces")
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
func (f *File) syntaxError(data []byte, err error) {
	line, text := syntaxError(data, err)
	if strings.Contains(text, "unknown anchor") ||
		strings.Contains(text, "alphabetic or numeric character") {
		text += `; a value that begins with * needs quotation marks, as in "*"`
	}
	f.AddAt(line, 1, "YAML: %s", text)
}

// checkNodes reports whether n has no anchors, aliases and tags, and is not nested too deeply.
func (f *File) checkNodes(n *yaml.Node, depth int) bool {
	switch {
	case depth > maxDepth:
		f.Add(n, "lists and maps are nested more than %d deep", maxDepth)
		return false
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		f.Add(n, "anchors and aliases are not supported: write the value at each place; a value "+
			"that begins with * or & needs quotation marks")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		f.Add(n, "tags such as !!str are not supported")
		return false
	}
	ok := true
	for _, child := range n.Content {
		ok = f.checkNodes(child, depth+1) && ok
	}
	return ok
}
