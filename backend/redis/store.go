package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/internal/server"
)

const (
	defaultPrefix  = "ratelimit:"
	defaultTimeout = 100 * time.Millisecond
)

// ErrInvalidOptions says that New cannot make a store of what it was given.
var ErrInvalidOptions = errors.New("redisstore: invalid options")

// Options are the options of [New]. The zero Options are the defaults.
type Options struct {
	// Prefix begins every stored key. Empty means "ratelimit:". It may not hold braces. Stores with different prefixes share nothing.
	Prefix string

	// Tag names the group of a key. A cluster keeps a group together on one server, so that TakeAll can decide demands on several of its
	// keys: with a Tag that returns "42" for both "tenant:42" and "tenant:42:user:7", for example. The tag is part of the stored key: all
	// who share a store need the same Tag. Nil, and an empty result, mean that the key is its own group.
	Tag func(key string) string

	// Timeout is how long a decision may take, waiting for a connection included. Zero means 100ms. A context with an earlier deadline
	// shortens it.
	Timeout time.Duration

	// Now replaces the server's clock, in microseconds since the Unix epoch. It is for tests: those who share a
	// store would each use their own. Nil means the server's clock.
	Now func() int64
}

// A Store keeps its state on Redis or Valkey. Create one with [New].
type Store struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // client, if it is one
	keys    server.Keyspace
	timeout time.Duration
	now     func() int64

	calls   server.Calls
	scratch sync.Pool // of *call

	started    time.Time
	nextReload atomic.Int64 // earliest time since started at which the cluster's state is asked for again
}

var _ ratelimit.Store = (*Store)(nil)

// New returns a store on client's servers. It does no I/O; [Store.Probe] does. An error wraps [ErrInvalidOptions], and also
// [errors.ErrUnsupported] for a *redis.Ring of several shards.
func New(client redis.UniversalClient, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{client: client, timeout: opts.Timeout, now: opts.Now, started: time.Now()}
	s.scratch.New = func() any { return &call{store: s} }

	missing := client == nil
	switch c := client.(type) {
	case *redis.Client:
		missing = c == nil
	case *redis.ClusterClient:
		missing = c == nil
		s.cluster = c
	case *redis.Ring:
		if missing = c == nil; missing {
			break
		}
		if shards := len(c.Options().Addrs); shards > 1 {
			return nil, fmt.Errorf("%w: a Ring of %d shards forgets the history of a key that it moves to another shard: %w",
				ErrInvalidOptions, shards, errors.ErrUnsupported)
		}
	}
	if missing {
		return nil, fmt.Errorf("%w: no client", ErrInvalidOptions)
	}

	switch {
	case opts.Timeout < 0:
		return nil, fmt.Errorf("%w: Timeout %v is negative", ErrInvalidOptions, opts.Timeout)
	case opts.Timeout == 0:
		s.timeout = defaultTimeout
	}
	prefix := opts.Prefix
	if prefix == "" {
		prefix = defaultPrefix
	}
	var err error
	if s.keys, err = server.NewKeyspace(prefix, opts.Tag); err != nil {
		return nil, fmt.Errorf("%w: Prefix: %w", ErrInvalidOptions, err)
	}
	return s, nil
}

// Take decides one demand.
//
// Besides the errors of [ratelimit.CheckTake] it returns one that wraps [ratelimit.ErrNoScript], [ratelimit.ErrUnavailable] or
// [ratelimit.ErrOutcomeUnknown], with the cause wrapped. Only after the last may the demand have been recorded.
func (s *Store) Take(ctx context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	if err := ratelimit.CheckTake(ctx, d); err != nil {
		return ratelimit.Result{}, err
	}
	ds, out := [1]ratelimit.Demand{d}, [1]ratelimit.Result{}
	if err := s.decide(ctx, ds[:], out[:]); err != nil {
		return ratelimit.Result{}, err
	}
	return out[0], nil
}

// TakeAll decides several demands as one. On a cluster their keys must be of one slot (see Options.Tag), or else the error wraps
// [errors.ErrUnsupported]; the other errors are those of Take.
func (s *Store) TakeAll(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	if err := ratelimit.CheckTakeAll(ctx, ds, out); err != nil {
		return err
	}
	return s.decide(ctx, ds, out)
}

func (s *Store) decide(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	c := s.scratch.Get().(*call)
	if err := c.prepare(ds); err != nil {
		s.scratch.Put(c)
		return err
	}
	left, err := s.calls.Do(ctx, s.timeout, &c.gate, c.run)
	if left { // the client still has c
		s.reload(err)
		return err
	}
	if err != nil {
		err = s.failure(err, c.gate.Opened())
	} else {
		err = c.script.Results(c.reply, 0, out)
	}
	s.scratch.Put(c)
	return err
}
