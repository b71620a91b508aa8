package checks

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestProxyConfigurations checks that docs/proxies.md shows the configurations that are tested, or
// links to them, and shows no other.
func TestProxyConfigurations(t *testing.T) {
	t.Chdir(root)
	page := readFile(t, "docs/proxies.md")
	files, err := filepath.Glob("deploy/proxies/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	shown := 0
	for _, file := range files {
		switch {
		case strings.Contains(page, "\n"+readFile(t, file)+"```\n"):
			shown++
		case !strings.Contains(page, "](../"+filepath.ToSlash(file)+")"):
			t.Errorf("docs/proxies.md neither has %s as a block nor links to it", file)
		}
	}
	blocks := strings.Count(page, "\n```nginx\n") + strings.Count(page, "\n```caddy\n")
	if blocks != shown {
		t.Errorf("docs/proxies.md has %d configurations, %d of which are tested", blocks, shown)
	}
}
