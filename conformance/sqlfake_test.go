package conformance_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/conformance"
)

// sqlServer is a server that knows the statements of an SQLStore and no others. Advisory locks are
// held until the end of the transaction, and what it writes is seen after COMMIT.
type sqlServer struct {
	mu    sync.Mutex
	rows  map[string]sqlRow
	locks map[int64]chan struct{}
	lose  bool   // the next answer to COMMIT
	stall func() // before each SELECT, or nil
}

type sqlRow struct {
	state   []byte
	expires int64
}

// sqlConn is a connection, and its transaction.
type sqlConn struct {
	server *sqlServer
	locked map[int64]bool
	writes []func()
}

func (s *sqlServer) Connect(context.Context) (driver.Conn, error) {
	return &sqlConn{server: s, locked: make(map[int64]bool)}, nil
}
func (s *sqlServer) Driver() driver.Driver { return nil }

func (c *sqlConn) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("prepared statements are not known")
}
func (c *sqlConn) Close() error              { return nil }
func (c *sqlConn) Begin() (driver.Tx, error) { return c, nil }

func (c *sqlConn) Commit() error {
	c.server.mu.Lock()
	for _, write := range c.writes {
		write()
	}
	lost := c.server.lose
	c.server.lose = false
	c.server.mu.Unlock()
	c.Rollback()
	if lost {
		return driver.ErrBadConn
	}
	return nil
}

func (c *sqlConn) Rollback() error {
	for id := range c.locked {
		<-c.server.lock(id)
	}
	clear(c.locked)
	c.writes = nil
	return nil
}

func (s *sqlServer) lock(id int64) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locks[id] == nil {
		s.locks[id] = make(chan struct{}, 1)
	}
	return s.locks[id]
}

func (c *sqlConn) ExecContext(
	ctx context.Context, query string, args []driver.NamedValue,
) (driver.Result, error) {
	s := c.server
	switch query {
	case sqlLock:
		id := args[0].Value.(int64)
		if c.locked[id] {
			break
		}
		select {
		case s.lock(id) <- struct{}{}:
			c.locked[id] = true
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case sqlWrite:
		key, row := args[0].Value.(string),
			sqlRow{bytes.Clone(args[1].Value.([]byte)), args[2].Value.(int64)}
		c.writes = append(c.writes, func() { s.rows[key] = row })
	case sqlDelete:
		key := args[0].Value.(string)
		c.writes = append(c.writes, func() { delete(s.rows, key) })
	case sqlSweep:
		s.sweep(time.Now().UnixMicro())
	default:
		return nil, fmt.Errorf("unknown statement %q", query)
	}
	return driver.RowsAffected(1), nil
}

func (s *sqlServer) sweep(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, row := range s.rows {
		if row.expires <= now {
			delete(s.rows, key)
		}
	}
}

func (c *sqlConn) QueryContext(
	_ context.Context, query string, args []driver.NamedValue,
) (driver.Rows, error) {
	if c.server.stall != nil {
		c.server.stall()
	}
	switch query {
	case sqlClock:
		return &sqlRows{[]driver.Value{time.Now().UnixMicro()}}, nil
	case sqlRead:
		c.server.mu.Lock()
		defer c.server.mu.Unlock()
		if row, ok := c.server.rows[args[0].Value.(string)]; ok {
			return &sqlRows{[]driver.Value{row.state}}, nil
		}
		return &sqlRows{}, nil
	}
	return nil, fmt.Errorf("unknown statement %q", query)
}

// sqlRows are one value each.
type sqlRows struct{ values []driver.Value }

func (r *sqlRows) Columns() []string { return []string{"value"} }
func (r *sqlRows) Close() error      { return nil }
func (r *sqlRows) Next(dest []driver.Value) error {
	if len(r.values) == 0 {
		return io.EOF
	}
	dest[0], r.values = r.values[0], r.values[1:]
	return nil
}

// TestSQLSweepInMidCall holds up a transaction between the state and the clock while what has run
// out is swept. A state that had not run out at the time of the decision must count.
func TestSQLSweepInMidCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window = 50 * time.Millisecond
		server := &sqlServer{rows: make(map[string]sqlRow), locks: make(map[int64]chan struct{})}
		db := sql.OpenDB(server)
		defer db.Close()
		store := &SQLStore{db: db, timeout: 10 * time.Second}
		d := ratelimit.Demand{Key: "k",
			Algorithm: algorithm.SlidingLog(ratelimit.Limit{Name: "calls", Max: 1, Window: window}),
			N:         1}
		first, err := store.Take(t.Context(), d)
		if err != nil || !first.Allowed {
			t.Fatalf("%+v, %v", first, err)
		}
		time.Sleep(window / 5)
		statements := 0
		server.stall = func() {
			if statements++; statements == 2 {
				time.Sleep(window)
				server.sweep(time.Now().UnixMicro())
			}
		}
		second, err := store.Take(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if apart := time.Duration(second.At-first.At) * time.Microsecond; second.Allowed &&
			apart < window {
			t.Errorf("two were admitted within %v, one in any %v is the limit", apart, window)
		}
	})
}

// TestSQLStore tries the store of docs/writing-a-store.md on a server that behaves as PostgreSQL
// does where that matters.
func TestSQLStore(t *testing.T) {
	t.Parallel() // some cases wait
	conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
		server := &sqlServer{rows: make(map[string]sqlRow), locks: make(map[int64]chan struct{})}
		open := func(t testing.TB) *SQLStore {
			db := sql.OpenDB(server)
			t.Cleanup(func() { db.Close() })
			return &SQLStore{db: db, timeout: 10 * time.Second, now: now}
		}
		store := open(t)
		return conformance.Harness{
			Store:        store,
			Second:       func(t testing.TB) ratelimit.Store { return open(t) },
			Close:        store.db.Close,
			ClosesClient: true,
			LoseAnswer: func() error {
				server.mu.Lock()
				defer server.mu.Unlock()
				server.lose = true
				return nil
			},
			Sweep: func() error {
				if now == nil {
					return store.Sweep(context.Background())
				}
				server.sweep(now())
				return nil
			},
		}
	}, nil)
}
