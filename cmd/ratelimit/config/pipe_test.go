package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPipe: a pipe in place of a file is an error at once, wherever it is.
func TestPipe(t *testing.T) {
	dir := t.TempDir()
	for _, folder := range []string{"own", "envoy"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(filepath.Join(dir, folder, "pipe"), 0o600); err != nil {
			t.Skip(err)
		}
	}
	main := filepath.Join(dir, "own", "main.yaml")
	if err := os.WriteFile(main, []byte("include: [pipe, p*]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{main, filepath.Join(dir, "own", "pipe"),
		filepath.Join(dir, "envoy")} {
		c, err := Source{Path: path}.Load()
		if err == nil || !strings.Contains(err.Error(), "not a regular file") ||
			len(c.Follow) == 0 {
			t.Errorf("%s: %v, %+v", path, err, c)
		}
	}
}
