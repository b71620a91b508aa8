package clients

import (
	"context"
	"testing"

	"github.com/truewindow/ratelimit"
	rueidisstore "github.com/truewindow/ratelimit/backend/rueidis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	valkeystore "github.com/truewindow/ratelimit/backend/valkey"
)

// Probing is the interface of the stores on servers.
type Probing interface {
	ratelimit.Store
	Probe(context.Context) (serverstore.Server, error)
	Stats() serverstore.Stats
}

// Caching is a store that caches refusals and owns its client.
type Caching interface {
	Probing
	Close() error
}

// A CacheOpener opens stores that cache refusals, each with its own client.
type CacheOpener func(*serverstore.Options) (Caching, error)

func cachingRueidis(d Dialing) CacheOpener {
	return func(opts *serverstore.Options) (Caching, error) {
		return rueidisstore.Open(d.RueidisOption(), &serverstore.OpenOptions{Options: *opts})
	}
}

func cachingValkey(d Dialing) CacheOpener {
	return func(opts *serverstore.Options) (Caching, error) {
		return valkeystore.Open(d.ValkeyOption(), &serverstore.OpenOptions{Options: *opts})
	}
}

// Store returns a new store, closed at the end of the test.
func (open CacheOpener) Store(t testing.TB, opts *serverstore.Options) Caching {
	t.Helper()
	s, err := open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
