package sqlstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"strings"
	"time"
)

type sqlite struct{}

func (sqlite) name() string    { return "SQLite" }
func (sqlite) version() string { return "sqlite_version()" }
func (sqlite) quote() string   { return `"` }

func (d sqlite) text(s string) string {
	return "CAST(" + d.bytes(hex.EncodeToString([]byte(s))) + " AS TEXT)"
}

func (sqlite) bytes(hex string) string { return "x'" + hex + "'" }

func (sqlite) columns() (definitions, options string) {
	return "stored_key TEXT PRIMARY KEY,\n\tstate BLOB NOT NULL,\n\texpires INTEGER NOT NULL", ""
}

func (d sqlite) in(keys []string) (string, []any)  { return inList(d, keys), nil }
func (d sqlite) values(rows []row) (string, []any) { return valueList(d, rows), nil }

func (sqlite) upsert() string { return onConflict }

func (sqlite) clock() string { return "" }

func (d sqlite) load(
	ctx context.Context, c *sql.Conn, _ []int64, _ time.Duration, query Statement,
	row func(scan) error,
) error {
	if err := d.lock(ctx, c); err != nil {
		return err
	}
	return query.query(ctx, c, row)
}

// lock locks the file. Those who find it locked do not queue, so it tries again. It does not say
// that keys are contended: who has locked the file has locked it for all.
func (sqlite) lock(ctx context.Context, c *sql.Conn) error {
	for {
		_, err := c.ExecContext(ctx, "BEGIN IMMEDIATE")
		if err == nil || !isBusy(err) {
			return err
		}
		pause(ctx, time.Millisecond)
		if ctx.Err() != nil {
			return err
		}
	}
}

func (d sqlite) write(ctx context.Context, c *sql.Conn, s Statement) error {
	if err := s.exec(ctx, c); err != nil {
		return notSaved(err)
	}
	_, err := c.ExecContext(ctx, "COMMIT")
	if err != nil && isBusy(err) { // the transaction goes on
		return contended(err)
	}
	return err
}

func (sqlite) end(ctx context.Context, c *sql.Conn, _ []int64, written bool) error {
	if written {
		return nil
	}
	_, err := c.ExecContext(ctx, "ROLLBACK")
	if err != nil && strings.Contains(err.Error(), "no transaction is active") {
		return nil // it could not begin
	}
	return err
}

func (sqlite) migrate(ctx context.Context, c *sql.Conn, schema string) error {
	_, err := c.ExecContext(ctx, schema)
	return err
}

func (sqlite) probe(context.Context, *sql.Conn) error { return nil }

func (sqlite) sweeping(context.Context, *sql.Conn, int64) (bool, error) { return true, nil }
func (sqlite) swept(context.Context, *sql.Conn, int64) error            { return nil }

func (sqlite) remove(table, condition string) string { return removeAll(table, condition) }
