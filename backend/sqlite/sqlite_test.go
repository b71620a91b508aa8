package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend"
	_ "github.com/truewindow/ratelimit/backend/sqlite"
	"github.com/truewindow/ratelimit/driver"
)

func TestURLs(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"sqlite:", "it has no file"},
		{"sqlite:///var/lib/", "it has no file"},
		{"sqlite::memory:", "for a store in memory write memory"},
		{"sqlite://limits.db", "it has a host"},
		{"sqlite:limits.db?synchronous=off", `"synchronous": it is neither full nor normal`},
		{"sqlite:limits.db?prefix=rl", `"prefix" is unknown`},
		{"sqlite:limits.db?timeout=0", `"timeout": it is not a duration above zero`},
		{"sqlite:limits.db?transactions=0", `"transactions": it is not a whole number`},
		{"sqlite:limits.db?transactions=65", "Transactions"},
		{"sqlite:limits.db?table=a-b", "is not a table"},
		{"sqlite:limits.db?table=", `"table": it is empty`},
	} {
		_, err := backend.Open(t.Context(), c.url)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v, want %s", c.url, err, c.want)
		}
	}
}

// TestRestart: a file with a strange name keeps what was recorded, without a migration.
func TestRestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a%20b?c=d&e#f é.db")
	escaped := strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23", "&", "%26").Replace(file)
	for _, want := range []bool{true, true, false} {
		s, err := backend.Open(t.Context(), "sqlite:"+escaped+"?synchronous=normal")
		if err != nil {
			t.Fatal(err)
		}
		limiter, err := ratelimit.New(s, algorithm.SlidingLog(ratelimit.PerHour("calls", 2)))
		if err != nil {
			t.Fatal(err)
		}
		if res, err := limiter.Allow(t.Context(), "user:42"); err != nil || res.Allowed != want {
			t.Errorf("%+v, %v, want %v", res, err, want)
		}
		server, err := s.Probe(t.Context())
		if err != nil || server.Name != "SQLite" || !strings.HasPrefix(server.Version, "3.") {
			t.Errorf("Probe: %+v, %v", server, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := limiter.Allow(t.Context(), "user:42"); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	if found, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*.db")); len(found) != 1 ||
		found[0] != file {
		t.Errorf("files %q, want %q", found, file)
	}
}

// TestNoDirectory: a directory that is missing is an outage that a probe names.
func TestNoDirectory(t *testing.T) {
	s, err := backend.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "no/limits.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Probe(context.Background()); !driver.IsOutage(err) {
		t.Errorf("Probe: %v", err)
	}
	_, err = s.Take(t.Context(), driver.Demand{Key: "k", N: 1,
		Algorithm: algorithm.SlidingLog(driver.PerHour("calls", 1))})
	if !driver.IsOutage(err) || errors.Is(err, driver.ErrOutcomeUnknown) {
		t.Errorf("Take: %v", err)
	}
}
