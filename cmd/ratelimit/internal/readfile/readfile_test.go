package readfile

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestRegular: what is no regular file is an error at once, also behind a link.
func TestRegular(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(path("file"), []byte("1234"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path("pipe"), 0o600); err != nil {
		t.Skip(err)
	}
	socket, err := net.Listen("unix", path("socket"))
	if err != nil {
		t.Skip(err)
	}
	defer socket.Close()
	for link, to := range map[string]string{
		"link": "file", "again": "link", "piped": "pipe", "zero": "/dev/zero", "to": "nothing",
	} {
		if err := os.Symlink(to, path(link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]error{
		"file": nil, "link": nil, "again": nil, "nothing": os.ErrNotExist, "to": os.ErrNotExist,
		"pipe": ErrNotRegular, "piped": ErrNotRegular, "socket": ErrNotRegular, ".": ErrNotRegular,
		"zero": ErrNotRegular,
	} {
		data, err := Regular(path(name), 4)
		if !errors.Is(err, want) || err == nil && string(data) != "1234" {
			t.Errorf("%s: %q, %v, want %v", name, data, err, want)
		}
	}
	if _, err := Regular(path("file"), 3); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a byte too many: %v", err)
	}
}
