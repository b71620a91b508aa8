package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit/internal/tree"
)

// checker finds out which files of a package use each other.
type checker struct {
	fset    *token.FileSet
	root    string
	exports map[string]string // import path → file with the types of the package
}

func newChecker(fset *token.FileSet, root string) (*checker, error) {
	c := &checker{fset: fset, root: root, exports: make(map[string]string)}
	modules, err := filepath.Glob(filepath.Join(root, "*", "go.mod"))
	if err != nil {
		return nil, err
	}
	for _, file := range append(modules, filepath.Join(root, "go.mod")) {
		if err := c.list(filepath.Dir(file)); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// list compiles the packages that the module in dir imports, also in tests, and notes their files.
func (c *checker) list(dir string) error {
	cmd := exec.Command("go", "list", "-deps", "-test", "-export",
		"-json=ImportPath,Export", "./...")
	cmd.Dir = dir
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list in %s: %w\n%s", dir, err, &problems)
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if c.exports[p.ImportPath] == "" {
			c.exports[p.ImportPath] = p.Export
		}
	}
}

func (c *checker) open(path string) (io.ReadCloser, error) { return os.Open(c.exports[path]) }

// uses returns the dependencies between the files of p's code that this platform compiles.
func (c *checker) uses(p *tree.Package) (*graph, error) {
	dir := filepath.Join(c.root, filepath.FromSlash(p.Dir))
	groups := make(map[string][]*ast.File) // by package clause, as some tests have another one
	g := &graph{}
	for _, f := range p.Code() {
		ok, err := build.Default.MatchFile(dir, f.Name)
		if err != nil {
			return nil, err
		}
		g.files = append(g.files, f.Name)
		if ok {
			groups[f.Syntax.Name.Name] = append(groups[f.Syntax.Name.Name], f.Syntax)
		}
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: importer.ForCompiler(c.fset, "gc", c.open)}
	for name, files := range groups {
		if _, err := config.Check(tree.Module+"/"+p.Dir+"#"+name, c.fset, files, info); err != nil {
			return nil, err
		}
		for _, f := range files {
			for _, decl := range f.Decls {
				c.addUses(g, files, decl, info)
			}
		}
	}
	return g, nil
}

// addUses adds to g the uses in decl of declarations in other files.
func (c *checker) addUses(g *graph, files []*ast.File, decl ast.Decl, info *types.Info) {
	own := receiver(files, decl)
	from := c.file(decl.Pos())
	ast.Inspect(decl, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok || info.Uses[id] == nil {
			return true
		}
		at := info.Uses[id].Pos()
		to := c.file(at)
		inPackage := slices.ContainsFunc(files, func(f *ast.File) bool {
			return f.FileStart <= at && at < f.FileEnd
		})
		if to != from && inPackage && (own == nil || at < own.Pos() || at >= own.End()) {
			g.add(from, to)
		}
		return true
	})
}

func (c *checker) file(at token.Pos) string {
	if !at.IsValid() {
		return ""
	}
	return filepath.Base(c.fset.Position(at).Filename)
}

// receiver returns the declaration of the receiver's type if decl is a method, or nil.
func receiver(files []*ast.File, decl ast.Decl) (spec *ast.TypeSpec) {
	f, ok := decl.(*ast.FuncDecl)
	if !ok || f.Recv == nil {
		return nil
	}
	name := receiverName(f)
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.TypeSpec); ok && s.Name.Name == name {
				spec = s
			}
			_, body := n.(*ast.BlockStmt)
			return !body
		})
	}
	return spec
}

func receiverName(f *ast.FuncDecl) (name string) {
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return true
	})
	return name
}

// longest returns the longest function of p's code and its number of lines.
func longest(fset *token.FileSet, p *tree.Package) (name string, lines int) {
	for _, file := range p.Code() {
		for _, decl := range file.Syntax.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := fset.Position(f.End()).Line - fset.Position(f.Pos()).Line + 1; n > lines {
				name, lines = f.Name.Name, n
				if f.Recv != nil {
					name = receiverName(f) + "." + name
				}
			}
		}
	}
	return name, lines
}
