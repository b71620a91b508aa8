// Package backend opens stores by URL, so that a deployment chooses where limits are stored without
// a change to the program. A program imports the backends that it offers; each registers its
// schemes:
//
//	import _ "github.com/truewindow/ratelimit/backend/redis"
//	…
//	store, err := backend.Open(ctx, "redis+cluster://user:password@node1,node2/?timeout=50ms")
//	…
//	defer store.Close()
//	limiter, err := ratelimit.New(store, algorithm.SlidingLog(driver.PerMinute("login", 60)))
//
// The packages that register schemes document their URLs; those of Redis and Valkey are in package
// [github.com/truewindow/ratelimit/backend/serverstore]. Those of databases import a driver, and
// are modules of their own: backend/postgres, backend/mysql and backend/sqlite.
package backend

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

// A Store is a store that [Open] opened, with functions to probe it, to read its statistics and to
// close it. An [Opener] returns one; Open sets Name and each function that is nil. All functions
// are safe for concurrent use.
type Store struct {
	driver.Store

	// Name is the URL without user, password and parameters, for logs. Open sets it.
	Name string

	// Probe reports whether the store can decide; call it at the start of a program. An error wraps
	// [errors.ErrUnsupported] if the server is of the wrong type, [serverstore.ErrDenied] if it
	// refuses the user, and [driver.ErrUnavailable] if the store may recover. If the opener
	// leaves it nil, Open sets one that returns the scheme as the server's name and no error.
	Probe func(context.Context) (serverstore.Server, error)

	// Stats returns the statistics of the store as a struct of its package, such as
	// [serverstore.Stats] or memorystore.Stats. If the opener leaves it nil, Open sets one that
	// returns nil.
	Stats func() any

	// Close closes the store and the client that Open made for it. If the opener leaves it nil,
	// Open sets one that does nothing.
	Close func() error
}

// An Opener opens the store that a URL names. It calls [URL.Check] before any I/O, and returns when
// ctx ends. A program should start while its server is unavailable, so an opener does not wait for
// a connection. If a client library connects when its client is created, the opener creates the
// client in the background. No error may contain the URL's password.
type Opener func(ctx context.Context, u *URL) (*Store, error)

var registry struct {
	sync.RWMutex
	openers map[string]Opener
}

// Register registers the opener for the URLs of a scheme. Packages of stores call it in an init
// function. It panics if open is nil, if scheme is not a URL scheme in lower case, or if it is
// already registered. It is safe for concurrent use.
func Register(scheme string, open Opener) {
	registry.Lock()
	defer registry.Unlock()
	switch {
	case open == nil:
		panic("backend: Register: no opener for " + scheme)
	case !isScheme(scheme) || scheme != strings.ToLower(scheme):
		panic("backend: Register: " + scheme + " is not a scheme in lower case")
	case registry.openers[scheme] != nil:
		panic("backend: Register called twice for " + scheme)
	}
	if registry.openers == nil {
		registry.openers = make(map[string]Opener)
	}
	registry.openers[scheme] = open
}

// Schemes returns the registered schemes, sorted. It is safe for concurrent use.
func Schemes() []string {
	registry.RLock()
	defer registry.RUnlock()
	return slices.Sorted(maps.Keys(registry.openers))
}

// Open returns the store that a URL names; see [URL]. It does not wait for a server; [Store.Probe]
// checks whether it answers. ctx is only for the call of Open, not for the store. An error wraps
// [driver.ErrInvalid] if the URL is wrong, and is an [*UnknownSchemeError] if no imported
// package has registered its scheme. No error of Open or of the store contains the password of the
// URL. Open is safe for concurrent use.
func Open(ctx context.Context, rawURL string) (*Store, error) {
	u, err := ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	registry.RLock()
	open := registry.openers[u.Scheme]
	registry.RUnlock()
	if open == nil {
		return nil, &UnknownSchemeError{Scheme: u.Scheme, Known: Schemes()}
	}
	s, err := open(ctx, u)
	if err != nil {
		return nil, err
	}
	s.Name = u.String()
	if s.Probe == nil {
		name := u.Scheme
		s.Probe = func(context.Context) (serverstore.Server, error) {
			return serverstore.Server{Name: name}, nil
		}
	}
	if s.Stats == nil {
		s.Stats = func() any { return nil }
	}
	if s.Close == nil {
		s.Close = func() error { return nil }
	}
	return s, nil
}

// UnknownSchemeError is the error of [Open] for a URL whose scheme is not registered. It wraps
// [driver.ErrInvalid].
type UnknownSchemeError struct {
	Scheme string   // of the URL
	Known  []string // the registered ones, sorted
}

const importPath = "github.com/truewindow/ratelimit/backend/"

// usual maps the schemes of this module to the packages that register them.
var usual = map[string]string{
	"memory":  "memory",
	"redis":   "redis",
	"rediss":  "redis",
	"rueidis": "rueidis", "rueidiss": "rueidis",
	"valkey": "valkey", "valkeys": "valkey",
	"postgres": "postgres", "postgresql": "postgres",
	"mysql": "mysql", "mariadb": "mysql",
	"sqlite": "sqlite",
}

func (e *UnknownSchemeError) Error() string {
	known := "none"
	if len(e.Known) > 0 {
		known = strings.Join(e.Known, ", ")
	}
	text := fmt.Sprintf("%v: no store is registered for the scheme %q; registered: %s. ",
		driver.ErrInvalid, e.Scheme, known)
	base, _, _ := strings.Cut(e.Scheme, "+")
	if usual[base] != "" && !slices.Contains(e.Known, base) {
		return text + fmt.Sprintf("Import %q to add it", importPath+usual[base])
	}
	return text + fmt.Sprintf("Import a package that adds it, such as %q for redis://host:port",
		importPath+"redis")
}

func (e *UnknownSchemeError) Unwrap() error { return driver.ErrInvalid }
