package sqlstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	sqldriver "database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/backend/transactional"
)

// tx is a transaction on a connection of its own.
type tx struct {
	store   *Store
	conn    *sql.Conn
	keys    []string
	locks   []int64
	saved   Statement // which writes
	written bool
}

func (s *Store) begin(ctx context.Context) (transactional.Tx, error) {
	c, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.create(ctx, c); err != nil {
		discard(c)
		return nil, err
	}
	return &tx{store: s, conn: c}, nil
}

func (t *tx) Load(ctx context.Context, keys []string) (states [][]byte, now int64, err error) {
	d := t.store.dialect
	t.keys, t.locks = keys, locksOf(keys)
	condition, args := d.in(keys)
	query := "SELECT stored_key, state, 0 FROM " + t.store.table + " WHERE " + condition
	if d.clock() != "" {
		query += " UNION ALL SELECT NULL, NULL, " + d.clock()
	}
	states = make([][]byte, len(keys))
	wait := transactional.LockWait(ctx)
	err = d.load(ctx, t.conn, t.locks, wait, Statement{query, args}, func(scan scan) error {
		var key sql.NullString
		var state []byte
		var at int64
		if err := scan(&key, &state, &at); err != nil {
			return err
		}
		if !key.Valid {
			now = at
		} else if i, found := slices.BinarySearch(keys, key.String); found {
			states[i] = state
		}
		return nil
	})
	if d.clock() == "" {
		now = time.Now().UnixMicro()
	}
	return states, now, t.redact(err)
}

// locksOf returns the numbers of the locks of keys, sorted.
func locksOf(keys []string) []int64 {
	locks := make([]int64, len(keys))
	for i, key := range keys {
		sum := sha256.Sum256([]byte(key))
		locks[i] = int64(binary.BigEndian.Uint64(sum[:]) >> 1)
	}
	slices.Sort(locks)
	return slices.Compact(locks)
}

func (t *tx) Save(_ context.Context, states []transactional.State) error {
	rows := make([]row, len(states))
	for i, s := range states {
		rows[i] = row{s.Key, s.Bytes, s.Expires}
	}
	t.saved = insert(t.store.dialect, t.store.table, rows)
	return nil
}

func (t *tx) Commit(ctx context.Context) error {
	err := t.store.dialect.write(ctx, t.conn, t.saved)
	t.written = err == nil
	return t.redact(err)
}

func (t *tx) Rollback() {
	if len(t.locks) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), t.store.timeout)
		defer cancel()
		if t.store.dialect.end(ctx, t.conn, t.locks, t.written) != nil {
			discard(t.conn) // from the pool another would get it with the locks
			return
		}
	}
	t.conn.Close()
	t.store.sweepSometimes()
}

// discard closes a connection that must not go back to the pool.
func discard(c *sql.Conn) {
	_ = c.Raw(func(any) error { return sqldriver.ErrBadConn })
	c.Close()
}

// redact hides the text of an error that has a key.
func (t *tx) redact(err error) error {
	if err == nil {
		return nil
	}
	text := strings.ToLower(err.Error())
	for _, key := range t.keys {
		start := strings.ToLower(key[:min(len(key), 16)])
		if strings.Contains(text, start) || strings.Contains(text, fmt.Sprintf("%x", start)) {
			return redactedOf(err)
		}
	}
	return err
}

// A redacted error hides the text of an error of the database. It does not unwrap, since some
// programs log all errors of a chain.
type redacted struct{ err error }

func redactedOf(err error) error { return &redacted{err} }

func (e *redacted) Error() string {
	return "an error of the database, whose text may contain keys" + code(e.err)
}

func (e *redacted) Is(target error) bool { return errors.Is(e.err, target) }
func (e *redacted) As(target any) bool   { return errors.As(e.err, target) }
