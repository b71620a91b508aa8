package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"
)

// replaced is a file whose content is not that on disk.
type replaced struct {
	path string // absolute
	data []byte
	used bool
}

// ReadWith is [Read] as it would be if an included file had other content. The file need not be
// there yet. If the configuration does not include it, that is an error.
func ReadWith(path, included string, data []byte) (*File, error) {
	r := newReader(path)
	absolute, err := filepath.Abs(included)
	if err != nil {
		return r.out, err
	}
	r.replaced = &replaced{path: absolute, data: data}
	f, err := r.read()
	if !r.replaced.used {
		return r.out, fmt.Errorf("%s does not include %s", path, included)
	}
	return f, err
}

// is reports whether path is the file.
func (r *replaced) is(path string) bool {
	if absolute, err := filepath.Abs(path); err == nil && absolute == r.path {
		return true
	}
	a, errA := os.Stat(path)
	b, errB := os.Stat(r.path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// glob returns paths with that of the file, if a pattern matches it and it is not there yet.
func (r *replaced) glob(paths []string, pattern string) []string {
	absolute, err := filepath.Abs(pattern)
	if err != nil {
		return paths
	}
	if ok, err := filepath.Match(absolute, r.path); !ok || err != nil ||
		slices.ContainsFunc(paths, r.is) {
		return paths
	}
	return append(paths, filepath.Join(filepath.Dir(pattern), filepath.Base(r.path)))
}

// An Included is an exception of an included file, as it says it.
type Included struct {
	Limit, Max string
	Exception             // without its Rate, whose form is that of the limit
	Node       *yaml.Node // in the root
}

// ReadIncluded reads the exceptions of an included file without the configuration, and returns them
// with the root of the file, which is nil for an empty one. It does not read files of values. What
// is wrong is an error of type [Problems].
func ReadIncluded(path string, data []byte) (root *yaml.Node, exceptions []Included, err error) {
	r := newReader(path)
	r.alone = true
	root = r.included(r.file(path), data)
	for _, e := range r.later {
		fields, exception := e.file.exception(e.node, unknown, includedKeys)
		limit, maximum := fields["limit"], fields["max"]
		if limit == nil {
			e.file.Add(e.node, "the exception does not name its limit")
		}
		if limit != nil && maximum != nil {
			exceptions = append(exceptions, Included{limit.Value, maximum.Value, exception, e.node})
		}
	}
	return root, exceptions, r.problems.Err()
}
