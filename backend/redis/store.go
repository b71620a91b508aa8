package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/internal/server"
)

// ErrInvalidOptions says that New cannot make a store of what it was given.
var ErrInvalidOptions = errors.New("redisstore: invalid options")

// Options are the options of [New]. The zero Options are the defaults.
type Options struct {
	// Prefix begins every stored key. Empty means "rl:". It may not hold braces. Stores with different prefixes share nothing.
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

	// Alone sends each demand, and each TakeAll, in a call of its own. Otherwise concurrent demands travel together: the first goes at once, and
	// those that come while calls are under way go with the next, each with a decision of its own.
	Alone bool
}

// A Store keeps its state on Redis or Valkey. Create one with [New].
type Store struct {
	store *server.Store
}

var _ ratelimit.Store = (*Store)(nil)

var words = server.Words{
	Package:  "redisstore",
	Single:   "a *redis.Client",
	Cluster:  "a *redis.ClusterClient",
	Sentinel: "a client from redis.NewFailoverClient",
	Invalid:  ErrInvalidOptions,
}

// New returns a store on client's servers. policy says what becomes of demands while they are away: there is no default, and
// docs/operations.md helps to choose. It does no I/O; [Store.Probe] does. An error wraps [ErrInvalidOptions], and also
// [errors.ErrUnsupported] for a *redis.Ring of several shards.
func New(c redis.UniversalClient, policy ratelimit.Policy, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	cl := &client{redis: c, started: time.Now()}
	missing := c == nil
	switch c := c.(type) {
	case *redis.Client:
		missing = c == nil
	case *redis.ClusterClient:
		missing = c == nil
		cl.cluster = c
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
	s, err := server.New(cl, words, policy, server.Options(*opts))
	if err != nil {
		return nil, err
	}
	return &Store{s}, nil
}

// Take decides one demand.
//
// Besides the errors of [ratelimit.CheckTake] it returns one that wraps [ratelimit.ErrNoScript], [ratelimit.ErrUnavailable] or
// [ratelimit.ErrOutcomeUnknown], with the cause wrapped. Only after the last may the demand have been recorded.
func (s *Store) Take(ctx context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	return s.store.Take(ctx, d)
}

// TakeAll decides several demands as one. On a cluster their keys must be of one slot (see Options.Tag), or else the error wraps
// [errors.ErrUnsupported]; the other errors are those of Take.
func (s *Store) TakeAll(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	return s.store.TakeAll(ctx, ds, out)
}

// Server is what [Store.Probe] found.
type Server struct {
	Name           string   // "redis" or "valkey"; what else the server calls itself
	Version        string   // such as "8.0.2", on a cluster the lowest; empty if the server does not tell
	EvictionPolicy string   // maxmemory-policy, such as "noeviction"; empty if the server does not tell
	Warnings       []string // what works but may go wrong, one sentence each
}

// Probe finds out whether the store can work: whether the server answers, is Redis or Valkey 7.0 or later, runs scripts, and lets this user
// run the commands that decisions need. It is for the start of a program, takes no longer than the context or 5s, and
// leaves nothing on the server. On a cluster all primaries are asked what they are, and one runs the script.
//
// An error says what is missing, and wraps [errors.ErrUnsupported] when it is the wrong type of server or of client, otherwise
// [ratelimit.ErrUnavailable].
func (s *Store) Probe(ctx context.Context) (Server, error) {
	info, err := s.store.Probe(ctx)
	return Server(info), err
}

// Stats tells how near a store is to its bounds. Refused is a count since the store was made. While the server answers in time Hung is
// 0, and Waiting is small.
type Stats struct {
	Waiting    int   // places for demands that wait to be sent, of which at least half are taken
	MaxWaiting int   // the most that there may be
	Hung       int   // calls that the client has not ended though nobody waits for them any longer
	MaxHung    int   // from which on no more are begun; on a cluster each server may add a few
	Refused    int64 // demands that found one of the bounds reached, answered at once with [ratelimit.ErrUnavailable]
}

// Stats returns counts that were right one after the other, not all at the same moment. It takes no lock and costs decisions nothing.
func (s *Store) Stats() Stats { return Stats(s.store.Stats()) }
