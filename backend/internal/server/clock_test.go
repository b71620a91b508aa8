package server

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNoWallClock: no store on servers reads the wall clock, which may be wrong and may step.
// Stores measure time with time.Since, and the servers decide. To read the wall clock takes one of
// these methods.
func TestNoWallClock(t *testing.T) {
	stamps := []string{
		"Unix", "UnixMilli", "UnixMicro", "UnixNano", "Round", "Truncate",
		"UTC", "Local", "In", "Format", "Clock", "Date",
	}
	for _, dir := range []string{
		".", "../batch", "../denycache", "../detached", "../gate", "../keyspace", "../pipelined",
		"../../redis", "../../rueidis", "../../valkey",
	} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) < 2 {
			t.Fatalf("%v, %v", files, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if sel, ok := call.Fun.(*ast.SelectorExpr); ok &&
						slices.Contains(stamps, sel.Sel.Name) {
						t.Errorf("%v: %s", fset.Position(call.Pos()), sel.Sel.Name)
					}
				}
				return true
			})
		}
	}
}
