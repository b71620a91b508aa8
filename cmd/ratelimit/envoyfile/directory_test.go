package envoyfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// makeTree makes files below a directory, each with its path as its text.
func makeTree(t *testing.T, paths ...string) (root string) {
	t.Helper()
	root = t.TempDir()
	for _, path := range paths {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func textsOf(t *testing.T, files []File, err error) []string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, f := range files {
		if !strings.HasSuffix(f.Name, filepath.FromSlash(string(f.Text))) {
			t.Errorf("%s has the text of %s", f.Name, f.Text)
		}
		texts = append(texts, string(f.Text))
	}
	return texts
}

func TestRuntime(t *testing.T) {
	root := makeTree(t, "sub/config/b.yaml", "sub/config/a.yaml", "sub/config/deep/c.yaml",
		"sub/config.yaml", "sub/other/d.yaml", "sub/config/.e.yaml", "sub/config/.git/f.yaml",
		"sub/configuration/g.yaml", "config/h.yaml")
	all := []string{"sub/config/.e.yaml", "sub/config/.git/f.yaml", "sub/config/a.yaml",
		"sub/config/b.yaml", "sub/config/deep/c.yaml"}
	for _, c := range []struct {
		runtime Runtime
		want    []string
	}{
		{Runtime{Subdirectory: "sub", AppDirectory: "config", WatchRoot: true},
			append(slices.Clone(all), "sub/config.yaml")},
		{Runtime{Subdirectory: "sub", AppDirectory: "config"}, all},
		{Runtime{Subdirectory: "sub", AppDirectory: "config", IgnoreDotFiles: true}, all[2:]},
		{Runtime{AppDirectory: "config", WatchRoot: true}, []string{"config/h.yaml"}},
	} {
		c.runtime.Root = root
		files, err := c.runtime.ReadFiles()
		if got := textsOf(t, files, err); !slices.Equal(got, c.want) {
			t.Errorf("%+v has %q, want %q", c.runtime, got, c.want)
		}
	}
	missing := Runtime{Root: root, Subdirectory: "none", AppDirectory: "config"}
	if _, err := missing.ReadFiles(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that does not exist: %v", err)
	}
}

// Kubernetes has the files of a volume in a directory, and links to them.
func TestRuntimeOfKubernetes(t *testing.T) {
	root := makeTree(t, "sub/config/..2026_11_26/a.yaml")
	config := filepath.Join(root, "sub", "config")
	link := func(target, name string) {
		if err := os.Symlink(target, filepath.Join(config, name)); err != nil {
			t.Skip(err)
		}
	}
	link("..2026_11_26", "..data")
	link(filepath.Join("..data", "a.yaml"), "a.yaml")
	link("..2026_11_26", "linked") // a directory
	for _, watchRoot := range []bool{true, false} {
		r := Runtime{Root: root, Subdirectory: "sub", AppDirectory: "config", WatchRoot: watchRoot}
		files, err := r.ReadFiles()
		if err != nil || len(files) != 1 || files[0].Name != filepath.Join(config, "a.yaml") {
			t.Errorf("the files are %+v, %v", files, err)
		}
	}
	current := filepath.Join(root, "current")
	if err := os.Symlink(config, current); err != nil {
		t.Skip(err)
	}
	files, err := Runtime{Root: root, AppDirectory: "current"}.ReadFiles()
	if err != nil || len(files) != 1 {
		t.Errorf("behind a link the files are %+v, %v", files, err)
	}
}

func TestReadFiles(t *testing.T) {
	root := makeTree(t, "a.yaml")
	a, b := filepath.Join(root, "a.yaml"), filepath.Join(root, "b.yaml")
	files, err := ReadFiles(a)
	if got := textsOf(t, files, err); !slices.Equal(got, []string{"a.yaml"}) {
		t.Errorf("the files are %q", got)
	}
	_, err = ReadFiles(b, a, root)
	if err == nil || !strings.Contains(err.Error(), b) ||
		!strings.Contains(err.Error(), root+": this is not") {
		t.Errorf("the error is %v", err)
	}
}
