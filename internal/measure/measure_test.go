package main

import (
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTable measures a module whose files use each other.
func TestTable(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module github.com/truewindow/ratelimit\n\ngo 1.26\n",
		"top.go": "package p\n\nfunc top() {\n\tt{}.left()\n}\n",
		// Uses of the receiver's type and its fields do not count, uses of its other methods do.
		"left.go":    "package p\n\nfunc (x t) left() { _ = x.f; right() }\n",
		"right.go":   "package p\n\nfunc right() { t{}.left() }\n",
		"type.go":    "package p\n\ntype t struct{ f int }\n",
		"sub/s.go":   "package s\n",
		"script.lua": "local function f()\n  if x then y() end\nend\nf()\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := run(&out, root, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| . | 4 | 4 | 2 | 1 | top | 3 |\n",
		"| sub | 1 | 0 | 1 | 0 |  | 0 |\n",
		"\n.: left.go uses right.go\n",
		"\n| script.lua | 4 | f | 3 |\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line %q in\n%s", want, &out)
		}
	}
}

func TestNoRepository(t *testing.T) {
	if _, err := newChecker(token.NewFileSet(), t.TempDir()); err == nil {
		t.Error("no error")
	}
}

func TestLevels(t *testing.T) {
	for _, test := range []struct {
		edges  string
		levels int
		up     int
	}{
		{"", 1, 0},
		{"ab bc ac", 3, 0},
		{"ab ba", 2, 1},
		{"ab bc ca", 3, 1},
		{"ab bc ca bd db", 3, 2},
	} {
		g := &graph{files: []string{"d", "c", "b", "a"}}
		for _, e := range strings.Fields(test.edges) {
			g.add(e[:1], e[1:])
			g.add(e[:1], e[1:])
		}
		levels, up := g.levels()
		if levels != test.levels || len(up) != test.up {
			t.Errorf("%s: %d levels and %v up, want %d and %d",
				test.edges, levels, up, test.levels, test.up)
		}
		if slices.Sort(g.files); strings.Join(g.files, "") != "abcd" {
			t.Errorf("the files are now %q", g.files)
		}
	}
}

func TestLongestLua(t *testing.T) {
	for _, test := range []struct {
		source, name string
		lines        int
	}{
		{"a()\nb()\n", "(body)", 2},
		{"local f = function()\n  -- end\n  return 'end'\nend\n", "f", 4},
		{"function m.f()\n  for i = 1, 2 do\n  end\n  repeat\n  until x\nend\na()\n", "m.f", 6},
		{"function f()\n  local function g()\n  end\nend\n", "f", 4},
		{"run(function()\nend)\n", "(anonymous)", 2},
		{"--[[ function\n]]\na()\nfunction f() end\n", "(body)", 3},
		{"end\n", "(body)", 1},
	} {
		if name, lines := longestLua(test.source); name != test.name || lines != test.lines {
			t.Errorf("%q: %s of %d lines, want %s of %d",
				test.source, name, lines, test.name, test.lines)
		}
	}
}
