package rueidisstore_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

// TestOpenURL: a store whose server is unavailable opens at once, and has a name and statistics.
func TestOpenURL(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	listener.Close()
	for _, url := range []string{
		"rueidis://user:marked@" + addr + "/1",
		"rueidiss://:marked@" + addr + "?cache-entries=0",
		"rueidis+cluster://user:marked@" + addr + "," + addr,
		"rueidiss+cluster://user:marked@" + addr + "?cache-entries=0",
		"rueidis+sentinel://user:marked@" + addr + "/main/1",
		"rueidiss+sentinel://user:marked@" + addr + "/main?sentinel-password=marked",
	} {
		s, err := backend.Open(t.Context(), url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if !strings.Contains(s.Name, "://"+addr) || strings.Contains(s.Name, "marked") {
			t.Error(s.Name)
		}
		if stats, ok := s.Stats().(serverstore.Stats); !ok {
			t.Errorf("%s: %#v", url, stats)
		}
		_, err = s.Take(t.Context(), take("k"))
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, errProbe := s.Probe(ctx)
		cancel()
		for _, err := range []error{err, errProbe} {
			if !errors.Is(err, driver.ErrUnavailable) ||
				errors.Is(err, driver.ErrOutcomeUnknown) ||
				errors.Is(err, serverstore.ErrDenied) || strings.Contains(err.Error(), "marked") {
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
		"rueidis://h?timeout=-1s", "rueidis://h?prefix=a{b", "rueidis://h?cache-entries=-1",
		"rueidis://a,b", "rueidis+cluster://h/1", "rueidis+sentinel://h",
	} {
		s, err := backend.Open(t.Context(), url)
		if s != nil || !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v, %v", url, s, err)
		}
	}
}
