package clients

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"

	"github.com/truewindow/ratelimit"
	rueidisstore "github.com/truewindow/ratelimit/backend/rueidis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	valkeystore "github.com/truewindow/ratelimit/backend/valkey"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
)

// CacheOptions are the options of a store that caches refusals.
type CacheOptions struct {
	serverstore.Options
	Entries, Bytes int
	Age            time.Duration
	Hasty          bool   // the client keeps the short timeouts that Open sets
	OnInvalidation func() // set as the client's own hook
}

// OpenCache returns a new store that caches refusals.
func (lib Library) OpenCache(d Dialing, o CacheOptions) (Caching, error) {
	if lib.Name == "valkey-go" {
		option := d.ValkeyOption()
		if o.OnInvalidation != nil {
			option.OnInvalidations = func([]valkey.ValkeyMessage) { o.OnInvalidation() }
		}
		return valkeystore.Open(option, &serverstore.OpenOptions{
			Options: o.Options, CacheEntries: o.Entries, CacheBytes: o.Bytes, CacheAge: o.Age,
		})
	}
	option := d.RueidisOption()
	if o.OnInvalidation != nil {
		option.OnInvalidations = func([]rueidis.RedisMessage) { o.OnInvalidation() }
	}
	return rueidisstore.Open(option, &serverstore.OpenOptions{
		Options: o.Options, CacheEntries: o.Entries, CacheBytes: o.Bytes, CacheAge: o.Age,
	})
}

// NewCache is OpenCache with a store that is closed at the end of the test. The store and its
// client use long timeouts unless o.Hasty is set. The client of a cluster gets one server's
// address: with several addresses it would close duplicate connections at first, and each closed
// connection flushes the cache.
func (lib Library) NewCache(t testing.TB, d Dialing, o CacheOptions) Caching {
	t.Helper()
	d.Addrs, d.Patient = d.Addrs[:1], !o.Hasty
	if o.Timeout == 0 {
		o.Timeout = Patient
	}
	s, err := lib.OpenCache(d, o)
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

// CheckCacheEnabled checks that s reports whether it caches, caches if enabled, and decides
// correctly in both cases.
func CheckCacheEnabled(t *testing.T, s Caching, enabled bool) {
	t.Helper()
	found, err := s.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if warned := strings.Contains(strings.Join(found.Warnings, " "),
		"does not track"); warned == enabled {
		t.Errorf("got warnings %q, want one about tracking: %t", found.Warnings, !enabled)
	}
	d := driver.Demand{Key: servers.FreshKey(t), Algorithm: ThreeAnHour, N: 1}
	for i := range 10 {
		if enabled && i == 4 {
			WantCached(t, s, d)
		}
		res := Ask(t, s, d)
		if res.Allowed != (i < 3) || (res.Source == ratelimit.SourceCache) != (enabled && i > 3) {
			t.Errorf("attempt %d: got %+v, want Allowed %t", i, res, i < 3)
		}
	}
	if enabled { // it is counted after it can be returned
		servers.Within(t, func() bool { return s.Stats().Cache.Stored > 0 }, "a refusal is stored")
	}
	stats := s.Stats().Cache
	hits, stored, entries := stats.Hits > 0, stats.Stored > 0, stats.Entries > 0
	if stats.Enabled != enabled || hits != enabled || stored != enabled || entries != enabled {
		t.Errorf("got %+v, want a cache in use: %t", stats, enabled)
	}
}

// EachCaching runs f, as a subtest, with every client library that can cache refusals.
func EachCaching(t *testing.T, f func(t *testing.T, lib Library)) {
	t.Helper()
	Each(t, func(t *testing.T, lib Library) {
		if lib.Caching != nil {
			f(t, lib)
		}
	})
}

// EachCachingOn is EachOn with the libraries of EachCaching.
func EachCachingOn(t *testing.T, on string, f func(t *testing.T, lib Library)) {
	t.Helper()
	EachOn(t, on, func(t *testing.T, lib Library) {
		if lib.Caching != nil {
			f(t, lib)
		}
	})
}
