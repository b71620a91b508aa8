package server

import (
	"fmt"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
)

// What a client of a store with a cache is set to where the caller leaves it open: a server that stopped answering is given up, and what it
// would have told with it, within a second.
const (
	KeepAlive    = 200 * time.Millisecond
	WriteTimeout = 500 * time.Millisecond
	DialTimeout  = 500 * time.Millisecond
)

// TrackingOptions make a server tell a client of changes to whatever it has read, but for those that the client makes itself.
func TrackingOptions() []string { return []string{"OPTOUT", "NOLOOP"} }

// Settings are what a caller's options for a client say that matters to a cache.
type Settings struct {
	AlwaysRESP2, DisableCache, DisableAutoPipelining bool

	ConnLifetime    time.Duration
	TrackingOptions []string
	Replicas        bool // commands may go to replicas
}

// CheckSettings returns an error that says what keeps a client of these settings from caching.
func (w Words) CheckSettings(s Settings) error {
	var wrong []string
	for _, rule := range []struct {
		broken bool
		what   string
	}{
		{s.AlwaysRESP2, "AlwaysRESP2: a server tells of changes over RESP3 only"},
		{s.DisableCache, "DisableCache: without the client's tracking nothing tells of changes"},
		{s.DisableAutoPipelining, "DisableAutoPipelining: a pooled connection tells of changes only when it is used next"},
		{s.ConnLifetime != 0, "ConnLifetime: at its end the client may send a demand a second time"},
		{s.TrackingOptions != nil, "ClientTrackingOptions: Open sets its own"},
		{s.Replicas, "SendToReplicas, ReplicaOnly: a replica cannot decide"},
	} {
		if rule.broken {
			wrong = append(wrong, rule.what)
		}
	}
	if wrong == nil {
		return nil
	}
	return fmt.Errorf("%w: Open cannot cache with these: %s", w.Invalid, strings.Join(wrong, "; "))
}

// Check returns an error that says which bound is wrong.
func (o CacheOptions) Check(w Words) error {
	switch {
	case o.MaxEntries < 0:
		return fmt.Errorf("%w: CacheEntries %d is negative", w.Invalid, o.MaxEntries)
	case o.MaxBytes < 0:
		return fmt.Errorf("%w: CacheBytes %d is negative", w.Invalid, o.MaxBytes)
	case o.MaxAge < 0:
		return fmt.Errorf("%w: CacheAge %v is negative", w.Invalid, o.MaxAge)
	}
	return nil
}

// Remember makes s answer from c what may be answered from there, or says why there is no cache. It is called before the first demand.
func (s *Store) Remember(c *DenyCache, bare string) {
	s.deny, s.bare = c, bare
}

// CacheStats returns what the cache has done so far.
func (s *Store) CacheStats() CacheStats { return s.deny.Stats() }

// Refused is the error of a client that could not be made: no connection, or a server that does not let it in.
func (w Words) Refused(err error) error {
	return fmt.Errorf("%s: %w: %w", w.Package, ratelimit.ErrUnavailable, Scrub(err))
}
