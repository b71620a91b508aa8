package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

// Register registers a scheme of [backend.Open] for databases of a dialect. Packages that import a
// driver call it in an init function. open reads the parameters of the driver and returns a pool,
// which has not connected yet. Its errors say what is wrong with the URL, and quote no password.
// The store creates its table unless it is there, and its Close closes the pool. It has these
// parameters:
//
//	table         Options.Table
//	timeout       Options.Timeout, such as 500ms
//	transactions  Options.Transactions
func Register(scheme string, d Dialect, open func(*backend.URL) (*sql.DB, error)) {
	backend.Register(scheme, func(_ context.Context, u *backend.URL) (*backend.Store, error) {
		var opts Options
		table, ok := u.Param("table")
		if opts.Table = table; ok && table == "" {
			u.Invalid("table", "it is empty")
		}
		opts.Timeout, _ = u.Duration("timeout")
		opts.Transactions, _ = u.Int("transactions", 1)
		db, err := open(u)
		if err != nil {
			return nil, fmt.Errorf("%w options: the URL of the store: %w", driver.ErrInvalid, err)
		}
		if err := u.Check(); err != nil {
			return nil, errors.Join(err, db.Close())
		}
		s, err := New(db, d, &opts)
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		s.hasTable.Store(false)
		connections := s.transactions + 2 // for Probe and Sweep
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
		return &backend.Store{
			Store: s, Probe: s.probeServer,
			Close: func() error { return errors.Join(s.Close(), db.Close()) },
		}, nil
	})
}

// probeServer probes the table, which it creates if there is none, and the server.
func (s *Store) probeServer(ctx context.Context) (serverstore.Server, error) {
	found := serverstore.Server{Name: s.dialect.name()}
	err := s.onConn(ctx, func(c *sql.Conn) error {
		return c.QueryRowContext(ctx, "SELECT "+s.dialect.version()).Scan(&found.Version)
	})
	if err == nil {
		err = s.Migrate(ctx)
	}
	if err == nil {
		err = s.Probe(ctx)
	}
	return found, classified(err)
}

// create creates the table unless it is known to be there.
func (s *Store) create(ctx context.Context, c *sql.Conn) error {
	if s.hasTable.Load() {
		return nil
	}
	if err := s.migrate(ctx, c); err != nil {
		return fmt.Errorf("the table: %w", err)
	}
	s.hasTable.Store(true)
	return nil
}
