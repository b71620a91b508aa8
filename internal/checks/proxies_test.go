package checks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestProxyConfigurations checks that docs/proxies.md has the configurations that are tested.
func TestProxyConfigurations(t *testing.T) {
	t.Chdir(root)
	page, err := os.ReadFile("docs/proxies.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("integration/edges/testdata/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), "\n"+string(text)+"```\n") {
			t.Errorf("docs/proxies.md does not have %s as a block", file)
		}
	}
}
