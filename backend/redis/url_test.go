package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

// TestOpenURL: a store whose server is unavailable opens at once, and has a name and statistics.
func TestOpenURL(t *testing.T) {
	addr := refused(t)
	for _, url := range []string{
		"redis://user:marked@" + addr + "/1",
		"rediss://:marked@" + addr,
		"redis+cluster://user:marked@" + addr + "," + addr,
		"rediss+cluster://user:marked@" + addr,
		"redis+sentinel://user:marked@" + addr + "/main/1",
		"rediss+sentinel://user:marked@" + addr + "/main?sentinel-password=marked",
	} {
		s, err := backend.Open(t.Context(), url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if !strings.Contains(s.Name, "://"+addr) || strings.Contains(s.Name, "marked") {
			t.Error(s.Name)
		}
		if stats, ok := s.Stats().(serverstore.Stats); !ok || stats.MaxQueued == 0 {
			t.Errorf("%s: %#v", url, s.Stats())
		}
		_, err = s.Take(t.Context(), take("k"))
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, errProbe := s.Probe(ctx)
		cancel()
		for _, err := range []error{err, errProbe} {
			if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, serverstore.ErrDenied) ||
				strings.Contains(err.Error(), "marked") {
				t.Errorf("%s: %v", url, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if _, err := s.Take(t.Context(), take("k")); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s: closed: %v", url, err)
		}
	}
}

func TestOpenURLRefuses(t *testing.T) {
	for _, url := range []string{
		"redis://h?timeout=-1s", "redis://h?prefix=a{b", "redis://h?colour=red", "redis://a,b",
		"redis+cluster://h/1", "redis+sentinel://h",
	} {
		s, err := backend.Open(t.Context(), url)
		if s != nil || !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v, %v", url, s, err)
		}
	}
}

// FuzzOpenURL: whatever the URL, neither the name of the store nor an error contains the password.
func FuzzOpenURL(f *testing.F) {
	for _, scheme := range []string{
		"redis://", "rediss://", "redis+cluster://", "rediss+sentinel://", "redis:", "postgres://",
		"redis+ring://", "://", "",
	} {
		f.Add(scheme+"user:", "", "", "localhost:6379/0")
		f.Add(scheme+":", "12/", "", "localhost")
		f.Add(scheme+"user:", "12?", "#", "localhost?addr=other:1&timeout=x")
		f.Add(scheme+"user:", "%zz", "%", "localhost/first")
		f.Add(scheme+"user:", "", "", "localhost/first/0?prefix={&tag=a")
	}
	const password = "hunter2"
	f.Fuzz(func(t *testing.T, before, more, evenMore, after string) {
		if strings.Contains(before+more+evenMore+after, password) ||
			!strings.Contains(before, ":") {
			t.Skip("no password, or it is in another part too")
		}
		s, err := backend.Open(t.Context(), before+more+password+evenMore+"@"+after)
		if err != nil {
			if strings.Contains(err.Error(), password) {
				t.Fatal(err)
			}
			return
		}
		if strings.Contains(s.Name, password) || s.Name == "" {
			t.Fatal(s.Name)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
