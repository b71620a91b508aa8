package daemon

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestNoSocket: neither the socket of a process that listens nor a file is replaced.
func TestNoSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	running, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	if l, err := listen("unix:" + path); err == nil {
		_ = l.Close()
		t.Error("the socket of a running service was replaced")
	} else if !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("the socket of a running service: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := listen("unix:" + file); err == nil {
		_ = l.Close()
		t.Error("a file was replaced")
	} else if !strings.Contains(err.Error(), "is a file and not a socket") {
		t.Errorf("a file: %v", err)
	}
}

// TestServerErrors: what clients can cause is one line a second, and a panic always is one.
func TestServerErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		errors := &serverErrors{log: slog.New(slog.NewTextHandler(&text, nil))}
		for range 3 {
			for _, line := range []string{"http: TLS handshake error from 192.0.2.1:1: EOF\n",
				"http: panic serving 192.0.2.1:1: boom\n"} {
				if n, err := errors.Write([]byte(line)); n != len(line) || err != nil {
					t.Errorf("%d, %v", n, err)
				}
			}
		}
		time.Sleep(time.Second)
		_, _ = errors.Write([]byte("http: TLS handshake error\n"))
		if got := text.String(); strings.Count(got, "panic") != 3 ||
			strings.Count(got, "TLS handshake error") != 2 ||
			!strings.Contains(got, "suppressed=2") {
			t.Error(got)
		}
	})
}
