package valkeystore

import (
	"errors"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/internal/server"
)

// OpenOptions are the options of [Open]. The zero OpenOptions are the defaults.
type OpenOptions struct {
	Options

	// CacheEntries is the most refusals that are cached. Zero means 65,536. Beyond it any other is forgotten.
	CacheEntries int

	// CacheBytes is the most memory that cached refusals take, nearly. Zero means 32 MiB.
	CacheBytes int

	// CacheAge is how long a refusal is given again without asking the server, at most. It bounds the harm when a server changes a state
	// without telling, as SWAPDB does, and a clock that steps. Zero means 5s.
	CacheAge time.Duration
}

// Open returns a store on a client of its own that caches refusals: a Take that the server has refused is refused again, without asking it,
// until its RetryAfter has passed or the server tells that the state has changed. policy is that of [New]. [Store.Close] closes the client.
//
// option is for the client. Open sets its ClientTrackingOptions, and calls its OnInvalidations after the cache has heard of them. Where they are
// zero it sets Dialer.KeepAlive to 200ms and ConnWriteTimeout and Dialer.Timeout to 500ms (Sentinel.Dialer as well): they bound how long the
// refusals of a server that stopped answering are given.
//
// Open connects to the server. A server that cannot track what its clients cache, or does not let this user have it tracked, gets a store without a
// cache: [Store.CacheStats] says so, and [Store.Probe] warns. An error wraps [ErrInvalidOptions] if option rules caching out, as AlwaysRESP2,
// DisableCache, DisableAutoPipelining, ConnLifetime and SendToReplicas do, before anything is sent; otherwise [ratelimit.ErrUnavailable].
func Open(option valkey.ClientOption, policy ratelimit.Policy, opts *OpenOptions) (*Store, error) {
	if opts == nil {
		opts = &OpenOptions{}
	}
	bounds := server.CacheOptions{MaxEntries: opts.CacheEntries, MaxBytes: opts.CacheBytes, MaxAge: opts.CacheAge}
	if err := errors.Join(server.Options(opts.Options).Check(words, policy), bounds.Check(words), words.CheckSettings(settings(option))); err != nil {
		return nil, err
	}
	cache, bare := server.NewDenyCache(bounds, opts.Now), ""
	client, err := connect(tracking(option, cache))
	if errors.Is(err, valkey.ErrNoCache) {
		cache, bare = nil, "The server does not track for this user what clients cache, so each refusal asks it."
		option.DisableCache = true
		client, err = connect(impatient(option))
	}
	if err != nil {
		return nil, words.Refused(err)
	}
	store, err := server.NewPiped(piped{client}, words, policy, server.Options(opts.Options))
	if err != nil {
		client.Close()
		return nil, err
	}
	store.Remember(cache, bare)
	return &Store{store: store, owned: client}, nil
}

// connect returns a client that is connected.
func connect(option valkey.ClientOption) (valkey.Client, error) {
	client, err := valkey.NewClient(option)
	if err != nil && client != nil {
		client.Close()
	}
	return client, err
}

func settings(option valkey.ClientOption) server.Settings {
	return server.Settings{
		AlwaysRESP2: option.AlwaysRESP2, DisableCache: option.DisableCache, DisableAutoPipelining: option.DisableAutoPipelining,
		ConnLifetime: option.ConnLifetime, TrackingOptions: option.ClientTrackingOptions,
		Replicas: option.SendToReplicas != nil || option.ReplicaOnly,
	}
}

// tracking returns option for a client whose server tells cache of changes.
func tracking(option valkey.ClientOption, cache *server.DenyCache) valkey.ClientOption {
	option.ClientTrackingOptions = server.TrackingOptions()
	next := option.OnInvalidations
	option.OnInvalidations = func(keys []valkey.ValkeyMessage) {
		if keys == nil {
			cache.Flush()
		}
		for i := range keys {
			if key, err := keys[i].ToString(); err == nil {
				cache.Invalidate(key)
			} else {
				cache.Flush()
			}
		}
		if next != nil {
			next(keys)
		}
	}
	return impatient(option)
}

// impatient returns option for a client that soon gives up a server that does not answer, unless it says how soon.
func impatient(option valkey.ClientOption) valkey.ClientOption {
	if option.Dialer.KeepAlive == 0 {
		option.Dialer.KeepAlive = server.KeepAlive
	}
	if option.Dialer.Timeout == 0 {
		option.Dialer.Timeout = server.DialTimeout
	}
	if option.Sentinel.Dialer.KeepAlive == 0 {
		option.Sentinel.Dialer.KeepAlive = server.KeepAlive
	}
	if option.Sentinel.Dialer.Timeout == 0 {
		option.Sentinel.Dialer.Timeout = server.DialTimeout
	}
	if option.ConnWriteTimeout == 0 {
		option.ConnWriteTimeout = server.WriteTimeout
	}
	return option
}

// Close closes the client of a store that [Open] has made, after which the store decides nothing. The client of [New] stays open: it is the
// caller's.
func (s *Store) Close() {
	if s.owned != nil {
		s.store.Close()
		s.owned.Close()
	}
}

// CacheStats are counts since the store was made; Entries and Bytes are those of now.
type CacheStats struct {
	Enabled  bool  // whether refusals are cached; not so after New, and on a server without tracking
	Refusals int64 // given from the cache, as [ratelimit.SourceCache] says
	Stored   int64 // refusals of the server that were kept
	Poisoned int64 // refusals that were not kept, since the state changed before they came
	Pushes   int64 // states that the server said have changed
	Flushes  int64 // times when all was dropped, since a connection broke or the server forgot everything
	Entries  int64 // refusals that are cached, and those that may come
	Bytes    int64 // memory that they take, nearly
}

// CacheStats returns what the cache has done so far.
func (s *Store) CacheStats() CacheStats { return CacheStats(s.store.CacheStats()) }
