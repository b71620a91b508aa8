package decision_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

func compiledForRaces() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// TestDecidesAlone: no other package of the service makes a limiter, or asks one.
func TestDecidesAlone(t *testing.T) {
	const library = "github.com/truewindow/ratelimit"
	functions := []string{"New", "Resume", "AllowAll", "PeekAll", "WaitAll", "ReserveAll",
		"AcquireAll"}
	accessors := []string{"Algorithms", "Limits", "Max"}
	type listed struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
	}
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles"}
	if compiledForRaces() { // as all packages are then, so that go list has to compile none
		args = append(args, "-race")
	}
	out, err := exec.CommandContext(t.Context(), "go", append(args, "../...")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	exports := make(map[string]string)
	var own []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if name, ok := strings.CutPrefix(p.ImportPath, library+"/cmd/ratelimit/"); ok &&
			name != "decision" {
			own = append(own, p)
		}
	}
	set := token.NewFileSet()
	config := types.Config{Importer: importer.ForCompiler(set, "gc",
		func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	if len(own) < 10 {
		t.Fatalf("%d packages", len(own))
	}
	for _, p := range own {
		var files []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
		if _, err := config.Check(p.ImportPath, set, files, info); err != nil {
			t.Fatal(err)
		}
		for id, used := range info.Uses {
			f, ok := used.(*types.Func)
			if !ok || f.Pkg() == nil || f.Pkg().Path() != library {
				continue
			}
			asks := slices.Contains(functions, f.Name())
			if of := f.Signature().Recv(); of != nil {
				asks = strings.HasSuffix(of.Type().String(), ".Limiter") &&
					!slices.Contains(accessors, f.Name()) || strings.HasPrefix(f.Name(), "Extend")
			}
			if asks {
				t.Errorf("%v: %s is for package decision", set.Position(id.Pos()), f.FullName())
			}
		}
	}
}
