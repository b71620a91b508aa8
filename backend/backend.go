// Package backend opens stores by URL, so that a deployment chooses where the state of its limits
// lives and the program stays the same. A program imports the backends that it wants to offer; each
// registers its schemes:
//
//	import _ "github.com/truewindow/ratelimit/backend/redis"
//	…
//	store, err := backend.Open(ctx, "redis+cluster://user:password@node1,node2/?timeout=50ms")
//	…
//	defer store.Close()
//	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("login", 60)))
//
// The packages that register schemes document their URLs; those of Redis and Valkey are in package
// [github.com/truewindow/ratelimit/backend/serverstore].
package backend

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/serverstore"
)

// A Store is a store that [Open] has opened, with what a program does to it besides deciding. An
// [Opener] sets the fields, and Open those that are nil.
type Store struct {
	ratelimit.Store

	// Name is the URL without user, password and parameters, for logs. Open sets it.
	Name string

	// Probe finds out whether the store can decide, for the start of a program. An error wraps
	// [errors.ErrUnsupported] if the server is of the wrong type, [serverstore.ErrDenied] if it
	// refuses the user, and [ratelimit.ErrUnavailable] if the store may yet recover. Where it is
	// nil, Open sets one that finds nothing wrong.
	Probe func(context.Context) (serverstore.Server, error)

	// Stats returns the statistics of the store as a struct of its package, such as
	// [serverstore.Stats] or memorystore.Stats. Where it is nil, Open sets one that returns nil.
	Stats func() any

	// Close closes the store, and the client that Open has made for it. Where it is nil, Open sets
	// one that does nothing.
	Close func() error
}

// An Opener opens the store that a URL names. It calls [URL.Check] before any I/O, and returns no
// later than ctx ends. It connects to no server that may be away, or does so in the background: a
// program should start without it. No error may hold the URL's password.
type Opener func(ctx context.Context, u *URL) (*Store, error)

var registry struct {
	sync.RWMutex
	openers map[string]Opener
}

// Register makes open the opener of the URLs with a scheme. Packages of stores call it when they
// are imported. It panics if open is nil, if the scheme is not one in lower case, and if it is
// registered already. It is safe for concurrent use.
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

// Open returns the store that a URL names; see [URL]. It does not wait for a server: [Store.Probe]
// does. An error wraps [ratelimit.ErrInvalidOptions] if the URL is wrong, and is an
// [UnknownSchemeError] if no imported package has registered its scheme. No error shows the
// password of the URL, neither of Open nor of the store. Open is safe for concurrent use.
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
// [ratelimit.ErrInvalidOptions].
type UnknownSchemeError struct {
	Scheme string   // of the URL
	Known  []string // the registered ones, sorted
}

const importPath = "github.com/truewindow/ratelimit/backend/"

// usual are the backends of this module by the schemes that they register.
var usual = map[string]string{
	"memory":  "memory",
	"redis":   "redis",
	"rediss":  "redis",
	"rueidis": "rueidis", "rueidiss": "rueidis",
	"valkey": "valkey", "valkeys": "valkey",
}

func (e *UnknownSchemeError) Error() string {
	known := "none"
	if len(e.Known) > 0 {
		known = strings.Join(e.Known, ", ")
	}
	text := fmt.Sprintf("%v: no store is registered for the scheme %q; registered are: %s. ",
		ratelimit.ErrInvalidOptions, e.Scheme, known)
	base, _, _ := strings.Cut(e.Scheme, "+")
	if usual[base] != "" && !slices.Contains(e.Known, base) {
		return text + fmt.Sprintf("The import of %q adds it", importPath+usual[base])
	}
	return text + fmt.Sprintf("An import adds more, such as that of %q for redis://host:port",
		importPath+"redis")
}

func (e *UnknownSchemeError) Unwrap() error { return ratelimit.ErrInvalidOptions }
