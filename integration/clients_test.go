package integration

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"

	"github.com/truewindow/ratelimit"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	rueidisstore "github.com/truewindow/ratelimit/backend/rueidis"
	valkeystore "github.com/truewindow/ratelimit/backend/valkey"
)

// A library is a client library that a store runs on.
type library struct {
	name string
	// open returns a new client, connected or not.
	open func(dialing) (anyClient, error)
	// caching returns what opens stores that cache refusals, with a client of their own; nil: the library cannot.
	caching func(dialing) cacheOpener
	// piped tells that the library does not tell when it sends, so that the store knows only of failed connections that nothing was sent.
	piped bool
}

var libraries = []library{
	{name: "go-redis", open: openGoRedis},
	{name: "rueidis", open: openRueidis, caching: cachingRueidis, piped: true},
	{name: "valkey-go", open: openValkey, caching: cachingValkey, piped: true},
}

// dialing is how a client finds servers.
type dialing struct {
	addrs              []string
	cluster            bool
	username, password string
	tls                *tls.Config // nil: none
	dial               dialFunc    // nil: the library's own
	style              style       // of piped libraries
	masterSet          string      // whom the Sentinels at addrs watch; empty where there are none
	patient            bool        // piped libraries wait long for a busy machine
	prompt             bool        // give up a server as soon as the stores' packages advise
	multiplex          int         // of these: connections to a server, as a power of two; 0 for the library's own, -1 for one
}

type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// style is a way in which a piped library sends commands.
type style struct {
	name             string
	always, disabled bool // AlwaysPipelining, DisableAutoPipelining
}

var styles = []style{{name: "default"}, {name: "pipelined", always: true}, {name: "pooled", disabled: true}}

const promptTimeout = 500 * time.Millisecond

var promptDialer = net.Dialer{KeepAlive: 200 * time.Millisecond, Timeout: promptTimeout}

func (d dialing) rueidis(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
	return d.dial(ctx, "tcp", addr)
}

// anyClient is a client of one of the libraries, and the stores on it.
type anyClient struct {
	store func(*redisstore.Options) (probing, error)
	// retry runs a script as the library does if it may run it again.
	retry func(ctx context.Context, script, key string) error
	close func()
}

// probing is what the stores on servers have in common.
type probing interface {
	ratelimit.Store
	probe(context.Context) (redisstore.Server, error)
}

type goRedisStore struct{ *redisstore.Store }

func (s goRedisStore) probe(ctx context.Context) (redisstore.Server, error) { return s.Probe(ctx) }

type rueidisStore struct{ *rueidisstore.Store }

func (s rueidisStore) probe(ctx context.Context) (redisstore.Server, error) {
	found, err := s.Probe(ctx)
	return redisstore.Server(found), err
}

type valkeyStore struct{ *valkeystore.Store }

func (s valkeyStore) probe(ctx context.Context) (redisstore.Server, error) {
	found, err := s.Probe(ctx)
	return redisstore.Server(found), err
}

func openGoRedis(d dialing) (anyClient, error) {
	var c redis.UniversalClient
	if d.masterSet != "" {
		opts := &redis.FailoverOptions{MasterName: d.masterSet, SentinelAddrs: d.addrs}
		if d.prompt {
			opts.DialTimeout = promptTimeout
		}
		c = redis.NewFailoverClient(opts)
	} else if d.cluster {
		c = redis.NewClusterClient(&redis.ClusterOptions{Addrs: d.addrs, Username: d.username, Password: d.password, Dialer: d.dial, TLSConfig: d.tls})
	} else {
		opts := &redis.Options{Addr: d.addrs[0], Username: d.username, Password: d.password, Dialer: d.dial, TLSConfig: d.tls, PoolSize: 8}
		if d.prompt {
			opts.DialTimeout, opts.DialerRetries = promptTimeout, 1
		}
		c = redis.NewClient(opts)
	}
	return goRedisClient(c), nil
}

func goRedisClient(c redis.UniversalClient) anyClient {
	return anyClient{
		store: func(opts *redisstore.Options) (probing, error) {
			s, err := redisstore.New(c, ratelimit.FailClosed, opts)
			return goRedisStore{s}, err
		},
		retry: func(ctx context.Context, script, key string) error { return c.Eval(ctx, script, []string{key}).Err() },
		close: func() { c.Close() },
	}
}

func openRueidis(d dialing) (anyClient, error) {
	opts := d.rueidisOption()
	opts.DisableCache = d.username != "" // whose rights are the least
	c, err := rueidis.NewClient(opts)
	if c == nil { // a client for a single server dials again
		return anyClient{}, err
	}
	return anyClient{
		store: func(opts *redisstore.Options) (probing, error) {
			s, err := rueidisstore.New(c, ratelimit.FailClosed, (*rueidisstore.Options)(opts))
			return rueidisStore{s}, err
		},
		retry: func(ctx context.Context, script, key string) error {
			return c.Do(ctx, c.B().Arbitrary("eval", script, "1").Keys(key).Build().ToRetryable()).Error()
		},
		close: c.Close,
	}, nil
}

