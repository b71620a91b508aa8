package decision_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDecidesAlone: no other package of the service makes or calls a limiter.
func TestDecidesAlone(t *testing.T) {
	makers := []string{"New", "Resume", "AllowAll", "PeekAll", "ReserveAll", "AcquireAll"}
	methods := []string{"Allow", "AllowN", "Wait", "WaitN", "Peek", "PeekN", "Reserve", "ReserveN",
		"Acquire", "AcquireN", "Force", "Reset"}
	files := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "decision":
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		files++
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			from := ""
			switch x := s.X.(type) {
			case *ast.Ident:
				from = x.Name
			case *ast.SelectorExpr:
				from = x.Sel.Name
			}
			if from == "ratelimit" && slices.Contains(makers, s.Sel.Name) ||
				strings.HasSuffix(strings.ToLower(from), "limiter") &&
					slices.Contains(methods, s.Sel.Name) {
				t.Errorf("%v: %s.%s is for package decision",
					set.Position(s.Pos()), from, s.Sel.Name)
			}
			return true
		})
		return nil
	})
	if err != nil || files < 50 {
		t.Errorf("%d files: %v", files, err)
	}
}
