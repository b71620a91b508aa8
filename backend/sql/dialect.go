package sqlstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// A Dialect is the kind of a database.
type Dialect int

// The dialects. MySQL is MariaDB's too.
const (
	PostgreSQL Dialect = iota + 1
	MySQL
	SQLite
)

var dialects = map[Dialect]dialect{PostgreSQL: postgreSQL{}, MySQL: mySQL{}, SQLite: sqlite{}}

// String returns the name of d.
func (d Dialect) String() string {
	if known, ok := dialects[d]; ok {
		return known.name()
	}
	return fmt.Sprintf("Dialect(%d)", int(d))
}

// A dialect is what differs between databases. Statements that differ from call to call have their
// values in them, each a number or in hexadecimal, so that each is one round trip whatever the
// driver does with parameters. Others have parameters, so that drivers prepare them once.
type dialect interface {
	name() string
	version() string // an expression
	quote() string   // of identifiers
	// text and bytes return s and hexadecimal digits as values.
	text(s string) string
	bytes(hex string) string
	// columns returns the definitions of the columns, and what follows them.
	columns() (definitions, options string)
	// in returns a condition that is true for rows with keys, and values a list of rows for an
	// INSERT, which upsert ends so that it replaces rows.
	in(keys []string) (condition string, args []any)
	values(rows []row) (list string, args []any)
	upsert() string
	// clock is an expression in µs since the Unix epoch, or empty if it is the machine's clock.
	clock() string

	// load begins a transaction with locks, which are sorted, and then calls row for each row of a
	// query. An error wraps driver.ErrContended if a lock was not free for wait.
	load(ctx context.Context, c *sql.Conn, locks []int64, wait time.Duration, query Statement,
		row func(scan) error) error
	// write executes a statement and commits. After an error the outcome is unknown, unless it
	// wraps driver.ErrUnavailable.
	write(ctx context.Context, c *sql.Conn, s Statement) error
	// end ends a transaction and its locks. written is whether write has returned without an error.
	end(ctx context.Context, c *sql.Conn, locks []int64, written bool) error

	migrate(ctx context.Context, c *sql.Conn, schema string) error
	// probe returns what of the server is wrong.
	probe(ctx context.Context, c *sql.Conn) error
	// sweeping begins a statement of the sweep, and reports whether no other has its lock.
	sweeping(ctx context.Context, c *sql.Conn, lock int64) (bool, error)
	swept(ctx context.Context, c *sql.Conn, lock int64) error
	// remove returns the statement that deletes rows that meet a condition.
	remove(table, condition string) string
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// table returns the dialect, and the name of a table in quotes.
func (d Dialect) table(name string) (dialect, string, error) {
	known, ok := dialects[d]
	if !ok {
		return nil, "", fmt.Errorf("%w options: sqlstore: unknown dialect %v", driver.ErrInvalid, d)
	}
	if name == "" {
		name = defaultTable
	}
	parts := strings.Split(name, ".")
	for i, part := range parts {
		if !identifier.MatchString(part) || len(parts) > 2 {
			return nil, "", fmt.Errorf("%w options: sqlstore: Table %q is not a table or "+
				"schema.table of letters, digits and _", driver.ErrInvalid, name)
		}
		parts[i] = known.quote() + part + known.quote()
	}
	return known, strings.Join(parts, "."), nil
}

func schema(d dialect, table string) string {
	columns, options := d.columns()
	return "CREATE TABLE IF NOT EXISTS " + table + " (\n\t" + columns + "\n)" + options
}

// insert returns the statement that stores rows.
func insert(d dialect, table string, rows []row) Statement {
	list, args := d.values(rows)
	return Statement{"INSERT INTO " + table + " (stored_key, state, expires) " + list + d.upsert(),
		args}
}

type row struct {
	key     string
	state   []byte
	expires int64
}

// onConflict is the end of an INSERT on PostgreSQL and SQLite.
const onConflict = " ON CONFLICT (stored_key) DO UPDATE SET state = excluded.state, " +
	"expires = excluded.expires"

// inList, valueList and removeAll are in, values and remove for other databases than PostgreSQL.
func inList(d dialect, keys []string) string {
	b := []byte("stored_key IN (")
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, d.text(key)...)
	}
	return string(append(b, ')'))
}

func removeAll(table, condition string) string {
	return "DELETE FROM " + table + " WHERE " + condition
}

func valueList(d dialect, rows []row) string {
	b := []byte("VALUES ")
	for i, r := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "(%s,%s,%d)", d.text(r.key), d.bytes(hex.EncodeToString(r.state)),
			r.expires)
	}
	return string(b)
}