func openValkey(d dialing) (anyClient, error) {
	opts := d.valkeyOption()
	opts.DisableCache = d.username != ""
	c, err := valkey.NewClient(opts)
	if c == nil {
		return anyClient{}, err
	}
	return anyClient{
		store: func(opts *redisstore.Options) (probing, error) {
			s, err := valkeystore.New(c, ratelimit.FailClosed, (*valkeystore.Options)(opts))
			return valkeyStore{s}, err
		},
		retry: func(ctx context.Context, script, key string) error {
			return c.Do(ctx, c.B().Arbitrary("eval", script, "1").Keys(key).Build().ToRetryable()).Error()
		},
		close: c.Close,
	}, nil
}

func (d dialing) rueidisOption() rueidis.ClientOption {
	opts := rueidis.ClientOption{
		InitAddress: d.addrs, ForceSingleClient: !d.cluster && d.masterSet == "", Username: d.username, Password: d.password, TLSConfig: d.tls,
		AlwaysPipelining: d.style.always, DisableAutoPipelining: d.style.disabled, PipelineMultiplex: d.multiplex,
	}
	if d.dial != nil {
		opts.DialCtxFn = d.rueidis
	}
	if opts.Sentinel.MasterSet = d.masterSet; d.prompt {
		opts.Dialer, opts.Sentinel.Dialer, opts.ConnWriteTimeout = promptDialer, promptDialer, promptTimeout
	}
	if d.patient {
		opts.Dialer, opts.ConnWriteTimeout = net.Dialer{Timeout: patient, KeepAlive: patient}, patient
	}
	return opts
}

func (d dialing) valkeyOption() valkey.ClientOption {
	opts := valkey.ClientOption{
		InitAddress: d.addrs, ForceSingleClient: !d.cluster && d.masterSet == "", Username: d.username, Password: d.password, TLSConfig: d.tls,
		AlwaysPipelining: d.style.always, DisableAutoPipelining: d.style.disabled, PipelineMultiplex: d.multiplex,
	}
	if d.dial != nil {
		opts.DialCtxFn = d.rueidis
	}
	if opts.Sentinel.MasterSet = d.masterSet; d.prompt {
		opts.Dialer, opts.Sentinel.Dialer, opts.ConnWriteTimeout = promptDialer, promptDialer, promptTimeout
	}
	if d.patient {
		opts.Dialer, opts.ConnWriteTimeout = net.Dialer{Timeout: patient, KeepAlive: patient}, patient
	}
	return opts
}

// caching is a store that caches refusals, on a client of its own.
type caching interface {
	probing
	CacheStats() rueidisstore.CacheStats
	Close()
}

type cacheOpener func(*redisstore.Options) (caching, error)

type valkeyCaching struct{ valkeyStore }

func (s valkeyCaching) CacheStats() rueidisstore.CacheStats {
	return rueidisstore.CacheStats(s.Store.CacheStats())
}

func cachingRueidis(d dialing) cacheOpener {
	return func(opts *redisstore.Options) (caching, error) {
		s, err := rueidisstore.Open(d.rueidisOption(), ratelimit.FailClosed, &rueidisstore.OpenOptions{Options: rueidisstore.Options(*opts)})
		return rueidisStore{s}, err
	}
}

func cachingValkey(d dialing) cacheOpener {
	return func(opts *redisstore.Options) (caching, error) {
		s, err := valkeystore.Open(d.valkeyOption(), ratelimit.FailClosed, &valkeystore.OpenOptions{Options: valkeystore.Options(*opts)})
		return valkeyCaching{valkeyStore{s}}, err
	}
}

// store returns a new store, closed at the end of the test.
func (open cacheOpener) store(t testing.TB, opts *redisstore.Options) caching {
	t.Helper()
	s, err := open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// eachCaching runs f, as a subtest, with every client library that can cache refusals.
func eachCaching(t *testing.T, f func(t *testing.T, lib library)) {
	t.Helper()
	eachLibrary(t, func(t *testing.T, lib library) {
		if lib.caching != nil {
			f(t, lib)
		}
	})
}

// eachLibrary runs f, as a subtest, with every client library.
func eachLibrary(t *testing.T, f func(t *testing.T, lib library)) {
	t.Helper()
	for _, lib := range libraries {
		t.Run(lib.name, func(t *testing.T) { f(t, lib) })
	}
}

// client returns a new client, closed at the end of the test.
func (lib library) client(t testing.TB, d dialing) anyClient {
	t.Helper()
	c, err := lib.open(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

// newStore returns a store on c.
func (c anyClient) newStore(t testing.TB, opts *redisstore.Options) probing {
	t.Helper()
	s, err := c.store(opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// closeAll closes c and returns when every connection is closed: those of a cluster the piped libraries close in the background. A
// connection that is being made meanwhile they leave open, so all are made before.
func (c anyClient) closeAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), faultTimeout)
	defer cancel()
	works := func(i int) bool { return c.retry(ctx, "return 1", fmt.Sprintf("closed:%d", i)) == nil }
	const keys = 20 // of all primaries
	for i := range keys {
		works(i)
	}
	c.close()
	return poll(ctx, func() (bool, error) {
		for i := range keys {
			if works(i) {
				return false, nil
			}
		}
		return true, nil
	})
}

// dialing is how a client finds tgt.
func (tgt *target) dialing() dialing { return dialing{addrs: tgt.addrs, cluster: tgt.cluster} }
