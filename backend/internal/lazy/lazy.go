// Package lazy opens a store in the background and retries until its server answers, for client
// libraries that return no client while their server is unavailable.
package lazy

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

// pause is how long a Store waits after an attempt that has failed.
const pause = 250 * time.Millisecond

// An Inner is a store on servers.
type Inner interface {
	driver.Store
	Probe(context.Context) (serverstore.Server, error)
	Stats() serverstore.Stats
	Close() error
}

// A Store opens another store in the background and then forwards to it. It is safe for concurrent
// use. Create one with [Open].
type Store struct {
	open    func() (Inner, error)
	timeout time.Duration

	inner  atomic.Pointer[Inner]
	failed atomic.Pointer[error] // of the last attempt
	tried  chan struct{}         // closed when the first attempt has ended

	mu     sync.Mutex // of closing
	closed chan struct{}
}

// Open returns a store that calls open until that returns a store. Decisions wait for the first
// attempt, up to timeout. After it, and until an attempt succeeds, they fail at once with the error
// of the last attempt, which wraps [driver.ErrUnavailable]. Close it when it is no longer
// needed.
func Open(open func() (Inner, error), timeout time.Duration) *Store {
	s := &Store{
		open: open, timeout: timeout,
		tried: make(chan struct{}), closed: make(chan struct{}),
	}
	go s.run()
	return s
}

func (s *Store) run() {
	for first := true; ; first = false {
		inner, err := s.open()
		if err == nil {
			err = s.use(inner)
		} else {
			s.failed.Store(&err)
		}
		if first {
			close(s.tried)
		}
		if err == nil {
			return
		}
		select {
		case <-s.closed:
			return
		case <-time.After(pause):
		}
	}
}

// use makes inner the store of s, or closes it if s was closed meanwhile.
func (s *Store) use(inner Inner) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		return inner.Close()
	}
	s.inner.Store(&inner)
	return nil
}

func (s *Store) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// await returns the store that was opened. It waits for the first attempt, until ctx ends.
func (s *Store) await(ctx context.Context) (Inner, error) {
	select {
	case <-s.tried:
	case <-s.closed:
	case <-ctx.Done():
	}
	if inner := s.inner.Load(); inner != nil {
		return *inner, nil
	}
	if s.isClosed() {
		return nil, fmt.Errorf("%w: before it was connected", driver.ErrClosed)
	}
	if err := s.failed.Load(); err != nil {
		return nil, *err
	}
	return nil, fmt.Errorf("%w: still connecting: %w", driver.ErrUnavailable, ctx.Err())
}

// Take implements [driver.Store].
func (s *Store) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	if inner := s.inner.Load(); inner != nil {
		return (*inner).Take(ctx, d)
	}
	if err := driver.CheckTake(ctx, d); err != nil {
		return driver.Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	inner, err := s.await(ctx)
	if err != nil {
		return driver.Result{}, err
	}
	return inner.Take(ctx, d)
}

// TakeAll implements [driver.Store].
func (s *Store) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	if inner := s.inner.Load(); inner != nil {
		return (*inner).TakeAll(ctx, ds, out)
	}
	if err := driver.CheckTakeAll(ctx, ds, out); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	inner, err := s.await(ctx)
	if err != nil {
		return err
	}
	return inner.TakeAll(ctx, ds, out)
}

// Probe calls Probe of the store. It waits for the first attempt to open it, until ctx ends.
func (s *Store) Probe(ctx context.Context) (serverstore.Server, error) {
	inner, err := s.await(ctx)
	if err != nil {
		return serverstore.Server{}, err
	}
	return inner.Probe(ctx)
}

// Stats returns the statistics of the store, or zeros while there is none.
func (s *Store) Stats() serverstore.Stats {
	if inner := s.inner.Load(); inner != nil {
		return (*inner).Stats()
	}
	return serverstore.Stats{}
}

// Close closes the store, or stops the attempts to open it. An attempt that is under way ends by
// itself.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isClosed() {
		close(s.closed)
	}
	if inner := s.inner.Load(); inner != nil {
		return (*inner).Close()
	}
	return nil
}
