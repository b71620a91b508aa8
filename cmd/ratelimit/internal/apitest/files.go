package apitest

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// WriteFile writes a file of a test and returns its path.
func WriteFile(t testing.TB, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// ConfigFile writes a file of limits and returns its path.
func ConfigFile(t testing.TB, content string) string {
	t.Helper()
	return WriteFile(t, filepath.Join(t.TempDir(), "limits.yaml"), content)
}

// Blocks of pages.
var (
	YAMLBlock    = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	ConsoleBlock = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")
)

// TokenFile writes a file of tokens and returns its path.
func TokenFile(t *testing.T, tokens string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
