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
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/deadline"
)

// A Tx is one transaction, which decides the calls that have arrived while another one ran. Its
// methods are called one after the other: Load, then Save and Commit if a state is to be written,
// and always Rollback at the end, all in one goroutine, which is not a caller's. Errors must not
// contain keys or passwords.
//
// If Load or Save fails, calls with other keys are decided in transactions of their own, and those
// that fail again return an error that wraps [driver.ErrUnavailable] and that error. If a lock of a
// key is not free in time, or the database has rolled back because of another transaction with the
// key, let the error wrap [driver.ErrContended], so that it is no outage.
type Tx interface {
	// Load locks the states of keys until the transaction ends, so that no other transaction reads
	// or writes them, and returns them in the order of keys: nil for a key that has none. Then it
	// reads the clock, in microseconds since the Unix epoch. All processes that share the database
	// must use the same clock, so use the server's.
	//
	// There are at most 256 keys, sorted and distinct, so transactions that lock them in order do
	// not deadlock. If a lock is a number, such as a hash of the key, lock in the order of the
	// numbers. Keys are those of [driver.Demand.StoredKey]: at most 250 bytes of printable ASCII,
	// to be compared byte by byte. Read the clock last: a decision that waited for a lock must not
	// use a time from before the wait. [LockWait] returns how long to wait for locks.
	//
	// The states may be memory of the database that is valid until the transaction ends: the
	// package copies them. A slice of another length than keys, or a now that is not between 0 and
	// the year 2112, fails the calls.
	Load(ctx context.Context, keys []string) (states [][]byte, now int64, err error)

	// Save stores states, of different keys of Load and sorted by key. It must not keep their Bytes
	// after it returns.
	Save(ctx context.Context, states []State) error

	// Commit makes what was saved durable. After an error the outcome is unknown, unless the error
	// wraps [driver.ErrUnavailable]: then the server has reported that nothing was saved.
	Commit(ctx context.Context) error

	// Rollback ends the transaction and its locks, if Commit has not. It is called after Commit
	// too, and must not undo what was saved.
	Rollback()
}

// A State is to be stored under a key of Load.
type State struct {
	Key     string
	Bytes   []byte // if empty, the state may be deleted instead
	Expires int64  // it may be forgotten from then on, in µs on the clock of Load
}

// Options are the options of a [Store]. The zero value is ready for use.
type Options struct {
	// Timeout is how long a decision may take, the wait for other calls and for locks included.
	// Zero means a second. A context may end it sooner.
	Timeout time.Duration
	// Transactions is how many may run at once, those of different keys. Zero means 1, which is
	// right for a database with one lock. With more of them fewer keys wait for the lock of another
	// key, but each transaction decides fewer calls.
	Transactions int
	// Now is used instead of the clock that Load returns, for tests. It returns microseconds since
	// the Unix epoch.
	Now func() int64
}

const (
	defaultTimeout   = time.Second
	maxHung          = 64 // transactions that take longer than the timeout
	mostTransactions = maxHung
	endOfTime        = 1 << 52 // µs, in 2112
)

// Store is a store on a database. All methods are safe for concurrent use.
type Store struct {
	begin   func(context.Context) (Tx, error)
	timeout time.Duration
	now     func() int64 // or nil
	seed    maphash.Seed
	lanes   []lane
	hung    atomic.Int64
	closed  atomic.Bool
}

var _ driver.Store = (*Store)(nil)

// New returns a store on the transactions that begin begins. An error wraps [driver.ErrInvalid].
//
// Calls that arrive while a transaction runs are decided together in the next one, in the order of
// arrival. If more wait than it has room for, those go first that have waited for less than half of
// their time. With several Transactions a hash of the key says which one decides a call.
//
// A Tx may ignore its context: a call still returns in time, and is not recorded later if its error
// says so. While 64 transactions take longer than Timeout, calls return [driver.ErrUnavailable] at
// once. If a call is not decided in time, its error is [driver.ErrContended] if the database has
// answered others in the second half of that time; else it is an outage.
func New(begin func(context.Context) (Tx, error), opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{begin: begin, timeout: cmp.Or(opts.Timeout, defaultTimeout), now: opts.Now,
		seed: maphash.MakeSeed()}
	switch n := cmp.Or(opts.Transactions, 1); {
	case begin == nil:
		return nil, fmt.Errorf("%w options: transactional: begin is nil", driver.ErrInvalid)
	case s.timeout < 0:
		return nil, fmt.Errorf("%w options: transactional: Timeout %v is negative",
			driver.ErrInvalid, s.timeout)
	case n < 0 || n > mostTransactions:
		return nil, fmt.Errorf("%w options: transactional: Transactions %d is not from 0 to %d",
			driver.ErrInvalid, n, mostTransactions)
	default:
		s.lanes = make([]lane, n)
	}
	for i := range s.lanes {
		s.lanes[i].store = s
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
	results, err := s.run(ctx, slices.Clone(ds)) // a transaction may read them for longer
	copy(out, results)
	return err
}

func (s *Store) run(ctx context.Context, ds []driver.Demand) ([]driver.Result, error) {
	if s.closed.Load() {
		return nil, fmt.Errorf("transactional: %w", driver.ErrClosed)
	}
	c := newCall(ctx, ds, s.timeout)
	l := &s.lanes[maphash.String(s.seed, c.keys[0])%uint64(len(s.lanes))]
	err := l.enter(c)
	if err == nil {
		err = c.wait(ctx, s.timeout)
	}
	if err == nil {
		return c.results, nil
	}
	if late := deadline.Passed(ctx) || time.Since(c.began) >= s.timeout; late &&
		driver.IsOutage(err) && l.answeredSince(c.began) {
		err = fmt.Errorf("%w: %w", driver.ErrContended, err)
	}
	return nil, fmt.Errorf("transactional: %w", err)
}
