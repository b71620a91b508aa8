package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestFollowAfterError: a load that fails because of an included file follows that file, so that it
// is loaded again when the file is mended.
func TestFollowAfterError(t *testing.T) {
	dir := t.TempDir()
	main, included := filepath.Join(dir, "main.yaml"), filepath.Join(dir, "more", "a.yaml")
	if err := os.Mkdir(filepath.Dir(included), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		main:     "include: [more/*.yaml]\nlimits: [{name: calls, max: 10/1m, key: [user]}]\n",
		included: "nonsense: true\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Source{Path: main}.Load()
	if err == nil {
		t.Fatal("no error")
	}
	follows := func(path string) bool {
		return slices.ContainsFunc(c.Follow, func(pattern string) bool {
			matches, err := filepath.Match(pattern, path)
			return matches && err == nil
		})
	}
	if !follows(main) || !follows(included) {
		t.Errorf("after %v: only %q are followed", err, c.Follow)
	}
}
