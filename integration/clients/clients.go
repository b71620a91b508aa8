// Package clients has the client libraries that stores run on, the stores on them, and the demands
// that tests make of them.
package clients

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"

	redisstore "github.com/truewindow/ratelimit/backend/redis"
	rueidisstore "github.com/truewindow/ratelimit/backend/rueidis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	valkeystore "github.com/truewindow/ratelimit/backend/valkey"
	"github.com/truewindow/ratelimit/integration/servers"
)

// A Library is a client library that a store runs on.
type Library struct {
	Name string
	// Open returns a new client, connected or not.
	Open func(Dialing) (Client, error)
	// Caching returns what opens stores that cache refusals, each with a client of its own. It is
	// nil where the library cannot.
	Caching func(Dialing) CacheOpener
	// Piped means that the library does not tell when it sends, so that a store knows that nothing
	// was sent only where the connection failed.
	Piped bool
}

// Libraries are the client libraries that there is a store on.
var Libraries = []Library{
	{Name: "go-redis", Open: OpenGoRedis},
	{Name: "rueidis", Open: openRueidis, Caching: cachingRueidis, Piped: true},
	{Name: "valkey-go", Open: openValkey, Caching: cachingValkey, Piped: true},
}

// A Client is a client of one of the libraries, and the stores on it.
type Client struct {
	Store func(*serverstore.Options) (Probing, error)
	// Retry runs a script as the library does if it may run it again.
	Retry func(ctx context.Context, script, key string) error
	Close func()
}

// OpenGoRedis returns a new go-redis client.
func OpenGoRedis(d Dialing) (Client, error) {
	var c redis.UniversalClient
	if d.MasterSet != "" {
		opts := &redis.FailoverOptions{MasterName: d.MasterSet, SentinelAddrs: d.Addrs}
		if d.Prompt {
			opts.DialTimeout = PromptTimeout
		}
		c = redis.NewFailoverClient(opts)
	} else if d.Cluster {
		c = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: d.Addrs, Username: d.Username, Password: d.Password, Dialer: d.Dial,
			TLSConfig: d.TLS,
		})
	} else {
		opts := &redis.Options{
			Addr: d.Addrs[0], Username: d.Username, Password: d.Password, Dialer: d.Dial,
			TLSConfig: d.TLS,
			PoolSize:  8,
		}
		if d.Prompt {
			opts.DialTimeout, opts.DialerRetries = PromptTimeout, 1
		}
		c = redis.NewClient(opts)
	}
	return GoRedis(c), nil
}

// GoRedis returns c as a Client.
func GoRedis(c redis.UniversalClient) Client {
	return Client{
		Store: func(opts *serverstore.Options) (Probing, error) {
			return redisstore.New(c, opts)
		},
		Retry: func(ctx context.Context, script, key string) error {
			return c.Eval(ctx, script, []string{key}).Err()
		},
		Close: func() { c.Close() },
	}
}

func openRueidis(d Dialing) (Client, error) {
	opts := d.RueidisOption()
	opts.DisableCache = d.Username != "" // whose rights are the least
	c, err := rueidis.NewClient(opts)
	if c == nil { // a client for a single server dials again
		return Client{}, err
	}
	return Client{
		Store: func(opts *serverstore.Options) (Probing, error) {
			return rueidisstore.New(c, opts)
		},
		Retry: func(ctx context.Context, script, key string) error {
			return c.Do(ctx, c.B().Arbitrary("eval", script, "1").Keys(key).Build().ToRetryable()).
				Error()
		},
		Close: c.Close,
	}, nil
}

func openValkey(d Dialing) (Client, error) {
	opts := d.ValkeyOption()
	opts.DisableCache = d.Username != ""
	c, err := valkey.NewClient(opts)
	if c == nil {
		return Client{}, err
	}
	return Client{
		Store: func(opts *serverstore.Options) (Probing, error) {
			return valkeystore.New(c, opts)
		},
		Retry: func(ctx context.Context, script, key string) error {
			return c.Do(ctx, c.B().Arbitrary("eval", script, "1").Keys(key).Build().ToRetryable()).
				Error()
		},
		Close: c.Close,
	}, nil
}

// Each runs f, as a subtest, with every client library.
func Each(t *testing.T, f func(t *testing.T, lib Library)) {
	t.Helper()
	for _, lib := range Libraries {
		t.Run(lib.Name, func(t *testing.T) { f(t, lib) })
	}
}

// Client returns a new client, closed at the end of the test.
func (lib Library) Client(t testing.TB, d Dialing) Client {
	t.Helper()
	c, err := lib.Open(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// NewStore returns a store on c.
func (c Client) NewStore(t testing.TB, opts *serverstore.Options) Probing {
	t.Helper()
	s, err := c.Store(opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// CloseAll closes c and returns when every connection is closed: the piped libraries close those of
// a cluster in the background. They leave a connection open that is being made meanwhile, so
// CloseAll makes all of them first.
func (c Client) CloseAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), servers.FaultTimeout)
	defer cancel()
	works := func(i int) bool {
		return c.Retry(ctx, "return 1", fmt.Sprintf("closed:%d", i)) == nil
	}
	const keys = 20 // of all primaries
	for i := range keys {
		works(i)
	}
	c.Close()
	return servers.Poll(ctx, func() (bool, error) {
		for i := range keys {
			if works(i) {
				return false, nil
			}
		}
		return true, nil
	})
}
