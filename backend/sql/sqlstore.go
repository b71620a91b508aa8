// Package sqlstore keeps limits in a table of a database: PostgreSQL, MySQL or MariaDB, or SQLite.
//
//	db, err := sql.Open("pgx", "postgres://user:password@host/database") // with your driver
//	…
//	store, err := sqlstore.New(db, sqlstore.PostgreSQL, nil)
//	…
//	err = store.Migrate(ctx) // or run the SQL of Schema among your own migrations
//	…
//	limiter, err := ratelimit.New(store, algorithm.SlidingLog(driver.PerMinute("login", 60)))
//
// [github.com/truewindow/ratelimit/backend.Open] opens stores by URL, if the program imports
// backend/postgres, backend/mysql or backend/sqlite, which have drivers. The pools of
// backend/postgres need fewer round trips than those of other drivers.
//
// Calls of a process that arrive while a transaction runs are decided together in the next one: see
// [github.com/truewindow/ratelimit/backend/transactional]. All processes use the database's clock;
// on SQLite, the machine's.
//
// Decisions are as durable as commits are: what was acknowledged outlives a restart, and after a
// crash or a failover what the database has lost is forgotten. On PostgreSQL,
// synchronous_commit=off for the user of the limits may lose the last 0.6 seconds, and is faster.
//
// # Requirements
//
// PostgreSQL, MySQL 8 or later, MariaDB or SQLite 3.35, and a table as [Schema] shows it.
// [Store.Probe] says what is wrong. The user needs the rights to SELECT, INSERT, UPDATE and DELETE
// rows, and for [Store.Migrate] the right to create the table. A decision is not part of the
// caller's transaction and uses a connection of its own: the pool needs one more for the store than
// [Options.Transactions].
//
// The names of locks depend on keys alone: tables of one PostgreSQL database, or of one MySQL
// server, wait for each other if they have the same keys.
//
// On SQLite open the file with journal_mode(WAL) and a busy_timeout below a second. Processes on
// several machines cannot share a file.
package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/backend/transactional"
	"github.com/truewindow/ratelimit/driver"
)

// Options are the options of a [Store]. The zero value is ready for use.
type Options struct {
	// Table is the name of the table, as "table" or "schema.table": letters, digits and _, as the
	// database stores them. Empty means ratelimit_states.
	Table string
	// Timeout is how long a decision may take, the wait for other calls and for locks included.
	// Zero means a second. A context may end it sooner.
	Timeout time.Duration
	// Transactions is how many may run at once, each with a connection of the pool. With more of
	// them fewer keys wait for the lock of another key, but each transaction decides fewer calls.
	// Zero means 2, and on SQLite 1.
	Transactions int
	// SweepEvery is how often the store looks for expired rows, while it is used. Zero means a
	// minute; if it is negative only [Store.Sweep] deletes them.
	SweepEvery time.Duration
	// Now is used instead of the database's clock, for tests. It returns microseconds since the
	// Unix epoch.
	Now func() int64
}

const (
	defaultTable        = "ratelimit_states"
	defaultTimeout      = time.Second
	defaultTransactions = 2
	defaultSweepEvery   = time.Minute
)

// Store is a store in a database. All methods are safe for concurrent use.
type Store struct {
	states       *transactional.Store
	db           *sql.DB
	dialect      dialect
	table        string // quoted
	timeout      time.Duration
	transactions int
	now          func() int64 // or nil
	hasTable     atomic.Bool  // or the program makes the table
	sweeper      sweeper
}

var _ driver.Store = (*Store)(nil)

// New returns a store in db, without any I/O. An error wraps [driver.ErrInvalid]. The store does
// not close db.
func New(db *sql.DB, d Dialect, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	if db == nil {
		return nil, fmt.Errorf("%w options: sqlstore: db is nil", driver.ErrInvalid)
	}
	s := &Store{db: db, timeout: cmp.Or(opts.Timeout, defaultTimeout), now: opts.Now}
	var err error
	if s.dialect, s.table, err = d.table(opts.Table); err != nil {
		return nil, err
	}
	s.transactions = cmp.Or(opts.Transactions, defaultTransactions)
	if d == SQLite {
		s.transactions = cmp.Or(opts.Transactions, 1)
	}
	s.states, err = transactional.New(s.begin, &transactional.Options{Timeout: s.timeout,
		Transactions: s.transactions, Now: opts.Now})
	if err != nil {
		return nil, err
	}
	s.hasTable.Store(true)
	s.sweeper.every = cmp.Or(opts.SweepEvery, defaultSweepEvery)
	s.sweeper.last = time.Now()
	s.sweeper.ctx, s.sweeper.end = context.WithCancel(context.Background())
	return s, nil
}

// Close ends the sweep, and makes further calls return [driver.ErrClosed]. It does not close the
// database. The error is nil.
func (s *Store) Close() error {
	err := s.states.Close()
	s.sweeper.stop()
	return err
}

// Take decides one demand.
func (s *Store) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	return s.states.Take(ctx, d)
}

// TakeAll decides several demands as one.
func (s *Store) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	return s.states.TakeAll(ctx, ds, out)
}

// Migrate creates the table if there is none. Several processes may call it at once.
func (s *Store) Migrate(ctx context.Context) error {
	return s.onConn(ctx, func(c *sql.Conn) error { return s.migrate(ctx, c) })
}

func (s *Store) migrate(ctx context.Context, c *sql.Conn) error {
	var n int
	err := c.QueryRowContext(ctx, "SELECT count(*) FROM "+s.table+" WHERE 1 = 0").Scan(&n)
	if err == nil {
		return nil
	}
	return s.dialect.migrate(ctx, c, schema(s.dialect, s.table))
}

// onConn calls f with a connection, and closes the connection if f fails.
func (s *Store) onConn(ctx context.Context, f func(*sql.Conn) error) error {
	c, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("sqlstore: %w: %w", driver.ErrUnavailable, err)
	}
	if err = f(c); err != nil {
		discard(c)
		return fmt.Errorf("sqlstore: %w", err)
	}
	return c.Close()
}

// Schema returns the statement that creates the table, for migrations of your own. The example
// shows that of PostgreSQL. An empty table means ratelimit_states. An error wraps
// [driver.ErrInvalid].
//
// Each state is a row: stored_key is [driver.Demand.StoredKey], and the row may be deleted once
// expires has passed, in microseconds since the Unix epoch.
func Schema(d Dialect, table string) (string, error) {
	dialect, table, err := d.table(table)
	if err != nil {
		return "", err
	}
	return schema(dialect, table), nil
}
