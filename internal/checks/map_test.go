package checks

import (
	"go/ast"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/internal/tree"
)

var (
	identifier = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)?$`)
	testName   = regexp.MustCompile(`^(Test|Fuzz)[A-Z]\w*$`)
	makeTarget = regexp.MustCompile(`^make ([a-z-]+)`)
	lineBreak  = regexp.MustCompile(`\n +([^ *\d-])`) // in a paragraph of a list
	luaName    = regexp.MustCompile(`\blocal (?:function )?([\w, <>]+)|\bfunction ([\w.]+)`)
)

// TestMapIsTrue checks that everything in backquotes in docs/map.md exists: paths, targets of make,
// tests, cases of the conformance suite, and names that a file in the same line declares.
func TestMapIsTrue(t *testing.T) {
	t.Chdir(root)
	page := readFile(t, "docs/map.md")
	makefile := readFile(t, "Makefile")
	sources, declared := goSources(t), declarations(t)
	_, text, _ := strings.Cut(page, "<!-- end of rooms -->")
	before, _, _ := strings.Cut(page, "<!-- rooms")
	found := 0
	for line := range strings.Lines(lineBreak.ReplaceAllString(before+text, " $1")) {
		var names []string // that the files of the line declare
		spans := inBackquotes.FindAllStringSubmatch(line, -1)
		for _, span := range spans {
			names = append(names, declared[span[1]]...)
		}
		for _, span := range spans {
			found++
			name := span[1]
			target := makeTarget.FindStringSubmatch(name)
			switch {
			case target != nil:
				if !strings.Contains(makefile, "\n"+target[1]+": ") {
					t.Errorf("the Makefile has no target %s, in\n%s", target[1], line)
				}
			case testName.MatchString(name):
				if !strings.Contains(sources, "\nfunc "+name+"(") {
					t.Errorf("there is no test %s", name)
				}
			case exists(name) || strings.Contains(sources, `name: "`+name+`"`):
			case !identifier.MatchString(name) || !slices.Contains(names, name):
				t.Errorf("%q is not a path, and no file in this line declares it:\n%s", name, line)
			}
		}
	}
	if found == 0 {
		t.Error("found nothing in backquotes")
	}
}

// exists reports whether there is such a file or directory; * stands for any part of a name.
func exists(name string) bool {
	paths, err := filepath.Glob(name)
	return err == nil && len(paths) > 0
}

// declarations returns the names that each Go and Lua file declares, by path.
func declarations(t *testing.T) map[string][]string {
	t.Helper()
	packages, err := tree.Load(token.NewFileSet(), ".")
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string][]string)
	for _, p := range packages {
		for _, f := range p.Files {
			names[path.Join(p.Dir, f.Name)] = goNames(f.Syntax)
		}
	}
	for _, pattern := range []string{"*/*.lua", "*/*/*.lua", "*/*/*/*.lua"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text := readFile(t, file)
			for _, m := range luaName.FindAllStringSubmatch(text, -1) {
				all := strings.ReplaceAll(m[1]+" "+m[2], ",", " ")
				names[file] = append(names[file], strings.Fields(all)...)
			}
		}
	}
	return names
}

// goNames returns what a file declares: Name, Type.Method, Type.Field.
func goNames(f *ast.File) (names []string) {
	for _, decl := range f.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			name := decl.Name.Name
			if decl.Recv != nil {
				name = baseName(decl.Recv.List[0].Type) + "." + name
			}
			names = append(names, name)
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				names = append(names, specNames(spec)...)
			}
		}
	}
	return names
}

func specNames(spec ast.Spec) (names []string) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for _, id := range spec.Names {
			names = append(names, id.Name)
		}
	case *ast.TypeSpec:
		names = append(names, spec.Name.Name)
		var fields *ast.FieldList
		switch typ := spec.Type.(type) {
		case *ast.StructType:
			fields = typ.Fields
		case *ast.InterfaceType:
			fields = typ.Methods
		default:
			return names
		}
		for _, field := range fields.List {
			for _, id := range field.Names {
				names = append(names, spec.Name.Name+"."+id.Name)
			}
		}
	}
	return names
}

func baseName(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.StarExpr:
		return baseName(expr.X)
	case *ast.IndexExpr:
		return baseName(expr.X)
	case *ast.Ident:
		return expr.Name
	}
	return ""
}
