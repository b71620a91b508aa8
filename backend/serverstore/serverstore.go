// Package serverstore has the options, the statistics and the URLs of the stores on Redis and
// Valkey servers: packages [github.com/truewindow/ratelimit/backend/redis],
// [github.com/truewindow/ratelimit/backend/rueidis] and
// [github.com/truewindow/ratelimit/backend/valkey].
//
// # URLs
//
// [github.com/truewindow/ratelimit/backend.Open] opens the stores by URL. A scheme is redis,
// rueidis or valkey (the client library), optionally followed by s (TLS) and +cluster or +sentinel:
//
//	redis://[[user]:password@]host[:port][/database]                   go-redis
//	redis+cluster://[[user]:password@]host[:port][,host[:port]…]
//	redis+sentinel://[[user]:password@]host[:port][,host[:port]…]/primary[/database]
//	rediss:// rediss+cluster:// rediss+sentinel://                     with TLS
//	rueidis:// rueidiss:// rueidis+cluster:// …                        rueidis
//	valkey:// valkeys:// valkey+cluster:// …                           valkey-go
//
// For a cluster some of its hosts are enough. With Sentinels the hosts are the Sentinels, primary
// is the name under which they monitor the servers, and user and password are for the servers. The
// default port is 6379, or 26379 for Sentinels; the default database is 0. The client has the
// settings that the package of the store recommends.
//
// These are the parameters. A parameter that is unknown, that the scheme does not support or that
// is given twice is an error.
//
//	prefix             Options.Prefix
//	timeout            Options.Timeout, such as 50ms
//	linger             Options.Linger, such as 2ms
//	tag                Options.Tag as a separator: the tag of a key is its part before the first
//	                   separator, or the whole key if it has none
//	cache-entries      OpenOptions.CacheEntries, but 0 turns the cache off
//	cache-bytes        OpenOptions.CacheBytes
//	cache-age          OpenOptions.CacheAge, such as 2s
//	sentinel-user      the user for the Sentinels
//	sentinel-password  the password for the Sentinels
//	tls-ca             PEM file with the authorities' certificates; default: those of the system
//	tls-cert, tls-key  PEM files with the client's certificate and its key, both or neither
//	tls-server-name    name in the server's certificate; default: the host
//	tls-skip-hostname  true accepts any name there, of a certificate that an authority has signed
//
// Only rueidis and valkey-go have the parameters of the cache. They cache refusals by default.
package serverstore

import (
	"errors"
	"time"
)

// ErrDenied means that the server refuses the user: the user or the password is wrong or missing,
// or the user may not run a command that decisions need. The error of Probe wraps it.
var ErrDenied = errors.New("access denied")

// Options are the options of a store. The zero Options are the defaults.
type Options struct {
	// Prefix begins every stored key. Empty means "rl:". It must not contain braces. Stores with
	// different prefixes share nothing.
	Prefix string

	// Tag returns the tag of a key. A cluster stores keys with the same tag on one server, so that
	// TakeAll can decide demands on several of them: for example with a Tag that returns "42" for
	// both "tenant:42" and "tenant:42:user:7". The tag is part of the stored key: all processes
	// that share limits need the same Tag. If Tag is nil or returns an empty string, the tag is the
	// key. Tag must be safe for concurrent use.
	Tag func(key string) string

	// Timeout is how long a decision may take, the wait for a connection included. Zero means
	// 100ms. A context with an earlier deadline shortens it.
	Timeout time.Duration

	// Now replaces the server's clock, in microseconds since the Unix epoch. It is only for tests,
	// since processes that share limits would each use their own clock. It must be safe for
	// concurrent use. Nil means the server's clock.
	Now func() int64

	// NoBatching sends each Take and each TakeAll in a request of its own, at most 4,096 at a time.
	// If it is false, calls that arrive while two requests are in flight wait and are sent together
	// in the next one. Each call is decided by itself in either case. On a cluster the two numbers
	// hold for each server or, with rueidis and valkey-go, for each slot.
	NoBatching bool

	// Linger is how long a request waits for more calls, counted from the first of its calls, so
	// that fewer requests decide the same calls. It makes calls slower. A full request is sent at
	// once, and no call waits for more calls longer than half of the time until the deadline of its
	// context. Reserve, Commit, Cancel and other calls of a limiter that go on after the end of
	// their context have no deadline here. Linger must be at most half of Timeout, and zero with
	// NoBatching. Zero means that no request waits.
	Linger time.Duration
}

// OpenOptions are the options of a store that makes its own client and caches refusals. The zero
// OpenOptions are the defaults.
type OpenOptions struct {
	Options

	// CacheEntries is the largest number of cached refusals. Zero means 65,536. When the cache is
	// full, entries chosen at random are evicted.
	CacheEntries int

	// CacheBytes is the most memory that cached refusals take, keys included. Zero means 32 MiB.
	CacheBytes int

	// CacheAge is the longest time for which a refusal is returned from the cache. It bounds the
	// harm when the server changes a state without a notification, as with SWAPDB, and when its
	// clock steps. Zero means 5s.
	CacheAge time.Duration
}

// Server describes the server or the cluster that Probe found.
type Server struct {
	// Name is "redis", "valkey" or another name that the server reports. It is empty if it is
	// unknown, as when the user may not run INFO.
	Name string
	// Version is the server's version, such as "8.0.2"; on a cluster it is the lowest. It is empty
	// if it is unknown.
	Version string
	// EvictionPolicy is the server's maxmemory-policy, such as "noeviction"; on a cluster it is one
	// that evicts, if a server has one. It is empty if it is unknown.
	EvictionPolicy string
	// Warnings are about risks with which the store works, one sentence each.
	Warnings []string
}

// Stats are the statistics of a store. Refused and most numbers of Cache are counts since the store
// was made. While the server answers in time, Abandoned is 0 and Queued is small.
type Stats struct {
	// Queued is the number of queue slots that are reserved for calls not sent yet. At
	// least half of them are in use.
	Queued int
	// MaxQueued bounds Queued: calls that would exceed it fail.
	MaxQueued int
	// Abandoned is the number of requests that have timed out and that the client library has not
	// ended yet.
	Abandoned int
	// MaxAbandoned is the Abandoned at which calls fail instead of being sent. On a cluster each
	// server may add a few more.
	MaxAbandoned int
	// Refused counts the calls that failed at once with driver.ErrUnavailable because of one of
	// these bounds.
	Refused int64
	// Cache has the statistics of the cache of refusals.
	Cache CacheStats
}

// CacheStats are the statistics of a cache of refusals. Entries and Bytes are current; the others
// are counts since the store was made.
type CacheStats struct {
	// Enabled reports whether refusals are cached: in a store made by Open, if the server tracks
	// keys for its user (CLIENT TRACKING).
	Enabled bool
	// Hits are the calls of Take and TakeAll that were refused from the cache, with
	// driver.SourceCache.
	Hits int64
	// Stored are refusals of the server that were cached.
	Stored int64
	// Discarded are refusals that were not cached because the state changed before the reply
	// arrived.
	Discarded int64
	// Invalidations are states that the server reported as changed.
	Invalidations int64
	// Flushes counts how often the cache was emptied: a connection broke, or the server lost its
	// data.
	Flushes int64
	// Entries is the number of refusals in the cache, including places reserved for peeks in
	// flight.
	Entries int64
	// Bytes is the approximate memory of the entries.
	Bytes int64
}
