// Package tree reads the packages of this repository from their source.
package tree

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Module is the path of the module at the root of the repository.
const Module = "github.com/truewindow/ratelimit"

// A Package is a directory with Go files, of all platforms and build tags.
type Package struct {
	Dir   string // from the root, such as "backend/redis"; "." is the root
	Name  string
	Doc   string // the first sentence of the package comment
	Files []File // sorted by name
}

// A File is a Go file.
type File struct {
	Name   string // without the directory
	Test   bool
	Syntax *ast.File
}

// Load returns the packages below root, sorted by directory.
func Load(fset *token.FileSet, root string) ([]*Package, error) {
	byDir := make(map[string]*Package)
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != root && (name == "testdata" || strings.HasPrefix(name, ".")):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".go":
			return nil
		}
		const mode = parser.ParseComments | parser.SkipObjectResolution
		syntax, err := parser.ParseFile(fset, file, nil, mode)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		dir = filepath.ToSlash(dir)
		if byDir[dir] == nil {
			byDir[dir] = &Package{Dir: dir}
		}
		test := strings.HasSuffix(name, "_test.go")
		byDir[dir].add(File{Name: name, Test: test, Syntax: syntax})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("tree: %w", err)
	}
	return slices.SortedFunc(maps.Values(byDir), func(a, b *Package) int {
		return strings.Compare(a.Dir, b.Dir)
	}), nil
}

func (p *Package) add(f File) {
	p.Files = append(p.Files, f)
	p.Name = strings.TrimSuffix(f.Syntax.Name.Name, "_test")
	if f.Syntax.Doc != nil {
		p.Doc = new(doc.Package).Synopsis(f.Syntax.Doc.Text())
	}
}

// TestsOnly reports whether all statements of p are in tests.
func (p *Package) TestsOnly() bool {
	has := func(test bool) bool {
		return slices.ContainsFunc(p.Files, func(f File) bool {
			return f.Test == test && Statements(f.Syntax) > 0
		})
	}
	return has(true) && !has(false)
}

// Code returns the files that count as p's code: those that are not tests, or all if p has only
// tests.
func (p *Package) Code() []File {
	if p.TestsOnly() {
		return p.Files
	}
	return slices.DeleteFunc(slices.Clone(p.Files), func(f File) bool { return f.Test })
}

// Statements returns the number of statements in p's code.
func (p *Package) Statements() (n int) {
	for _, f := range p.Code() {
		n += Statements(f.Syntax)
	}
	return n
}

// Imports returns the directories of the packages of this repository that p's code imports, sorted.
func (p *Package) Imports() []string {
	var dirs []string
	for _, f := range p.Code() {
		for _, spec := range f.Syntax.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if dir, ok := strings.CutPrefix(name+"/", Module+"/"); err == nil && ok {
				dirs = append(dirs, path.Clean(dir))
			}
		}
	}
	slices.Sort(dirs)
	return slices.DeleteFunc(slices.Compact(dirs), func(dir string) bool { return dir == p.Dir })
}

// Statements returns the number of statements in n. It counts those in the lists of blocks and
// clauses, and each else if, as the coverage tool does.
func Statements(n ast.Node) (count int) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			count += len(n.List)
		case *ast.CaseClause:
			count += len(n.Body)
		case *ast.CommClause:
			count += len(n.Body)
		case *ast.SwitchStmt:
			count -= len(n.Body.List) // clauses are not statements
		case *ast.TypeSwitchStmt:
			count -= len(n.Body.List)
		case *ast.SelectStmt:
			count -= len(n.Body.List)
		case *ast.IfStmt:
			if _, ok := n.Else.(*ast.IfStmt); ok {
				count++
			}
		}
		return true
	})
	return count
}
