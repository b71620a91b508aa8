package tree_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/truewindow/ratelimit/internal/tree"
)

func TestLoad(t *testing.T) {
	const doc = "// Package root begins\n// here. And goes on.\n"
	const imports = "import (\n_ \"" + tree.Module + "\"\n_ \"" + tree.Module + "/c/d\"\n)\n"
	root := t.TempDir()
	for name, text := range map[string]string{
		"root.go":            doc + "package root\nimport _ \"fmt\"\nfunc f() { g() }\n",
		"root_test.go":       "package root_test\n" + imports + "func f() { g(); g() }\n",
		"b/b.go":             "package b\n" + imports + "func f() { g() }\n",
		"c/d/doc.go":         "package d\n",
		"c/d/d_test.go":      "package d\nimport _ \"" + tree.Module + "/b\"\nfunc f() { g() }\n",
		"b/testdata/no.go":   "not Go",
		".git/no.go":         "not Go",
		"c/README.md":        "not Go",
		"c/testdata/x/no.go": "not Go",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	packages, err := tree.Load(token.NewFileSet(), root)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		dir, name, doc   string
		code, statements int
		testsOnly        bool
	}
	var got []row
	for _, p := range packages {
		got = append(got, row{p.Dir, p.Name, p.Doc, len(p.Code()), p.Statements(), p.TestsOnly()})
	}
	want := []row{
		{".", "root", "Package root begins here.", 1, 1, false},
		{"b", "b", "", 1, 1, false},
		{"c/d", "d", "", 2, 1, true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for i, want := range [][]string{nil, {".", "c/d"}, {"b"}} {
		if got := packages[i].Imports(); !slices.Equal(got, want) {
			t.Errorf("%s imports %q, want %q", packages[i].Dir, got, want)
		}
	}
}

func TestLoadReportsWhatIsNoGo(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a.go"), []byte("no Go"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Load(token.NewFileSet(), root); err == nil {
		t.Error("no error")
	}
}

// The counts are those of "go test -coverprofile".
func TestStatements(t *testing.T) {
	for _, test := range []struct {
		body string
		want int
	}{
		{"", 0},
		{"a(); b()", 2},
		{"if x := a(); x { b() } else { c() }", 3},
		{"if a { b() } else if c { d() }", 4},
		{"for range a { b() }", 2},
		{"switch a { case 1: b(); c(); default: }", 3},
		{"switch a.(type) { case int: b() }", 2},
		{"select { case <-a: b() }", 2},
		{"a(func() { b() })", 2},
	} {
		var f *ast.File
		f, err := parser.ParseFile(token.NewFileSet(), "", "package p; func f() {"+test.body+"}", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := tree.Statements(f); got != test.want {
			t.Errorf("%s: %d statements, want %d", test.body, got, test.want)
		}
	}
}
