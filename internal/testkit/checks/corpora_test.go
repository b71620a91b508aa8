package checks

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCorpora: each corpus has its target in the same package, of all modules. Nothing runs the
// seeds of a target that has moved.
func TestCorpora(t *testing.T) {
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || filepath.Base(filepath.Dir(path)) != "fuzz" ||
			!strings.HasSuffix(filepath.Dir(path), "/testdata/fuzz") {
			return err
		}
		found++
		tests, err := filepath.Glob(filepath.Join(path, "../../../*_test.go"))
		if err != nil {
			return err
		}
		target := regexp.MustCompile(`(?m)^func ` + d.Name() + `\(`)
		for _, test := range tests {
			text, err := os.ReadFile(test)
			if err != nil || target.Match(text) {
				return err
			}
		}
		t.Errorf("%s has no target", path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Error("no corpus")
	}
}
