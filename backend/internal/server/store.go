// Package server has what the stores on Redis and Valkey servers share, whatever their client
// library: a store that batches demands, runs them as scripts and reads the replies.
//
// [Store] puts a Take into the queue of its server ([batch.Queue]). The queue passes it, batched
// with others, to the executor, which builds a script (package lua), sends it through the [Client]
// and sets the results.
package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/backend/internal/batch"
	"github.com/truewindow/ratelimit/backend/internal/denycache"
	"github.com/truewindow/ratelimit/backend/internal/detached"
	"github.com/truewindow/ratelimit/backend/internal/keyspace"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

// A Store implements the Store of a client library's package.
type Store struct {
	executor executor
	queues   queues
	calls    detached.Calls // of the client, for probes and createKeys
	caches   bool           // should have a cache
	closed   atomic.Bool
}

// New returns a store on client's servers. An error wraps [driver.ErrInvalid].
func New(client Client, words Words, opts serverstore.Options) (*Store, error) {
	keys, err := keyspaceOf(opts)
	if err != nil {
		return nil, err
	}
	s := &Store{
		executor: executor{
			servers: servers{client: client, cluster: client.Cluster(), words: words, keys: keys},
			now:     opts.Now,
		},
		calls: detached.Calls{Max: batch.MaxAbandoned, Prefix: words.Package},
	}
	s.executor.slotted.Store(s.executor.cluster)
	if router, ok := client.(Router); ok && s.executor.cluster {
		s.executor.router, s.executor.moving = router, newMovingSlots()
	}
	s.queues.open(&s.executor, opts)
	return s, nil
}

// UseCache makes s return refusals from c. With a nil c there is no cache, and Probe warns. Call it
// before the first demand. With a cache the client must be a [Tracker].
func (s *Store) UseCache(c *denycache.Cache) {
	s.executor.cache, s.caches = c, true
	s.executor.tracker, _ = s.executor.client.(Tracker)
}

// Tracks reports whether the server tracks keys for this user. The client must be a [Tracker]. An
// error means that the server did not reply.
func (s *Store) Tracks(ctx context.Context) (bool, error) {
	return s.executor.tracks(ctx, s.executor.client.(Tracker))
}

// Take implements [driver.Store].
func (s *Store) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	if err := driver.CheckTake(ctx, d); err != nil {
		return driver.Result{}, err
	}
	var cached [1]driver.Result
	if s.executor.cache.Lookup([]driver.Demand{d}, cached[:]) {
		return cached[0], nil
	}
	if s.closed.Load() {
		return driver.Result{}, s.errClosed()
	}
	return s.take(ctx, d)
}

// take sends one demand.
func (s *Store) take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	if err := checkAlgorithm(d.Algorithm); err != nil {
		return driver.Result{}, err
	}
	key := s.executor.keys.Key(d)
	d.Key = s.executor.cache.CopyKey(d.Key)
	queue := s.queues.queue(key)
	if !s.executor.cluster {
		return queue.Take(ctx, key, d)
	}
	began := time.Now()
	res, err := queue.Take(ctx, key, d)
	if !s.executor.isTryAgain(err) {
		return res, err
	}
	return s.takeAgain(ctx, began, err, key, d)
}

// takeAgain repeats a take that began at began and failed with first, since the slot of the key
// moves.
func (s *Store) takeAgain(
	ctx context.Context, began time.Time, first error, key string, d driver.Demand,
) (res driver.Result, err error) {
	err = s.again(ctx, began, first, []string{key}, []driver.Demand{d},
		func(ctx context.Context) (err error) {
			res, err = s.queues.queue(key).Take(ctx, key, d)
			return err
		})
	return res, err
}

// again is retryTryAgain for a decide of ds, whose keys it creates before each call.
func (s *Store) again(
	ctx context.Context, began time.Time, first error, keys []string, ds []driver.Demand,
	decide func(context.Context) error,
) error {
	deadline := began.Add(s.queues.shared.Timeout)
	return s.executor.retryTryAgain(ctx, deadline, first, func(ctx context.Context) error {
		s.createKeys(ctx, keys, ds)
		return decide(ctx)
	})
}

// TakeAll implements [driver.Store].
func (s *Store) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	if err := driver.CheckTakeAll(ctx, ds, out); err != nil {
		return err
	}
	if s.executor.cache.Lookup(ds, out) {
		return nil
	}
	if s.closed.Load() {
		return s.errClosed()
	}
	if len(ds) == 1 {
		res, err := s.take(ctx, ds[0])
		if err == nil {
			out[0] = res
		}
		return err
	}
	keys, owned := make([]string, len(ds)), slices.Clone(ds)
	for i := range ds {
		if err := checkAlgorithm(ds[i].Algorithm); err != nil {
			return err
		}
		keys[i] = s.executor.keys.Key(ds[i])
		owned[i].Key = s.executor.cache.CopyKey(ds[i].Key)
	}
	if !s.executor.cluster {
		return s.queues.queue(keys[0]).TakeAll(ctx, keys, owned, out)
	}
	if !keyspace.OneSlot(keys) {
		return fmt.Errorf("%s: the keys of a TakeAll are in several slots of the cluster; "+
			"Options.Tag can put them in one: %w",
			s.executor.words.Package, errors.ErrUnsupported)
	}
	began := time.Now()
	decide := func(ctx context.Context) error {
		return s.queues.queue(keys[0]).TakeAll(ctx, keys, owned, out)
	}
	err := decide(ctx)
	if !s.executor.isTryAgain(err) {
		return err
	}
	return s.again(ctx, began, err, keys, owned, decide)
}

// createKeys calls executor.createKeys, which may hang, with a timeout.
func (s *Store) createKeys(ctx context.Context, keys []string, ds []driver.Demand) {
	create := func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.executor.createKeys(ctx, keys, ds)
	}
	_, _ = detached.Do(ctx, &s.calls, s.queues.shared.Timeout, create)
}

// checkAlgorithm returns an error for an algorithm without a script. It panics, in the caller's
// goroutine, for one that cannot be compared.
func checkAlgorithm(a driver.Algorithm) error {
	if a.Script().Source == "" {
		return fmt.Errorf("%w: %q", driver.ErrNoScript, a.Name())
	}
	equal(a, a)
	return nil
}

func equal(a, b driver.Algorithm) bool { return a == b }

// Probe reports whether the store can work.
func (s *Store) Probe(ctx context.Context) (serverstore.Server, error) {
	probe := func(ctx context.Context) (serverstore.Server, error) {
		return s.executor.probe(ctx, s.caches)
	}
	return detached.Do(ctx, &s.calls, probeTimeout, probe)
}

// Stats returns counts that were each right at some moment of the call. It takes no lock.
func (s *Store) Stats() serverstore.Stats {
	return serverstore.Stats{
		Queued:       s.queues.shared.Queued(),
		MaxQueued:    batch.MaxQueued,
		Abandoned:    s.queues.shared.Abandoned() + int(s.calls.Abandoned()),
		MaxAbandoned: batch.MaxAbandoned,
		Refused:      s.queues.shared.Refused() + s.calls.Refused(),
		Cache:        s.executor.cache.Stats(),
	}
}

// Close makes all later calls fail with [driver.ErrClosed]. It does not close the client. Its
// error is nil.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.executor.cache.Close()
	return nil
}

func (s *Store) errClosed() error {
	return fmt.Errorf("%w (%s)", driver.ErrClosed, s.executor.words.Package)
}
