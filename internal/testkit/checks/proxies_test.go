package checks

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestProxyConfigurations checks that docs/proxies.md has the configurations that are tested.
func TestProxyConfigurations(t *testing.T) {
	t.Chdir(root)
	page := readFile(t, "docs/proxies.md")
	files, err := filepath.Glob("integration/edges/testdata/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		text := readFile(t, file)
		if !strings.Contains(page, "\n"+text+"```\n") {
			t.Errorf("docs/proxies.md does not have %s as a block", file)
		}
	}
}
