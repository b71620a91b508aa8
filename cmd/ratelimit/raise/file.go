package raise

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/readfile"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// maxSize bounds the file, in bytes, as that of all files of a configuration.
const maxSize = 16 << 20

// A file is an included file.
type file struct {
	path   string     // without links
	doc    yaml.Node  // has comments of its own
	root   *yaml.Node // a map, the value of doc
	except *yaml.Node // the list of exceptions in it

	exceptions []rules.Included
}

// target returns the file that a link leads to: it is replaced, and not the link.
func target(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}

// read reads a file, which need not be there.
func read(path string) (*file, error) {
	data, err := readfile.Regular(path, maxSize)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f := &file{path: path}
	if f.root, f.exceptions, err = rules.ReadIncluded(path, data); err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(data, &f.doc); err != nil {
		return nil, err
	}
	if f.root == nil {
		f.doc = yaml.Node{HeadComment: string(bytes.TrimSpace(data))} // nothing else is there
		f.root = &yaml.Node{Kind: yaml.MappingNode}
	}
	f.doc.Kind, f.doc.Content = yaml.DocumentNode, []*yaml.Node{f.root}
	for i := 0; i+1 < len(f.root.Content); i += 2 {
		if f.root.Content[i].Value == "except" {
			f.except = f.root.Content[i+1]
		}
	}
	if f.except == nil {
		f.except = &yaml.Node{Kind: yaml.SequenceNode}
		f.root.Content = append(f.root.Content, text("except"), f.except)
	}
	return f, nil
}

// remove removes the exceptions that drop returns true for, and reports whether there are some.
func (f *file) remove(drop func(e rules.Included) bool) bool {
	before := len(f.exceptions)
	f.exceptions = slices.DeleteFunc(f.exceptions, func(e rules.Included) bool {
		if !drop(e) {
			return false
		}
		f.except.Content = slices.DeleteFunc(f.except.Content,
			func(n *yaml.Node) bool { return n == e.Node })
		return true
	})
	return len(f.exceptions) < before
}

// add adds an exception before all others: of two that match a request, the later command counts.
func (f *file) add(limit string, when rules.Descriptor, maximum string, until time.Time) {
	conditions := &yaml.Node{Kind: yaml.MappingNode}
	for _, e := range when {
		conditions.Content = append(conditions.Content, text(e.Name), text(e.Value))
	}
	n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle, Content: []*yaml.Node{
		text("limit"), text(limit), text("when"), conditions, text("max"), text(maximum),
		text("until"), {Kind: yaml.ScalarNode, Tag: "!!timestamp", Value: format(until)}}}
	if len(f.except.Content) == 0 {
		f.except.Style = 0
	}
	f.except.Content = slices.Insert(f.except.Content, 0, n)
}

func format(t time.Time) string { return t.Format(time.RFC3339Nano) }

func text(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
}

// bytes returns the content of the file.
func (f *file) bytes() ([]byte, error) {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	err := encoder.Encode(&f.doc)
	return b.Bytes(), errors.Join(err, encoder.Close())
}

// isOf reports whether an exception that ends is of a limit and has the conditions of when.
func isOf(e rules.Included, limit string, when rules.Descriptor) bool {
	has, ok := conditionsOf(e, limit)
	if !ok || len(has) != len(when) {
		return false
	}
	return hasAll(has, when)
}

// isHidden reports whether an exception that ends is of a limit, matches only what when does, and
// ends no later than until.
func isHidden(e rules.Included, limit string, when rules.Descriptor, until time.Time) bool {
	has, ok := conditionsOf(e, limit)
	return ok && hasAll(has, when) && !e.Until.After(until)
}

func hasAll(has map[string]string, when rules.Descriptor) bool {
	return !slices.ContainsFunc(when, func(want rules.Entry) bool {
		value, ok := has[want.Name]
		return !ok || value != want.Value
	})
}

// conditionsOf returns the conditions of an exception that ends, if it is of a limit and has no
// lists.
func conditionsOf(e rules.Included, limit string) (has map[string]string, ok bool) {
	if e.Limit != limit || e.Until.IsZero() {
		return nil, false
	}
	has = make(map[string]string)
	for i := 0; i+1 < len(e.Node.Content); i += 2 {
		if e.Node.Content[i].Value != "when" {
			continue
		}
		n := e.Node.Content[i+1]
		for j := 0; j+1 < len(n.Content); j += 2 {
			if n.Content[j+1].Kind != yaml.ScalarNode {
				return nil, false
			}
			has[n.Content[j].Value] = n.Content[j+1].Value
		}
	}
	return has, true
}
