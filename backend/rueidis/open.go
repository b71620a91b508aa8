package rueidisstore

import (
	"context"
	"errors"

	"github.com/redis/rueidis"

	"github.com/truewindow/ratelimit/backend/internal/denycache"
	"github.com/truewindow/ratelimit/backend/internal/pipelined"
	"github.com/truewindow/ratelimit/backend/internal/server"
	"github.com/truewindow/ratelimit/backend/serverstore"
)

// Open creates a client and returns a store on it that caches refusals; see the package comment.
// [Store.Close] closes the client. Nil options are the zero OpenOptions.
//
// option is for the client. Open sets its ClientTrackingOptions, and calls its OnInvalidations
// after the cache has handled the notification. If they are zero, Open sets Dialer.KeepAlive to
// 200ms, and ConnWriteTimeout and Dialer.Timeout to 500ms (Sentinel.Dialer as well): they bound how
// long cached refusals are returned after a server has stopped answering.
//
// Open connects to the server; Dialer.Timeout bounds each dial. If the server cannot track keys
// (CLIENT TRACKING) or does not permit it to this user, the store caches nothing: [Store.Stats]
// reports it and [Store.Probe] warns. An error wraps [ratelimit.ErrInvalidOptions], before anything
// is sent, if opts are out of range or option rules caching out (AlwaysRESP2, DisableCache,
// DisableAutoPipelining, ConnLifetime, ClientTrackingOptions, SendToReplicas, ReplicaOnly).
// Otherwise it wraps [ratelimit.ErrUnavailable].
func Open(option rueidis.ClientOption, opts *serverstore.OpenOptions) (*Store, error) {
	if opts == nil {
		opts = &serverstore.OpenOptions{}
	}
	if err := errors.Join(server.CheckOptions(*opts),
		pipelined.CheckSettings(settings(option))); err != nil {
		return nil, err
	}
	cache, warning := denycache.New(*opts), ""
	client, err := connect(tracking(option, cache))
	if errors.Is(err, rueidis.ErrNoCache) {
		cache, warning = nil, untracked
		option.DisableCache = true
		client, err = connect(withTimeouts(option))
	}
	if err != nil {
		return nil, words.Refused(err)
	}
	if cache != nil {
		tracks, err := pipelined.Tracks(context.Background(), adapter{client})
		if err != nil {
			client.Close()
			return nil, words.Refused(err)
		}
		if !tracks {
			cache, warning = nil, untracked
		}
	}
	store, err := pipelined.NewStore(adapter{client}, words, opts.Options)
	if err != nil {
		client.Close()
		return nil, err
	}
	store.UseCache(cache, warning)
	return &Store{store: store, owned: client}, nil
}

const untracked = "The server does not track keys for this user (CLIENT TRACKING), " +
	"so refusals are not cached."

// connect returns a client that is connected.
func connect(option rueidis.ClientOption) (rueidis.Client, error) {
	client, err := rueidis.NewClient(option)
	if err != nil && client != nil {
		client.Close()
	}
	return client, err
}

func settings(option rueidis.ClientOption) pipelined.Settings {
	return pipelined.Settings{
		AlwaysRESP2:           option.AlwaysRESP2,
		DisableCache:          option.DisableCache,
		DisableAutoPipelining: option.DisableAutoPipelining,
		ConnLifetime:          option.ConnLifetime,
		TrackingOptions:       option.ClientTrackingOptions,
		Replicas:              option.SendToReplicas != nil || option.ReplicaOnly,
	}
}

// tracking returns option for a client whose server reports changes to cache.
func tracking(option rueidis.ClientOption, cache *denycache.Cache) rueidis.ClientOption {
	option.ClientTrackingOptions = pipelined.TrackingOptions()
	next := option.OnInvalidations
	option.OnInvalidations = func(keys []rueidis.RedisMessage) {
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
	return withTimeouts(option)
}

// withTimeouts returns option with short timeouts where it has none, so that a server that does not
// answer is soon detected.
func withTimeouts(option rueidis.ClientOption) rueidis.ClientOption {
	if option.Dialer.KeepAlive == 0 {
		option.Dialer.KeepAlive = pipelined.KeepAlive
	}
	if option.Dialer.Timeout == 0 {
		option.Dialer.Timeout = pipelined.DialTimeout
	}
	if option.Sentinel.Dialer.KeepAlive == 0 {
		option.Sentinel.Dialer.KeepAlive = pipelined.KeepAlive
	}
	if option.Sentinel.Dialer.Timeout == 0 {
		option.Sentinel.Dialer.Timeout = pipelined.DialTimeout
	}
	if option.ConnWriteTimeout == 0 {
		option.ConnWriteTimeout = pipelined.WriteTimeout
	}
	return option
}
