package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

// Probe reports whether the store can decide: call it at the start of a program. It writes rows to
// the table in a transaction that it rolls back. So it finds a table that is missing, has no key or
// a short one, ignores case or cannot be rolled back, a database that is read-only, and a MySQL
// whose locks are not shared by all servers of its cluster. An error wraps [errors.ErrUnsupported]
// if the database or the table cannot be used, [serverstore.ErrDenied] if the user lacks a right,
// and otherwise, also for a missing table, [driver.ErrUnavailable].
func (s *Store) Probe(ctx context.Context) error { return classified(s.probe(ctx)) }

func (s *Store) probe(ctx context.Context) error {
	return s.onConn(ctx, func(c *sql.Conn) error {
		if err := s.dialect.probe(ctx, c); err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		if _, err := c.ExecContext(ctx, "BEGIN"); err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		if err := s.probeTable(ctx, c); err != nil {
			_, _ = c.ExecContext(ctx, "ROLLBACK")
			return fmt.Errorf("probe: the table %s: %w", s.table, err)
		}
		if _, err := c.ExecContext(ctx, "ROLLBACK"); err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		left, err := s.probed(ctx, c)
		if err == nil && len(left) > 0 {
			err = unfit("a transaction cannot be rolled back")
		}
		return err
	})
}

// probeRows are rows with keys that are easily taken for each other.
func probeRows() []row {
	long := "ratelimit/probe:" + string(bytes.Repeat([]byte("k"), 233))
	var rows []row
	for i, key := range []string{"ratelimit/probe", "Ratelimit/probe", "ratelimit/probe'\\",
		long + "a", long + "b"} {
		state := make([]byte, 256)
		for j := range state {
			state[j] = byte(i + j)
		}
		rows = append(rows, row{key, state, 1 << 52})
	}
	return rows
}

func unfit(text string) error { return fmt.Errorf("%s (%w)", text, errors.ErrUnsupported) }

// classified returns an error of a probe with what it means.
func classified(err error) error {
	switch {
	case err == nil || errors.Is(err, errors.ErrUnsupported):
		return err
	case isDenied(err):
		return fmt.Errorf("%w: %w", serverstore.ErrDenied, err)
	case errors.Is(err, driver.ErrUnavailable):
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

func (s *Store) probeTable(ctx context.Context, c *sql.Conn) error {
	want := probeRows()
	for range 2 { // inserted, then replaced
		for i := range want {
			want[i].state = append(want[i].state, byte(i))
		}
		if err := insert(s.dialect, s.table, want).exec(ctx, c); err != nil {
			return err
		}
	}
	got, err := s.probed(ctx, c)
	if err != nil {
		return err
	}
	for _, w := range want {
		same := func(g row) bool {
			return g.key == w.key && bytes.Equal(g.state, w.state) && g.expires == w.expires
		}
		if !slices.ContainsFunc(got, same) {
			return unfit("it does not return what was written: its columns have the wrong " +
				"types, or a collation that takes keys for each other")
		}
	}
	if len(got) != len(want) {
		return unfit("it has several rows for a key: the key is not unique")
	}
	_, err = c.ExecContext(ctx, s.dialect.remove(s.table, "expires = 0")) // as the sweep does
	return err
}

// probed returns those of probeRows that are in the table.
func (s *Store) probed(ctx context.Context, c *sql.Conn) (got []row, err error) {
	var keys []string
	for _, r := range probeRows() {
		keys = append(keys, r.key)
	}
	condition, args := s.dialect.in(keys)
	rows, err := c.QueryContext(ctx, "SELECT stored_key, state, expires FROM "+s.table+
		" WHERE "+condition, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.key, &r.state, &r.expires); err != nil {
			return nil, err
		}
		got = append(got, r)
	}
	return got, rows.Err()
}
