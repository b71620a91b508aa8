package audit

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/readfile"
)

// open opens a file in a folder of its own.
func open(t *testing.T, log *apitest.Log) (f *File, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "audit.jsonl")
	f, err := Open(path, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return f, path
}

// put writes a line, and waits until it is written or lost.
func put(f *File, line string) {
	f.Write(nil, []byte(line+"\n"))
	synctest.Wait()
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRotation: each line is in the file that has the name when it is written: after that was
// renamed, cut or removed, too. Only the owner may read it.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log apitest.Log
		f, path := open(t, &log)
		put(f, "first")
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
		put(f, "second")
		if err := os.Truncate(path, 0); err != nil { // as copytruncate of logrotate
			t.Fatal(err)
		}
		put(f, "third")
		if got := read(t, path); got != "third\n" {
			t.Errorf("after it was cut: %q", got)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		put(f, "fourth")
		f.Close()
		if got := read(t, path+".1") + read(t, path); got != "first\nfourth\n" || f.Lost() != 0 {
			t.Errorf("%q, %d lost: %s", got, f.Lost(), &log)
		}
		again, err := Open(path, slog.Default())
		if err != nil {
			t.Fatal(err)
		}
		put(again, "fifth")
		again.Close()
		if got := read(t, path); got != "fourth\nfifth\n" {
			t.Errorf("a second process has %q", got)
		}
	})
}

// TestLost: what cannot be written is counted, and logged once a second, and the file is tried
// again.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log apitest.Log
		f, path := open(t, &log)
		if err := os.RemoveAll(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		put(f, "first")
		put(f, "second")
		if n := strings.Count(log.String(), "events of the audit are lost"); n != 1 ||
			f.Lost() != 2 {
			t.Errorf("%d lost, %d lines: %s", f.Lost(), n, &log)
		}
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		put(f, "third")
		f.Close()
		f.Write(nil, []byte("after the end\n"))
		if got := read(t, path); got != "third\n" || f.Lost() != 3 {
			t.Errorf("%q, %d lost", got, f.Lost())
		}
	})
}

// A stuck is a stream that nobody reads until it is released.
type stuck struct{ release chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	<-s.release
	return len(p), nil
}

// TestStuck: whoever writes never waits for a stream that nobody reads, and neither does Close for
// ever.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log apitest.Log
		to := stuck{make(chan struct{})}
		f := Stream(to, slog.New(slog.NewTextHandler(&log, nil)))
		put(f, "taken by the writer")
		for range waiting + 10 {
			f.Write(nil, []byte("line\n"))
		}
		if f.Lost() != 10 {
			t.Errorf("%d lost", f.Lost())
		}
		f.Close()
		if !strings.Contains(log.String(), "count=4096") {
			t.Errorf("no word of what is lost: %s", &log)
		}
		close(to.release)
	})
}

// A torn is a stream whose second write fails after some bytes.
type torn struct {
	strings.Builder
	writes int
}

func (s *torn) Write(p []byte) (int, error) {
	if s.writes++; s.writes == 2 {
		n, _ := s.Builder.Write(p[:3])
		return n, syscall.ENOSPC
	}
	return s.Builder.Write(p)
}

// TestTorn: a line that was written in part breaks no other one.
func TestTorn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := new(torn)
		f := Stream(to, slog.New(slog.DiscardHandler))
		for _, line := range []string{"first", "second", "third", "fourth"} {
			put(f, line)
		}
		f.Close()
		if got := to.String(); got != "first\nsec\nthird\nfourth\n" || f.Lost() != 1 {
			t.Errorf("%q, %d lost", got, f.Lost())
		}
	})
}

// TestOpen: what is no file, or cannot be opened, ends the start.
func TestOpen(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{pipe: readfile.ErrNotRegular,
		t.TempDir(): readfile.ErrNotRegular, t.TempDir() + "/no/audit": fs.ErrNotExist} {
		if _, err := Open(path, slog.Default()); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}
