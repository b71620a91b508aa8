package rueidisstore

import (
	"cmp"

	"github.com/redis/rueidis"

	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/backend/internal/lazy"
	"github.com/truewindow/ratelimit/backend/internal/pipelined"
	"github.com/truewindow/ratelimit/backend/internal/server"
	"github.com/truewindow/ratelimit/backend/internal/serverurl"
	"github.com/truewindow/ratelimit/backend/serverstore"
)

func init() {
	serverurl.Register(
		serverurl.Library{Plain: "rueidis", TLS: "rueidiss", Caches: true}, openURL)
}

// openURL connects in the background: the library returns no client for a cluster or for Sentinels
// until it reaches one of the servers.
func openURL(c serverurl.Config) (*backend.Store, error) {
	s := lazy.Open(func() (lazy.Inner, error) { return connectURL(c) },
		cmp.Or(c.Options.Timeout, server.DefaultTimeout))
	return &backend.Store{
		Store: s,
		Probe: s.Probe,
		Stats: func() any { return s.Stats() },
		Close: s.Close,
	}, nil
}

func connectURL(c serverurl.Config) (lazy.Inner, error) {
	open := Open
	if c.NoCache {
		open = openUncached
	}
	s, err := open(clientOption(c), &c.Options)
	if err != nil {
		reply, _ := adapter{}.ErrorReply(err)
		return nil, server.Denied(err, reply)
	}
	return s, nil
}

// openUncached is Open without a cache.
func openUncached(option rueidis.ClientOption, opts *serverstore.OpenOptions) (*Store, error) {
	option.DisableCache = true
	client, err := connect(withTimeouts(option))
	if err != nil {
		return nil, words.Refused(err)
	}
	store, err := pipelined.NewStore(client, words, opts.Options)
	if err != nil {
		client.Close()
		return nil, err
	}
	return &Store{store: store, owned: client}, nil
}

func clientOption(c serverurl.Config) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: c.Addrs, SelectDB: c.DB, TLSConfig: c.TLS,
		Username: c.Username, Password: c.Password,
		ForceSingleClient: c.Kind == serverurl.Single,
		Sentinel: rueidis.SentinelOption{
			MasterSet: c.MasterName, TLSConfig: c.TLS,
			Username: c.SentinelUsername, Password: c.SentinelPassword,
		},
	}
}
