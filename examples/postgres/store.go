// Package postgres keeps limits in a table of a PostgreSQL database.
package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/truewindow/ratelimit/backend/transactional"
	"github.com/truewindow/ratelimit/driver"
)

// Schema creates the table of states by stored key. expires is in µs since the Unix epoch.
const Schema = `CREATE TABLE IF NOT EXISTS ratelimit_states (
	key text COLLATE "C" PRIMARY KEY, state bytea NOT NULL, expires bigint NOT NULL)`

// Sweep deletes expired states. Run it every few minutes.
const Sweep = `DELETE FROM ratelimit_states
	WHERE expires <= (extract(epoch FROM statement_timestamp()) * 1000000)::bigint`

var ( // statements in the order of a transaction
	lock = `SELECT pg_advisory_xact_lock(n) FROM (SELECT DISTINCT hashtextextended(key, 0) AS n
		FROM unnest($1::text[]) AS key ORDER BY n) AS sorted`
	read = `SELECT array_agg(state ORDER BY i) FROM unnest($1::text[]) WITH ORDINALITY AS k (key, i)
		LEFT JOIN ratelimit_states USING (key)`
	clock = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`
	write = `INSERT INTO ratelimit_states VALUES ($1, coalesce($2::bytea, ''), $3)
		ON CONFLICT (key) DO UPDATE SET state = excluded.state, expires = excluded.expires`
)

type tx struct {
	pgx.Tx
	ctx context.Context // of the call
}

// New returns a store on pool, whose transactions must be READ COMMITTED, as they are by default.
func New(pool *pgxpool.Pool, opts *transactional.Options) (*transactional.Store, error) {
	return transactional.New(func(ctx context.Context) (transactional.Tx, error) {
		t, err := pool.Begin(ctx)
		return tx{t, ctx}, err
	}, opts)
}

func (t tx) Load(ctx context.Context, keys []string) (states [][]byte, now int64, err error) {
	var b pgx.Batch // one round trip; each statement sees what was committed when it began
	b.Queue(lock, keys).Query(func(rows pgx.Rows) error {
		rows.Close()
		return contended(rows.Err())
	})
	b.Queue(read, keys).QueryRow(func(row pgx.Row) error { return row.Scan(&states) })
	b.Queue(clock).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	err = t.SendBatch(ctx, &b).Close()
	return states, now, err
}

// contended returns the error of a lock, so that a lock_timeout is no outage.
func contended(err error) error {
	var e *pgconn.PgError
	if errors.As(err, &e) && e.Code == "55P03" {
		return fmt.Errorf("%w: %w", driver.ErrContended, err)
	}
	return err
}

func (t tx) Save(ctx context.Context, key string, state []byte, expires int64) (err error) {
	_, err = t.Exec(ctx, write, key, state, expires)
	return err
}

func (t tx) Rollback() { _ = t.Tx.Rollback(t.ctx) }
