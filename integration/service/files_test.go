package service

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/truewindow/ratelimit/integration/daemon"
)

const (
	same    = 25 // units an hour, in every file
	smaller = 15
	larger  = 25
)

// limitsFile returns a file with the limit "same", the limit "changing" of max units an hour, and
// others.
func limitsFile(max, others int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "limits:\n  - {name: same, key: [same], max: %d/1h}\n"+
		"  - {name: changing, key: [changing], max: %d/1h}\n", same, max)
	for i := range others {
		fmt.Fprintf(&b, "  - {name: other%d, when: {tenant: tenant%d, path: /v%d*}, "+
			"key: [tenant, user], max: %d/1m}\n", i, i, i%10, 100+i)
	}
	return b.String()
}

// broken returns a file with an error at its end.
func broken(others int) string {
	return limitsFile(1, others) + "  - {name: broken, max: many}\n"
}

// A change puts the content of the file of a service in place.
type change func(t *testing.T, d *daemon.Daemon, content string)

// A way is how files change.
type way struct {
	name   string
	others int // limits beside the two that are tested
	// start writes the first content, and returns the path of the file and what changes it.
	start func(t *testing.T, content string) (path string, to change)
}

var ways = []way{
	{name: "rename", start: byRename},
	{name: "links", start: byLinks},
	{name: "hangup", others: 10_000, start: byHangup},
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

// byRename writes another file and renames it.
func byRename(t *testing.T, content string) (string, change) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, content)
	return path, func(t *testing.T, _ *daemon.Daemon, content string) {
		write(t, path+".new", content)
		rename(t, path+".new", path)
	}
}

// byHangup is byRename with a SIGHUP afterwards.
func byHangup(t *testing.T, content string) (string, change) {
	path, to := byRename(t, content)
	return path, func(t *testing.T, d *daemon.Daemon, content string) {
		to(t, d, content)
		d.Signal(t, syscall.SIGHUP)
	}
}

// byLinks does what Kubernetes does in a mounted ConfigMap: the file is a link through ..data to a
// directory, and another directory takes its place.
func byLinks(t *testing.T, content string) (string, change) {
	dir := t.TempDir()
	version := 0
	next := func(t *testing.T, content string) string {
		version++
		name := fmt.Sprintf("..version%d", version)
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "limits.yaml"), content)
		return name
	}
	data := filepath.Join(dir, "..data")
	link(t, next(t, content), data)
	path := filepath.Join(dir, "limits.yaml")
	link(t, filepath.Join("..data", "limits.yaml"), path)
	return path, func(t *testing.T, _ *daemon.Daemon, content string) {
		old, err := os.Readlink(data)
		if err != nil {
			t.Fatal(err)
		}
		link(t, next(t, content), data+"_tmp")
		rename(t, data+"_tmp", data)
		if err := os.RemoveAll(filepath.Join(dir, old)); err != nil {
			t.Fatal(err)
		}
	}
}
