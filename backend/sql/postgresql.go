package sqlstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

type postgreSQL struct{}

func (postgreSQL) name() string    { return "PostgreSQL" }
func (postgreSQL) version() string { return "current_setting('server_version')" }
func (postgreSQL) quote() string   { return `"` }

func (d postgreSQL) text(s string) string {
	return "convert_from(" + d.bytes(hex.EncodeToString([]byte(s))) + ", 'UTF8')"
}

func (postgreSQL) bytes(hex string) string { return "decode('" + hex + "', 'hex')" }

// The fill factor leaves room for updates in place, which need no entry in the index.
func (postgreSQL) columns() (definitions, options string) {
	return "stored_key text COLLATE \"C\" PRIMARY KEY,\n\tstate bytea NOT NULL,\n" +
		"\texpires bigint NOT NULL", " WITH (fillfactor = 70)"
}

// in and values have a text for each list, so that there is one statement for all lengths. Neither
// keys nor the others have spaces. An array of one empty text is an empty array.
func (postgreSQL) in(keys []string) (string, []any) {
	return "stored_key = ANY (string_to_array($1, ' '))", []any{strings.Join(keys, " ")}
}

func (postgreSQL) values(rows []row) (string, []any) {
	var keys, states, expires []byte
	for _, r := range rows {
		keys = append(append(keys, r.key...), ' ')
		states = append(hex.AppendEncode(states, r.state), ' ')
		expires = append(strconv.AppendInt(expires, r.expires, 10), ' ')
	}
	list := func(b []byte) string { return string(b[:len(b)-1]) }
	return "SELECT k, coalesce(decode(s, 'hex'), ''), e::bigint FROM unnest(" +
			"string_to_array($1, ' '), string_to_array($2, ' '), string_to_array($3, ' ')" +
			") AS rows (k, s, e)",
		[]any{list(keys), list(states), list(expires)}
}

func (postgreSQL) upsert() string { return onConflict }

func (postgreSQL) clock() string {
	return "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
}

// The statements of a transaction. Names are locked, since a key without a row cannot be. READ
// COMMITTED lets the next statement see what was committed while this one waited.
const (
	commit   = "COMMIT"
	begin    = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
	lockText = "SELECT count(pg_advisory_xact_lock(n)) FROM " +
		"unnest(%s::bigint[]) AS n" // which are locked in this order
)

func (postgreSQL) load(
	ctx context.Context, c *sql.Conn, locks []int64, wait time.Duration, query Statement,
	row func(scan) error,
) error {
	numbers := make([]string, len(locks))
	for i, n := range locks {
		numbers[i] = strconv.FormatInt(n, 10)
	}
	list := "{" + strings.Join(numbers, ",") + "}"
	timeout := strconv.FormatInt(max(wait.Milliseconds(), 1), 10)
	ok, err := pipeline(ctx, c, row,
		Statement{Text: begin},
		Statement{"SELECT set_config('lock_timeout', $1, true)", []any{timeout}},
		Statement{fmt.Sprintf(lockText, "$1::text"), []any{list}},
		query)
	if !ok {
		_, err = c.ExecContext(ctx, begin+"; SET LOCAL lock_timeout = "+timeout+"; "+
			fmt.Sprintf(lockText, "'"+list+"'"))
		if err == nil {
			err = query.query(ctx, c, row)
		}
	}
	switch sqlState(err) {
	case "55P03", "40P01": // lock_not_available, deadlock_detected
		return contended(err)
	}
	return err
}

func (d postgreSQL) write(ctx context.Context, c *sql.Conn, s Statement) error {
	// The server skips the COMMIT if the statement fails.
	ok, err := pipeline(ctx, c, nil, s, Statement{Text: commit})
	if !ok {
		if err := s.exec(ctx, c); err != nil {
			return serialized(err, notSaved(err))
		}
		_, err = c.ExecContext(ctx, commit)
	}
	switch state := sqlState(err); {
	case err == nil:
		return nil
	case state == "40003" || len(state) != 5: // statement_completion_unknown
		return err
	case strings.HasPrefix(state, "08"), strings.HasPrefix(state, "XX"),
		strings.HasPrefix(state, "57P"): // a connection that ends, perhaps after the commit
		return err
	default:
		return serialized(err, notSaved(err))
	}
}

// serialized returns err as contended if another transaction was to blame, or other.
func serialized(err, other error) error {
	switch sqlState(err) {
	case "40001", "40P01": // serialization_failure, deadlock_detected
		return contended(err)
	}
	return other
}

func (postgreSQL) end(ctx context.Context, c *sql.Conn, _ []int64, written bool) error {
	if written {
		return nil
	}
	_, err := c.ExecContext(ctx, "ROLLBACK")
	return err
}

// migrationLock keeps others from creating a table at the same time, which PostgreSQL reports as an
// error.
const migrationLock int64 = -7346221984027112871

func (postgreSQL) migrate(ctx context.Context, c *sql.Conn, schema string) error {
	_, err := c.ExecContext(ctx, fmt.Sprintf("BEGIN; SELECT pg_advisory_xact_lock(%d); %s; COMMIT",
		migrationLock, schema))
	return err
}

func (postgreSQL) probe(context.Context, *sql.Conn) error { return nil }

func (postgreSQL) sweeping(
	ctx context.Context, c *sql.Conn, lock int64,
) (alone bool, err error) {
	if _, err := c.ExecContext(ctx, "BEGIN"); err != nil {
		return false, err
	}
	err = c.QueryRowContext(ctx, fmt.Sprintf("SELECT pg_try_advisory_xact_lock(%d)", lock)).
		Scan(&alone)
	return alone, err
}

// remove leaves out rows that are locked: it may find rows in another order than transactions that
// write them.
func (postgreSQL) remove(table, condition string) string {
	return "DELETE FROM " + table + " WHERE stored_key IN (SELECT stored_key FROM " + table +
		" WHERE " + condition + " FOR UPDATE SKIP LOCKED)"
}

func (postgreSQL) swept(ctx context.Context, c *sql.Conn, _ int64) error {
	_, err := c.ExecContext(ctx, "COMMIT")
	return err
}
