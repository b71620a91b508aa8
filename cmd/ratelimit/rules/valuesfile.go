package rules

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/yamlfile"
)

// A valuesKey says what a file of values was read as: only some entries have networks.
type valuesKey struct {
	path     string
	networks bool
}

// valuesFile reads {file: PATH}. It returns nil if there are problems.
func (f *file) valuesFile(n *yaml.Node, what, entry string) *Values {
	r := f.reader
	before := len(r.problems)
	fields, _ := f.Fields(n, what, "file")
	name := fields["file"]
	if name == nil {
		if len(r.problems) == before {
			f.Add(n, "%s has no file, as in {file: partners.txt}", what)
		}
		return nil
	}
	text, ok := f.text(name, "file")
	switch {
	case !ok:
		return nil
	case !filepath.IsLocal(text):
		f.Add(name, "file: %q is not below the folder of the limits file", text)
		return nil
	}
	if r.alone {
		return values(nil, text)
	}
	path := filepath.Join(filepath.Dir(r.path), text)
	key := valuesKey{path, slices.Contains(networkEntries, entry)}
	if had, ok := r.lists[key]; ok {
		if had == nil {
			f.Add(name, "file: %s has problems", path)
		}
		return had
	}
	r.lists[key] = nil
	data, ok := r.load(path, func(err error) { f.Add(name, "file: %s: %v", path, err) })
	if !ok {
		return nil
	}
	before = len(r.problems)
	elements := r.file(path).lines(data, entry)
	if len(r.problems) == before {
		r.lists[key] = values(elements, text)
	}
	return r.lists[key]
}

// lines reads a file with a value in each line. What is wrong is said without its text: the file
// may be of something else, and secret.
func (f *file) lines(data []byte, entry string) []element {
	elements := make([]element, 0, bytes.Count(data, []byte("\n"))+1)
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(string(data), "\ufeff")) {
		number++
		text := strings.TrimSpace(uncommented(line))
		if text == "" {
			continue
		}
		e, err := elementOf(text, entry)
		switch {
		case len(f.reader.problems) > yamlfile.MaxProblems:
			return nil
		case !utf8.ValidString(text):
			f.AddAt(number, 1, "this is not UTF-8")
		case err != nil:
			f.AddAt(number, 1, "%v", err)
		case !f.reader.spend(1):
			f.AddAt(number, 1, "the lists and files have more than %d values", maxValues)
			return nil
		default:
			elements = append(elements, e)
		}
	}
	return elements
}

// uncommented returns a line without what follows a # at its begin or after a space.
func uncommented(line string) string {
	for from := 0; ; {
		i := strings.IndexByte(line[from:], '#')
		if i < 0 {
			return line
		}
		if i += from; i == 0 || line[i-1] == ' ' || line[i-1] == '\t' {
			return line[:i]
		}
		from = i + 1
	}
}
