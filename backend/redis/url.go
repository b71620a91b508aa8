package redisstore

import (
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/backend/internal/serverurl"
)

func init() {
	serverurl.Register(serverurl.Library{Plain: "redis", TLS: "rediss"}, openURL)
}

// The settings of clients for URLs. With them a client soon detects that a server is unavailable,
// and that it has recovered.
const (
	dialTimeout   = 500 * time.Millisecond
	dialerRetries = 1
)

// openURL does no I/O: the client connects when it is first used.
func openURL(c serverurl.Config) (*backend.Store, error) {
	client := newClient(c)
	s, err := New(client, &c.Options.Options)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &backend.Store{
		Store: s,
		Probe: s.Probe,
		Stats: func() any { return s.Stats() },
		Close: func() error { return errors.Join(s.Close(), client.Close()) },
	}, nil
}

func newClient(c serverurl.Config) redis.UniversalClient {
	switch c.Kind {
	case serverurl.Cluster:
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: c.Addrs, Username: c.Username, Password: c.Password, TLSConfig: c.TLS,
			DialTimeout: dialTimeout, DialerRetries: dialerRetries,
		})
	case serverurl.Sentinel:
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: c.MasterName, SentinelAddrs: c.Addrs, DB: c.DB, TLSConfig: c.TLS,
			Username: c.Username, Password: c.Password,
			SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword,
			DialTimeout: dialTimeout, DialerRetries: dialerRetries,
		})
	}
	return redis.NewClient(&redis.Options{
		Addr: c.Addrs[0], DB: c.DB, TLSConfig: c.TLS,
		Username: c.Username, Password: c.Password,
		DialTimeout: dialTimeout, DialerRetries: dialerRetries,
	})
}
