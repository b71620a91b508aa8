// Package clients opens client libraries and the stores on them, and makes the demands of tests.
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
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// A Library is a client library with a store.
type Library struct {
	Name string
	// Open returns a new client, connected or not.
	Open func(Dialing) (Client, error)
	// Caching returns a function that opens caching stores, each with its own client. It is nil
	// where the library cannot cache refusals.
	Caching func(Dialing) CacheOpener
	// Piped means that the library does not report when it sends, so a store is sure that nothing
	// was sent only if connecting failed.
	Piped bool
}

// Libraries are the client libraries with a store.
var Libraries = []Library{
	{Name: "go-redis", Open: OpenGoRedis},
	{Name: "rueidis", Open: openRueidis, Caching: cachingRueidis, Piped: true},
	{Name: "valkey-go", Open: openValkey, Caching: cachingValkey, Piped: true},
}

// A Client is a client of a library, with the stores on it.
type Client struct {
	Store func(*serverstore.Options) (Probing, error)
	// Retry runs a script that the library may send again.
	Retry func(ctx context.Context, script, key string) error
	Close func()
}

// OpenGoRedis returns a new go-redis client.
func OpenGoRedis(d Dialing) (Client, error) {
	var c redis.UniversalClient
	protocol := 3
	if d.RESP2 {
		protocol = 2
	}
	if d.MasterSet != "" {
		opts := &redis.FailoverOptions{
			MasterName: d.MasterSet, SentinelAddrs: d.Addrs, Dialer: d.Dial,
		}
		if d.Prompt {
			opts.DialTimeout = PromptTimeout
		}
		c = redis.NewFailoverClient(opts)
	} else if d.Cluster {
		c = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: d.Addrs, Username: d.Username, Password: d.Password, Dialer: d.Dial,
			TLSConfig: d.TLS, Protocol: protocol,
		})
	} else {
		opts := &redis.Options{
			Addr: d.Addrs[0], Username: d.Username, Password: d.Password, Dialer: d.Dial,
			TLSConfig: d.TLS,
			PoolSize:  8, Protocol: protocol,
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
	opts.DisableCache = d.RESP2 || d.Username != "" // such a user has the fewest rights
	c, err := rueidis.NewClient(opts)
	if c == nil { // beside an error, a client for a single server still works and dials again
		return Client{}, err
	}
	return Client{
		Store: func(opts *serverstore.Options) (Probing, error) {
			return rueidisstore.New(c, opts)
		},
		Retry: func(ctx context.Context, script, key string) error {
			return c.Do(ctx, c.B().Arbitrary("eval", script, "1").Keys(key).ReadOnly()).
				Error()
		},
		Close: c.Close,
	}, nil
}

func openValkey(d Dialing) (Client, error) {
	opts := d.ValkeyOption()
	opts.DisableCache = d.RESP2 || d.Username != ""
	c, err := valkey.NewClient(opts)
	if c == nil {
		return Client{}, err
	}
	return Client{
		Store: func(opts *serverstore.Options) (Probing, error) {
			return valkeystore.New(c, opts)
		},
		Retry: func(ctx context.Context, script, key string) error {
			return c.Do(ctx, c.B().Arbitrary("eval", script, "1").Keys(key).ReadOnly()).
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

// EachOn is Each for a test that runs on several servers, of which on is the name: the image, or
// the Target's. In a full run it pairs all libraries with all servers. Otherwise clusters and Redis
// go with go-redis and rueidis, and the newest Valkey with valkey-go, so that each library and each
// server is tried.
func EachOn(t *testing.T, on string, f func(t *testing.T, lib Library)) {
	t.Helper()
	Each(t, func(t *testing.T, lib Library) {
		if depth.Full || len(servers.Images()) == 1 ||
			(on == servers.Newest()) == (lib.Name == "valkey-go") {
			f(t, lib)
		}
	})
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

// CloseAll closes c and returns when all its connections are closed. The piped libraries close the
// connections of a cluster in the background and leak one that is still being opened, so CloseAll
// opens all connections first.
func (c Client) CloseAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), servers.FaultTimeout)
	defer cancel()
	works := func(i int) bool {
		return c.Retry(ctx, "return 1", fmt.Sprintf("closed:%d", i)) == nil
	}
	const keys = 20 // enough to reach all primaries
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
