package sqlstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

type mySQL struct{}

func (mySQL) name() string    { return "MySQL" }
func (mySQL) version() string { return "VERSION()" }
func (mySQL) quote() string   { return "`" }

func (d mySQL) text(s string) string { return d.bytes(hex.EncodeToString([]byte(s))) }

func (mySQL) bytes(hex string) string { return "x'" + hex + "'" }

func (mySQL) columns() (definitions, options string) {
	return "stored_key VARBINARY(250) PRIMARY KEY,\n\tstate LONGBLOB NOT NULL,\n" +
		"\texpires BIGINT NOT NULL", " ENGINE=InnoDB"
}

func (d mySQL) in(keys []string) (string, []any)  { return inList(d, keys), nil }
func (d mySQL) values(rows []row) (string, []any) { return valueList(d, rows), nil }

func (mySQL) upsert() string {
	return " ON DUPLICATE KEY UPDATE state = VALUES(state), expires = VALUES(expires)"
}

func (mySQL) clock() string { return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))" }

func (d mySQL) load(
	ctx context.Context, c *sql.Conn, locks []int64, wait time.Duration, query Statement,
	row func(scan) error,
) error {
	if err := d.lock(ctx, c, locks, wait); err != nil {
		return err
	}
	return query.query(ctx, c, row)
}

// lock locks names of the session: transactions that insert rows and then lock them deadlock here.
// There is no transaction, since what is read and what is written are one statement each.
func (mySQL) lock(ctx context.Context, c *sql.Conn, locks []int64, wait time.Duration) error {
	// MySQL cuts the time to seconds.
	long := fmt.Sprintf(", IF(VERSION() LIKE '%%MariaDB%%', %.3f, %d))", wait.Seconds(),
		max(int(wait/time.Second), 1))
	for begin := 0; begin < len(locks); begin += lockArguments {
		part := locks[begin:min(begin+lockArguments, len(locks))]
		values := make([]string, len(part))
		for i, n := range part {
			values[i] = "COALESCE(GET_LOCK(" + lockName(n) + long + ", 0)"
		}
		var got int
		err := c.QueryRowContext(ctx, "SELECT "+strings.Join(values, " + ")).Scan(&got)
		if err != nil {
			switch mySQLCode(err) {
			case "1213", "3058": // deadlock, of MariaDB and MySQL
				return contended(err)
			}
			return err
		}
		if got != len(part) {
			return contended(errors.New("GET_LOCK timed out"))
		}
	}
	return nil
}

// lockArguments is how many locks a statement takes, whose expression nests.
const lockArguments = 64

func lockName(n int64) string { return fmt.Sprintf("'ratelimit%016x'", n) }

func (mySQL) write(ctx context.Context, c *sql.Conn, s Statement) error {
	err := s.exec(ctx, c)
	if err == nil {
		return nil
	}
	switch mySQLCode(err) {
	case "": // not of the server
		return err
	case "1053", "1079", "1317", "1927", "3024", "3169": // it ends, or has ended the statement
		return err
	case "1205", "1213": // lock wait timeout, deadlock
		return contended(err)
	}
	return notSaved(err)
}

func (mySQL) end(ctx context.Context, c *sql.Conn, locks []int64, _ bool) error {
	values := make([]string, len(locks))
	for i, n := range locks {
		values[i] = "RELEASE_LOCK(" + lockName(n) + ")"
	}
	_, err := c.ExecContext(ctx, "DO "+strings.Join(values, ", "))
	return err
}

func (mySQL) migrate(ctx context.Context, c *sql.Conn, schema string) error {
	_, err := c.ExecContext(ctx, schema)
	return err
}

func (mySQL) probe(ctx context.Context, c *sql.Conn) error {
	var autocommit bool
	if err := c.QueryRowContext(ctx, "SELECT @@autocommit").Scan(&autocommit); err != nil {
		return err
	}
	if !autocommit {
		return unfit("autocommit is off for connections of the pool")
	}
	rows, err := c.QueryContext(ctx, "SHOW STATUS WHERE "+
		"(Variable_name = 'wsrep_connected' AND Value = 'ON') OR "+
		"(Variable_name = 'group_replication_primary_member' AND Value <> '')")
	if err != nil {
		return err
	}
	defer rows.Close()
	if rows.Next() {
		return unfit("the server belongs to a cluster whose nodes do not share the locks of " +
			"GET_LOCK, which this store needs")
	}
	return rows.Err()
}

func (mySQL) sweeping(
	ctx context.Context, c *sql.Conn, lock int64,
) (alone bool, err error) {
	var got sql.NullInt64
	err = c.QueryRowContext(ctx, "SELECT GET_LOCK("+lockName(lock)+", 0)").Scan(&got)
	if err != nil || got.Int64 != 1 {
		return false, err
	}
	// At other levels it locks the gaps between the rows too.
	if _, err = c.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"); err == nil {
		_, err = c.ExecContext(ctx, "BEGIN")
	}
	return true, err
}

func (mySQL) swept(ctx context.Context, c *sql.Conn, lock int64) error {
	_, err := c.ExecContext(ctx, "COMMIT")
	if err == nil {
		_, err = c.ExecContext(ctx, "DO RELEASE_LOCK("+lockName(lock)+")")
	}
	return err
}

func (mySQL) remove(table, condition string) string { return removeAll(table, condition) }
