package rules

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/yamlfile"
)

// include reads the files of patterns of the main file.
func (r *reader) include(patterns []*yaml.Node) {
	f := r.file(r.path)
	included := make(map[string]*yaml.Node)
	for _, p := range patterns {
		text, ok := f.text(p, "include")
		switch {
		case !ok:
		case !filepath.IsLocal(text):
			// Whoever writes the limits may not read all that the service can.
			f.Add(p, "include: %q is not below the folder of this file", text)
		default:
			for _, path := range r.glob(f, p, filepath.Join(filepath.Dir(r.path), text)) {
				included[path] = p
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(included)) {
		fail := func(err error) { f.Add(included[path], "include: %s: %v", path, err) }
		if data, ok := r.load(path, fail); ok {
			r.included(r.file(path), data)
		}
	}
}

// glob returns the files that a pattern matches, without the main file and, unless the pattern
// begins with a dot, without hidden ones.
func (r *reader) glob(f *file, n *yaml.Node, pattern string) []string {
	if !strings.ContainsAny(pattern, `*?[\`) {
		return []string{pattern}
	}
	r.out.Paths = append(r.out.Paths, pattern)
	paths, err := filepath.Glob(pattern)
	if err != nil {
		f.Add(n, "include: %q is not a pattern of files such as overrides/*.yaml", n.Value)
	}
	if r.replaced != nil {
		paths = r.replaced.glob(paths, pattern)
	}
	hidden := strings.HasPrefix(filepath.Base(pattern), ".")
	return slices.DeleteFunc(paths, func(path string) bool {
		return path == filepath.Clean(r.path) || !hidden && filepath.Base(path)[0] == '.'
	})
}

// included reads an included file, and returns its root, or nil for an empty file.
func (r *reader) included(f *file, data []byte) *yaml.Node {
	root := f.Parse(data)
	keys := []string{"limits", "except"}
	if root == nil || root.Kind == 0 || // it may have no exceptions yet
		f.Other(root, "an included file", keys...) {
		return nil
	}
	fields, _ := f.Fields(root, "an included file", keys...)
	if n := fields["limits"]; n != nil {
		r.addLimits(f, n)
	}
	if n := fields["except"]; n != nil {
		for _, e := range f.List(n, "except") {
			r.later = append(r.later, includedException{f, e})
		}
	}
	return root
}

// exceptions adds the exceptions of included files to their limits.
func (r *reader) exceptions() {
	for _, e := range r.later {
		if len(r.problems) > yamlfile.MaxProblems {
			return
		}
		before := len(r.problems)
		l := r.limitOf(e)
		algorithm := ""
		if l != nil {
			algorithm = l.Algorithm
		}
		_, exception := e.file.exception(e.node, algorithm, includedKeys)
		if l != nil && len(r.problems) == before {
			l.Except = append(l.Except, exception)
		}
	}
	for _, l := range r.limits {
		temporaryFirst(l.Except)
	}
}

// limitOf returns the limit that an exception names, or nil. Other problems of the exception are
// found later.
func (r *reader) limitOf(e includedException) *Limit {
	if e.node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(e.node.Content); i += 2 {
		if e.node.Content[i].Value != "limit" {
			continue
		}
		n := e.node.Content[i+1]
		name, ok := e.file.text(n, "limit")
		l := r.named[name]
		if ok && l == nil {
			names := slices.Sorted(maps.Keys(r.named))
			e.file.Add(n, "no limit has the name %q%s", name, yamlfile.Suggest(name, names))
		}
		return l
	}
	e.file.Add(e.node, "the exception does not name its limit")
	return nil
}
