package backend_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

func TestOpenMemory(t *testing.T) {
	for _, url := range []string{"memory", "memory:", "memory:?max-keys=1"} {
		store, err := backend.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		limiter, err := ratelimit.New(store, algorithm.SlidingLog(driver.PerHour("a", 1)))
		if err != nil {
			t.Fatal(err)
		}
		for i, key := range []string{"first", "first", "second"} {
			res, err := limiter.Allow(t.Context(), key)
			full := key == "second" && strings.Contains(url, "=1")
			if errors.Is(err, driver.ErrCapacity) != full || res.Allowed != (i != 1 && !full) {
				t.Errorf("%s: take %d: %+v, %v", url, i, res, err)
			}
		}
		if server, err := store.Probe(t.Context()); err != nil || server.Name != "memory" {
			t.Errorf("%+v, %v", server, err)
		}
		if stats, ok := store.Stats().(memorystore.Stats); !ok || stats.Keys == 0 {
			t.Errorf("%#v", store.Stats())
		}
		if store.Name != "memory" {
			t.Error(store.Name)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		if _, err := limiter.Allow(t.Context(), "first"); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	}
	for _, url := range []string{
		"memory:?max-keys=0", "memory:?max-keys=many", "memory:?max-key=1",
		"memory:?max-keys=1&max-keys=1", "memory://host", "memory:path",
	} {
		s, err := backend.Open(t.Context(), url)
		if s != nil || !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v, %v", url, s, err)
		}
	}
}

type fakeStore struct{ driver.Store }

var runs int // of TestRegister, each of which registers a scheme for good

// TestRegister: a scheme has one opener, which receives the URL. Open sets the fields that it
// leaves empty.
func TestRegister(t *testing.T) {
	inner, failure := fakeStore{}, errors.New("not today")
	open := func(_ context.Context, u *backend.URL) (*backend.Store, error) {
		if u.Path == "fails" {
			return nil, failure
		}
		return &backend.Store{Store: inner}, nil
	}
	runs++
	scheme := fmt.Sprint("fake+", runs)
	backend.Register(scheme, open)
	schemes := backend.Schemes()
	if !slices.IsSorted(schemes) || !slices.Contains(schemes, scheme) ||
		!slices.Contains(schemes, "memory") {
		t.Errorf("%q", schemes)
	}
	s, err := backend.Open(t.Context(), strings.ToUpper(scheme)+"://u:p@h/x?a=b")
	if err != nil || s.Store != inner || s.Name != scheme+"://h/x" {
		t.Fatalf("%+v, %v", s, err)
	}
	if server, err := s.Probe(t.Context()); err != nil || server.Name != scheme {
		t.Errorf("%+v, %v", server, err)
	}
	if stats := s.Stats(); stats != nil {
		t.Errorf("%v", stats)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if s, err := backend.Open(t.Context(), scheme+":fails"); s != nil || !errors.Is(err, failure) {
		t.Errorf("%v, %v", s, err)
	}
	for what, register := range map[string]func(){
		"twice":         func() { backend.Register(scheme, open) },
		"memory":        func() { backend.Register("memory", open) },
		"nil":           func() { backend.Register("new", nil) },
		"empty":         func() { backend.Register("", open) },
		"upper case":    func() { backend.Register("New", open) },
		"not a scheme":  func() { backend.Register("a:b", open) },
		"leading digit": func() { backend.Register("1a", open) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			register()
		}()
	}
}

func TestUnknownScheme(t *testing.T) {
	const path = "github.com/truewindow/ratelimit/backend/"
	for url, want := range map[string]string{
		"cassandra://user:marked@h": `Import a package that adds it, such as "` + path + `redis"`,
		"redis+ring://marked@h":     `Import "` + path + `redis" to add it`,
		"postgres://user:marked@h":  `Import "` + path + `postgres" to add it`,
		"valkeys+cluster://h":       `Import "` + path + `valkey" to add it`,
		"memory+file:":              "Import a package that adds it",
	} {
		_, err := backend.Open(t.Context(), url)
		var unknown *backend.UnknownSchemeError
		if !errors.As(err, &unknown) || !errors.Is(err, driver.ErrInvalid) ||
			!slices.Contains(unknown.Known, "memory") ||
			!strings.HasPrefix(url, unknown.Scheme+":") ||
			!strings.Contains(err.Error(), "registered: ") ||
			!strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "marked") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
