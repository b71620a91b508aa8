package rueidisstore

import (
	"context"
	"errors"
	"reflect"

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
// long cached refusals are returned after a server has stopped answering. Open sets
// Sentinel.TopologyRefreshInterval to 5s, too, if it is zero.
//
// Open connects to the server; Dialer.Timeout bounds each dial. If the server cannot track keys
// (CLIENT TRACKING) or does not permit it to this user, the store caches nothing: [Store.Stats]
// reports it and [Store.Probe] warns. If the user loses the right later, the store goes on without
// the cache, and uses it again a second or two after the right has returned.
//
// An error wraps [driver.ErrInvalid], before anything is sent, if opts are out of range
// or option rules caching out (AlwaysRESP2, DisableCache, DisableAutoPipelining, ConnLifetime,
// ClientTrackingOptions, SendToReplicas, ReplicaOnly). Otherwise it wraps
// [driver.ErrUnavailable].
func Open(option rueidis.ClientOption, opts *serverstore.OpenOptions) (*Store, error) {
	if opts == nil {
		opts = &serverstore.OpenOptions{}
	}
	if err := errors.Join(server.CheckOptions(*opts),
		pipelined.CheckSettings(settings(option))); err != nil {
		return nil, err
	}
	cache := denycache.New(*opts)
	plain := option
	plain.DisableCache = true
	open := func() (pipelined.Client, error) { return connect(withTimeouts(plain)) }
	client, err := connect(tracking(option, cache))
	if err == nil {
		client = pipelined.NewFallback(client, open)
	} else if errors.Is(err, rueidis.ErrNoCache) {
		cache = nil
		client, err = open()
	}
	if err != nil {
		return nil, words.Refused(err)
	}
	store, err := pipelined.NewStore(client, words, opts.Options)
	if err != nil {
		client.Close()
		return nil, err
	}
	if cache != nil {
		tracks, err := store.Tracks(context.Background())
		if err != nil {
			client.Close()
			return nil, words.Refused(err)
		}
		if !tracks {
			cache = nil
		}
	}
	store.UseCache(cache)
	return &Store{store: store, owned: client}, nil
}

// connect returns a client that is connected.
func connect(option rueidis.ClientOption) (pipelined.Client, error) {
	client, err := rueidis.NewClient(option)
	// Up to version 1.0.77 an error may come with a nil pointer in the interface.
	if err != nil && client != nil && !reflect.ValueOf(client).IsNil() {
		client.Close()
	}
	return adapter{client}, err
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
// answer is soon detected. A client that has missed the event of a failover finds the new primary.
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
	if option.Sentinel.TopologyRefreshInterval == 0 {
		option.Sentinel.TopologyRefreshInterval = pipelined.SentinelRefresh
	}
	return option
}
