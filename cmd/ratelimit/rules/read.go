package rules

import (
	"errors"
	"io/fs"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/readfile"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/yamlfile"
)

// A File is a configuration file with those that it includes.
type File struct {
	Store        Text // a URL
	PasswordFile Text
	// KeySecretFile has the secret of layer.HashedKeys.
	KeySecretFile Text
	OnFailure     Text // closed, open or local
	Instances     Number
	Set           *Set // of the limits; nil after an error
	// Paths are the files and the patterns of files that were read, so that a change can be seen.
	Paths []string
}

// A Text is a value of a file. It is empty if the file has none.
type Text struct {
	Value string
	At    Position
}

// A Number is a value of a file. It is 0 if the file has none.
type Number struct {
	Value int
	At    Position
}

// Read reads a configuration file in YAML, checks all of it, and compiles the limits. An error is
// of type [Problems]. The File is never nil, and has its Paths after an error too.
//
// In store, password_file and key_secret_file, ${NAME} is a variable of the environment, which has
// to be set. Included files have limits, and exceptions of limits by their name. These come after
// those of the limit itself, in the order of the files' paths. Exceptions that end come before all
// others.
func Read(path string) (*File, error) { return newReader(path).read() }

func (r *reader) read() (*File, error) {
	fail := func(err error) { r.file(r.path).AddAt(0, 0, "%v", err) }
	if data, ok := r.load(r.path, fail); ok {
		r.main(data)
		r.include(r.patterns)
	}
	return r.finish()
}

// maxSize bounds the files of a configuration together, in bytes.
const maxSize = 16 << 20

// A reader reads a configuration.
type reader struct {
	path     string // of the main file
	out      *File
	limits   []*Limit
	problems Problems
	size     int64 // of all files until now
	wrong    map[*Limit]bool
	named    map[string]*Limit
	patterns []*yaml.Node // of included files
	later    []includedException
	lists    map[valuesKey]*Values // of files; nil for one with problems
	values   int                   // of all lists and files until now
	replaced *replaced             // or nil
	alone    bool                  // without the main file, where paths begin
}

// includedException is an exception in an included file, whose limit may be in a later one.
type includedException struct {
	file *file
	node *yaml.Node
}

func newReader(path string) *reader {
	return &reader{path: path, out: new(File), wrong: make(map[*Limit]bool),
		named: make(map[string]*Limit), lists: make(map[valuesKey]*Values)}
}

func (r *reader) file(path string) *file {
	return &file{yamlfile.File{Name: path, Problems: &r.problems, Format: &format}, r}
}

// load reads a file whose size is bounded. It calls fail if the file cannot be read.
func (r *reader) load(path string, fail func(error)) (data []byte, ok bool) {
	r.out.Paths = append(r.out.Paths, path)
	if r.replaced != nil && r.replaced.is(path) {
		r.replaced.used = true
		return r.replaced.data, true
	}
	data, err := readfile.Regular(path, maxSize-r.size)
	r.size += int64(len(data))
	var pathError *fs.PathError
	switch {
	case errors.Is(err, readfile.ErrTooLarge):
		r.file(path).AddAt(0, 0, "all files together are larger than %d MiB", maxSize>>20)
	case errors.As(err, &pathError):
		fail(pathError.Err)
	case err != nil:
		fail(err)
	}
	return data, err == nil
}

var mainKeys = []string{"store", "password_file", "key_secret_file", "on_failure", "instances",
	"include", "limits"}

func (r *reader) main(data []byte) {
	f := r.file(r.path)
	root := f.Parse(data)
	switch {
	case root == nil:
		return
	case root.Kind == 0:
		f.AddAt(1, 1, "the file is empty")
		return
	case f.Other(root, "the file", mainKeys...):
		return
	}
	fields, _ := f.Fields(root, "the file", mainKeys...)
	r.out.Store = f.expand(fields["store"], "store")
	if s := r.out.Store; s.Value != "" {
		if _, err := backend.ParseURL(s.Value); err != nil {
			f.Add(fields["store"], "%s", textOf(err))
		}
	}
	r.out.PasswordFile = f.expand(fields["password_file"], "password_file")
	r.out.KeySecretFile = f.expand(fields["key_secret_file"], "key_secret_file")
	if n := fields["on_failure"]; n != nil {
		r.out.OnFailure = Text{f.choice(n, "on_failure", "closed", "open", "local"), f.At(n)}
	}
	if n := fields["instances"]; n != nil {
		r.out.Instances = Number{f.count(n, "instances", 1), f.At(n)}
	}
	if n := fields["limits"]; n != nil {
		r.addLimits(f, n)
	}
	if n := fields["include"]; n != nil {
		r.patterns = []*yaml.Node{n}
		if n.Kind == yaml.SequenceNode {
			r.patterns = n.Content
		}
	}
}

func (r *reader) addLimits(f *file, n *yaml.Node) {
	for _, element := range f.List(n, "limits") {
		if len(r.problems) > yamlfile.MaxProblems {
			return
		}
		before := len(r.problems)
		l := f.limit(element)
		if len(r.problems) > before {
			r.wrong[l] = true
		}
		r.limits = append(r.limits, l)
		if r.named[l.Name] == nil {
			r.named[l.Name] = l
		}
	}
}

// finish compiles the limits, and checks them together.
func (r *reader) finish() (*File, error) {
	r.exceptions()
	r.problems = append(r.problems, checkNames(r.limits)...)
	right := slices.DeleteFunc(r.limits, func(l *Limit) bool { return r.wrong[l] })
	set := newSet(right, nil, &r.problems)
	set.checkReach(&r.problems)
	if err := r.problems.Err(); err != nil {
		return r.out, err
	}
	r.out.Set = set
	return r.out, nil
}
