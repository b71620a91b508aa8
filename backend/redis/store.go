package redisstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/backend/internal/server"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

// A Store keeps its state on Redis or Valkey. It is safe for concurrent use. Create one with [New].
type Store struct {
	store *server.Store
}

var _ driver.Store = (*Store)(nil)

var words = server.Words{
	Package:  "redisstore",
	Single:   "a *redis.Client, redis:// in a URL",
	Cluster:  "a *redis.ClusterClient, redis+cluster:// in a URL",
	Sentinel: "a client from redis.NewFailoverClient, redis+sentinel:// in a URL",
}

// New returns a store on the servers of c; nil options are the zero Options. It does no I/O;
// [Store.Probe] does. c is a *redis.Client, *redis.ClusterClient or *redis.Ring, or a type that
// embeds one of them. An error wraps [driver.ErrInvalid], and also
// [errors.ErrUnsupported] for a *redis.Ring of several shards.
func New(c redis.UniversalClient, opts *serverstore.Options) (*Store, error) {
	if opts == nil {
		opts = &serverstore.Options{}
	}
	cl := &client{redis: c, started: time.Now()}
	if v := reflect.ValueOf(c); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("%w options: no client", driver.ErrInvalid)
	}
	switch c := c.(type) {
	case clusterClient:
		cl.cluster = c
	case interface{ Options() *redis.Options }:
	case interface{ Options() *redis.RingOptions }:
		if shards := len(c.Options().Addrs); shards > 1 {
			return nil,
				fmt.Errorf("%w options: a Ring of %d shards forgets the history of a key that it "+
					"moves to another shard: %w",
					driver.ErrInvalid, shards, errors.ErrUnsupported)
		}
	default:
		return nil,
			fmt.Errorf("%w options: %T does not show whether it is a client for one server, a "+
				"cluster or a Ring; embed a *redis.Client, *redis.ClusterClient or *redis.Ring, "+
				"or use AddHook",
				driver.ErrInvalid, c)
	}
	s, err := server.New(cl, words, *opts)
	if err != nil {
		return nil, err
	}
	return &Store{s}, nil
}

// Take decides one demand.
//
// Besides the errors of [driver.CheckTake] it returns one that wraps [driver.ErrNoScript],
// [driver.ErrUnavailable] or [driver.ErrOutcomeUnknown], and the cause. Only with the last
// may the demand have been recorded.
func (s *Store) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	return s.store.Take(ctx, d)
}

// TakeAll decides several demands as one. On a cluster their keys must be in one slot (see
// [serverstore.Options].Tag); otherwise the error wraps [errors.ErrUnsupported]. The other errors
// are those of Take.
func (s *Store) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	return s.store.TakeAll(ctx, ds, out)
}

// Probe reports whether the store can work: whether the server answers, is Redis or Valkey 7.0 or
// later, runs scripts, and lets this user run the commands that decisions need. Call it at the
// start of a program. It takes 5s at most, ends when ctx ends, and leaves nothing on the server. On
// a cluster it sends INFO to all primaries and runs a script on one.
//
// An error wraps [errors.ErrUnsupported] if the server or the client is of the wrong type, and
// [driver.ErrUnavailable] otherwise; if the server refuses the user, it also wraps
// [serverstore.ErrDenied].
func (s *Store) Probe(ctx context.Context) (serverstore.Server, error) { return s.store.Probe(ctx) }

// Stats returns the statistics of the store. Each number was right at some moment of the call.
// Stats takes no lock and does not slow decisions.
func (s *Store) Stats() serverstore.Stats { return s.store.Stats() }

// Close makes all later calls fail with [driver.ErrClosed]. It does not close the client, which
// is the caller's. Close always returns nil.
func (s *Store) Close() error { return s.store.Close() }
