// Package serverstore has the options, statistics and descriptions that the stores on Redis and
// Valkey servers share: those of packages redisstore, rueidisstore and valkeystore.
//
// # URLs
//
// [github.com/truewindow/ratelimit/backend.Open] opens the stores by URL. The scheme chooses the
// client library, with TLS where it ends with s, and the servers:
//
//	redis://[[user]:password@]host[:port][/database]                   go-redis
//	redis+cluster://[[user]:password@]host[:port][,host[:port]…]
//	redis+sentinel://[[user]:password@]host[:port][,host[:port]…]/primary[/database]
//	rediss:// rediss+cluster:// rediss+sentinel://                     with TLS
//	rueidis:// rueidiss:// rueidis+cluster:// …                        rueidis
//	valkey:// valkeys:// valkey+cluster:// …                           valkey-go
//
// Some hosts of a cluster are enough. Behind Sentinels the hosts are theirs, primary is the name by
// which they know the servers, and user and password are those of the servers. Ports are 6379, and
// 26379 of Sentinels, where they are left out. The client is set as the packages of the stores
// advise.
//
// The parameters, each at most once:
//
//	prefix             Options.Prefix
//	timeout            Options.Timeout, such as 50ms
//	tag                Options.Tag: what a key has before the first such text is its group
//	cache-entries      OpenOptions.CacheEntries, with rueidis and valkey-go, which cache refusals
//	                   unless it is 0
//	cache-bytes        OpenOptions.CacheBytes
//	cache-age          OpenOptions.CacheAge, such as 2s
//	sentinel-user      the user of the Sentinels
//	sentinel-password  the password of the Sentinels
//	tls-ca             file with the certificates of the authorities in PEM; without it those of
//	                   the system
//	tls-cert, tls-key  files with the client's certificate and its key in PEM
//	tls-server-name    name in the server's certificate; the host if left out
package serverstore

import (
	"errors"
	"time"
)

// ErrDenied means that the server refuses the user: it wants another user or password, or does not
// let the user run what decisions need. Probe returns it, wrapped.
var ErrDenied = errors.New("access denied")

// Options are the options of a store. The zero Options are the defaults.
type Options struct {
	// Prefix begins every stored key. Empty means "rl:". It may not hold braces. Stores with
	// different prefixes share nothing.
	Prefix string

	// Tag returns the group of a key. A cluster keeps a group together on one server, so that
	// TakeAll can decide demands on several of its keys: with a Tag that returns "42" for both
	// "tenant:42" and "tenant:42:user:7", for example. The tag is part of the stored key: all who
	// share a store need the same Tag. If Tag is nil or returns an empty string, the key is a group
	// of its own.
	Tag func(key string) string

	// Timeout is how long a decision may take, the wait for a connection included. Zero means
	// 100ms. A context with an earlier deadline shortens it.
	Timeout time.Duration

	// Now replaces the server's clock, in microseconds since the Unix epoch. It is for tests:
	// processes that share a store would each use a clock of their own. Nil means the server's
	// clock.
	Now func() int64

	// NoBatching sends each Take and each TakeAll in a request of its own, at most 4,096 of them at
	// once to a single server. Otherwise the first of several concurrent calls is sent at once, and
	// those that arrive while requests are under way are sent together in the next one. Each call
	// is decided by itself in either case.
	NoBatching bool
}

// OpenOptions are the options of a store that makes its own client and caches refusals. The zero
// OpenOptions are the defaults.
type OpenOptions struct {
	Options

	// CacheEntries is the largest number of cached refusals. Zero means 65,536. When the cache is
	// full, an entry chosen at random is dropped.
	CacheEntries int

	// CacheBytes is the most memory that cached refusals take, keys included. Zero means 32 MiB.
	CacheBytes int

	// CacheAge is the longest time for which a refusal is returned without asking the server. It
	// bounds the harm when the server changes a state without a notification, as SWAPDB does, and
	// when its clock steps. Zero means 5s.
	CacheAge time.Duration
}

// Server describes the server or the cluster that Probe found.
type Server struct {
	// Name is "redis", "valkey" or what else the server calls itself.
	Name string
	// Version is one such as "8.0.2", on a cluster the lowest. It is empty if the server does not
	// report it.
	Version string
	// EvictionPolicy is maxmemory-policy, such as "noeviction". It is empty if the server does not
	// report it.
	EvictionPolicy string
	// Warnings say what works but may go wrong, one sentence each.
	Warnings []string
}

// Stats are the statistics of a store. Refused and most numbers of Cache are counts since the store
// was made. While the server answers in time, Abandoned is 0 and Queued is small.
type Stats struct {
	// Queued is the number of slots of the queue for calls that are not sent yet. At least half of
	// them are in use.
	Queued int
	// MaxQueued is the largest number of such slots.
	MaxQueued int
	// Abandoned is the number of requests for which no caller waits any more, and which the client
	// library has not ended yet.
	Abandoned int
	// MaxAbandoned is the number from which on no more requests are sent. On a cluster each server
	// may add a few.
	MaxAbandoned int
	// Refused counts the calls that met one of these bounds and failed at once with
	// ratelimit.ErrUnavailable.
	Refused int64
	// Cache has the statistics of the cache of refusals.
	Cache CacheStats
}

// CacheStats are the statistics of a cache of refusals. Entries and Bytes are current; the others
// are counts since the store was made.
type CacheStats struct {
	// Enabled says whether refusals are cached: only in a store made by Open, on a server that
	// tracks for its user.
	Enabled bool
	// Hits are refusals of a Take or a TakeAll that came from the cache, with
	// ratelimit.SourceCache.
	Hits int64
	// Stored are refusals of the server that were cached.
	Stored int64
	// Discarded are refusals that were not cached because the state changed before the reply
	// arrived.
	Discarded int64
	// Invalidations are states that the server reported as changed.
	Invalidations int64
	// Flushes are the times when the cache was emptied because a connection broke or the server
	// lost its data.
	Flushes int64
	// Entries is the number of refusals in the cache, including slots reserved for peeks in flight.
	Entries int64
	// Bytes is the approximate memory of the entries.
	Bytes int64
}
