package envoyfile

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/yamlfile"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// maxNodes bounds how much of files is read.
const maxNodes = 1 << 20

// maxDepth bounds how deep descriptors and metadata are. An alias within its own anchor has no end.
const maxDepth = 64

// maxFile is the largest size of a file in bytes.
const maxFile = 16 << 20

var format = yamlfile.Format{Unknown: unknown}

// A document reads one file.
type document struct {
	yamlfile.File
	ignored *rules.Problems
}

// A mapping has the fields of a map by their names.
type mapping map[string]*yaml.Node

// fields returns the fields of a map, which must be among known. A null is no field.
func (d *document) fields(n *yaml.Node, what string, known ...string) (m mapping, ok bool) {
	values, ok := d.Fields(n, what, known...)
	for name, value := range values {
		if yamlfile.IsNull(value) {
			delete(values, name)
		}
	}
	return values, ok
}

// places says where a field stands that is often elsewhere.
var places = map[string]string{
	"shadow_mode": "beside rate_limit", "quota_mode": "beside rate_limit",
	"metadata": "beside rate_limit", "detailed_metric": "beside rate_limit",
	"value_to_metric": "beside rate_limit", "share_threshold": "beside rate_limit",
	"unit": "in rate_limit", "requests_per_unit": "in rate_limit", "unlimited": "in rate_limit",
	"name": "in rate_limit", "replaces": "in rate_limit", "domain": "at the top of the file",
}

func unknown(key, what string, known []string) string {
	if place, ok := places[key]; ok {
		return fmt.Sprintf("%s stands %s, not in %s", key, place, what)
	}
	return fmt.Sprintf("unknown key %q in %s%s", yamlfile.Clip(key), what,
		yamlfile.SuggestKey(key, known))
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
	d.Add(n, "%s is not a text: put it in quotation marks", name)
	return ""
}

// required is text for a field that must not be empty. n and what say where it is missing.
func (d *document) required(m mapping, name string, n *yaml.Node, what string) string {
	if m[name] == nil || m[name].Kind == yaml.ScalarNode && m[name].Value == "" {
		d.Add(n, "%s has no %s, or an empty one", what, name)
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
		d.Add(n, "%s is neither true nor false", name)
	}
	return b
}

// list returns the elements of a field that is a list.
func (d *document) list(m mapping, name string) []*yaml.Node {
	if m[name] == nil {
		return nil
	}
	return d.List(m[name], name)
}
