package shipping

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestNames: the service knows every variable in the files of deploy, in the Dockerfile, and on the
// page about them.
func TestNames(t *testing.T) {
	help, err := exec.Command(daemon.Build(t), "serve", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	variable := regexp.MustCompile(`\bRATELIMIT_[A-Z_]+\b`)
	known := make(map[string]bool)
	for _, name := range variable.FindAllString(string(help), -1) {
		known[name] = true
	}
	files := []string{"Dockerfile", "docs/deploy.md"}
	if err := fs.WalkDir(os.DirFS(servers.Module), "deploy",
		func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				files = append(files, path)
			}
			return err
		}); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(servers.Module, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range variable.FindAllString(string(text), -1) {
			found++
			if !known[name] {
				t.Errorf("%s has %s, which is no variable of the service", file, name)
			}
		}
	}
	if found == 0 {
		t.Error("no variables are found")
	}
}
