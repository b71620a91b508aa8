// Package transactional makes a store of a database with transactions. The author writes a [Tx],
// which locks, loads and saves states; the package does the rest: it checks demands, names states,
// runs steps, decides several demands as one, and reports whether a failed call may have been
// recorded.
//
//	store, err := transactional.New(begin, nil)
//
// docs/writing-a-store.md has a store on bbolt in full. Package conformance tests yours.
package transactional

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/backend/internal/detached"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/deadline"
)

// A Tx is one transaction. It decides one call of the store. Its methods are called one after the
// other: Load, Save for each state to be written, then Commit if there was a Save, and always
// Rollback at the end, all in one goroutine, which is not the caller's. If begin (see [New]), Load
// or Save fails, the call returns an error that wraps [driver.ErrUnavailable] and that error. If a
// lock of a key is not free in time, or the database has rolled back because of another transaction
// with the key, let the error wrap [driver.ErrContended], so that it is no outage. Errors must not
// contain keys or passwords.
type Tx interface {
	// Load locks the states of keys until the transaction ends, so that no other transaction reads
	// or writes them, and returns them in the order of keys: nil for a key that has none. Then it
	// reads the clock, in microseconds since the Unix epoch. All processes that share the database
	// must use the same clock, so use the server's.
	//
	// The keys are sorted and distinct, so transactions that lock them in order do not deadlock. If
	// a lock is a number, such as a hash of the key, lock in the order of the numbers. Keys are
	// those of [driver.Demand.StoredKey]: at most 250 bytes of printable ASCII, to be compared
	// byte by byte. Read the clock last: a decision that waited for a lock must not use a time from
	// before the wait.
	//
	// The states may be memory of the database that is valid until the transaction ends: the
	// package copies them. A slice of another length than keys, or a now that is not between 0 and
	// the year 2112, fails the call.
	Load(ctx context.Context, keys []string) (states [][]byte, now int64, err error)

	// Save stores state for a key of Load, and forgets it no sooner than expires, on the clock of
	// Load. An empty state may be deleted instead. Save must not keep state after it returns.
	Save(ctx context.Context, key string, state []byte, expires int64) error

	// Commit makes what was saved durable. After an error the outcome is unknown, unless the error
	// wraps [driver.ErrUnavailable]: then the server has reported that nothing was saved.
	Commit(ctx context.Context) error

	// Rollback ends the transaction and its locks, if Commit has not. It is called after Commit
	// too, and must not undo what was saved.
	Rollback()
}

// Options are the options of a [Store]. The zero value is ready for use.
type Options struct {
	// Timeout is how long a decision may take, the wait for other calls and for locks included.
	// Zero means a second. A context may end it sooner.
	Timeout time.Duration
	// Now is used instead of the clock that Load returns, for tests. It returns microseconds since
	// the Unix epoch.
	Now func() int64
}

const (
	defaultTimeout = time.Second
	maxAbandoned   = 1024    // transactions in progress whose callers no longer wait
	endOfTime      = 1 << 52 // µs, in 2112
)

// Store is a store on a database. All methods are safe for concurrent use.
type Store struct {
	begin   func(context.Context) (Tx, error)
	timeout time.Duration
	now     func() int64 // or nil
	calls   detached.Calls
	queue   queue
	closed  atomic.Bool
}

var _ driver.Store = (*Store)(nil)

// New returns a store that begins a transaction for each call. An error wraps
// [driver.ErrInvalid].
//
// A Tx may ignore its context: a call still returns in time, and a transaction that has not reached
// Commit by then is rolled back when its method returns. While 1,024 such transactions are in
// progress, further calls return [driver.ErrUnavailable] at once.
//
// Of the calls with one key at most two have a transaction at a time, beside abandoned ones that
// hang, and the others wait in the store. If a call is not decided in time, its error is
// [driver.ErrContended] if the database has answered another call with its key in the second half
// of that time; otherwise it is an outage.
func New(begin func(context.Context) (Tx, error), opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{begin: begin, timeout: opts.Timeout, now: opts.Now,
		calls: detached.Calls{Max: maxAbandoned, Prefix: "transaction"}}
	switch {
	case begin == nil:
		return nil, fmt.Errorf("%w options: transactional: begin is nil", driver.ErrInvalid)
	case s.timeout < 0:
		return nil, fmt.Errorf("%w options: transactional: Timeout %v is negative",
			driver.ErrInvalid, s.timeout)
	case s.timeout == 0:
		s.timeout = defaultTimeout
	}
	return s, nil
}

// Close makes further calls return [driver.ErrClosed]. It does not close the database. The error
// is nil.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}

// Take decides one demand.
func (s *Store) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	if err := driver.CheckTake(ctx, d); err != nil {
		return driver.Result{}, err
	}
	results, err := s.run(ctx, []driver.Demand{d})
	if err != nil {
		return driver.Result{}, err
	}
	return results[0], nil
}

// TakeAll decides several demands as one.
func (s *Store) TakeAll(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) error {
	if err := driver.CheckTakeAll(ctx, ds, out); err != nil {
		return err
	}
	results, err := s.run(ctx, slices.Clone(ds)) // an abandoned transaction still reads them
	copy(out, results)
	return err
}

// run decides ds when it is their turn, in a goroutine of its own. It stops waiting when the time
// is over.
func (s *Store) run(
	ctx context.Context, ds []driver.Demand,
) ([]driver.Result, error) {
	if s.closed.Load() {
		return nil, fmt.Errorf("transactional: %w", driver.ErrClosed)
	}
	if err := s.calls.Full(); err != nil {
		return nil, fmt.Errorf("transactional: %w", err)
	}
	t := newTransaction(s, ds)
	waited, err := t.turn.wait(ctx, s.timeout)
	if err != nil {
		err = fmt.Errorf("%w: calls with the same key did not end in time: %w",
			driver.ErrUnavailable, err)
	} else if _, err = detached.Do(ctx, &s.calls, s.timeout-waited, t.run); err == nil {
		return t.results, nil
	}
	if t.phase.CompareAndSwap(waiting, abandoned) {
		t.turn.leave(false)
	} else {
		// A method of the Tx may hang for long although the database answers other calls.
		time.AfterFunc(s.timeout, func() { t.turn.leave(false) })
		if !t.phase.CompareAndSwap(pending, abandoned) {
			err = fmt.Errorf("%w: %w", driver.ErrOutcomeUnknown, err)
		}
	}
	over := deadline.Passed(ctx) || time.Since(t.turn.began) >= s.timeout
	if over && driver.IsOutage(err) && t.turn.contended() {
		err = fmt.Errorf("%w: %w", driver.ErrContended, err)
	}
	return nil, fmt.Errorf("transactional: %w", err)
}
