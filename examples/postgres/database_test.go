package postgres

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/truewindow/ratelimit/integration/faultproxy"
	"github.com/truewindow/ratelimit/integration/servers"
)

const (
	image    = "postgres:17"
	password = "of-a-test"

	// addressVariable has the server's address, in the environment of a process of a test.
	addressVariable = "RATELIMIT_POSTGRES_ADDRESS"
)

// start starts a server with settings such as "fsync=off", and returns its address.
func start(t testing.TB, settings ...string) (address string) {
	t.Helper()
	if address := os.Getenv(addressVariable); address != "" {
		return address
	}
	cmd := []string{"env", "POSTGRES_PASSWORD=" + password, "docker-entrypoint.sh", "postgres"}
	settings = append(settings, "max_connections=400",
		"log_min_messages=panic", "log_min_error_statement=panic") // errors are part of the tests
	for _, setting := range settings {
		cmd = append(cmd, "-c", setting)
	}
	server := servers.StartOther(t, image, nil, cmd...)
	address = net.JoinHostPort(server.IP, "5432")
	servers.Await(t, func() (bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, url(address, ""))
		if err != nil {
			return false, nil
		}
		return true, conn.Close(ctx)
	})
	return address
}

func url(address, schema string) string {
	return fmt.Sprintf("postgres://postgres:%s@%s/postgres?sslmode=disable&search_path=%s%s",
		password, address, schema, session)
}

// A database is a schema of a server, behind a proxy that lets its connections fail.
type database struct {
	proxy  *faultproxy.Proxy
	schema string
	admin  *pgxpool.Pool // not through the proxy
}

var databases atomic.Int64

// newDatabase makes a schema.
func newDatabase(t testing.TB, address string) *database {
	t.Helper()
	schema := fmt.Sprintf("limits_%d_%d", os.Getpid(), databases.Add(1))
	proxy, err := faultproxy.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	db := &database{proxy: proxy, schema: schema, admin: pool(t, url(address, schema))}
	db.exec(t, "CREATE SCHEMA "+schema+"; "+Schema)
	t.Cleanup(func() { db.exec(t, "DROP SCHEMA "+schema+" CASCADE") })
	return db
}

// countWrites makes the database count the statements that write.
func (db *database) countWrites(t testing.TB) {
	t.Helper()
	db.exec(t, strings.ReplaceAll(`CREATE SEQUENCE writes;
		CREATE FUNCTION count_write() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN PERFORM nextval(''limits.writes''); RETURN NULL; END';
		CREATE TRIGGER count_write AFTER INSERT OR UPDATE OR DELETE ON ratelimit_states
			FOR EACH STATEMENT EXECUTE FUNCTION count_write()`, "limits", db.schema))
}

func pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 16
	p, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// connect returns a pool whose connections go through the proxy.
func (db *database) connect(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return pool(t, url(db.proxy.Addr(), db.schema))
}

func (db *database) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := db.admin.Exec(context.Background(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// writes returns how many statements have written since countWrites.
func (db *database) writes() (n int64, err error) {
	const count = "SELECT last_value + is_called::int FROM writes"
	err = db.admin.QueryRow(context.Background(), count).Scan(&n)
	return n, err
}

// waits reports whether a transaction waits for a lock.
func (db *database) waits() (found bool, err error) {
	const waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE " +
		"locktype = 'advisory' AND NOT granted)"
	err = db.admin.QueryRow(context.Background(), waiting).Scan(&found)
	return found, err
}

// sweep deletes the states that expired by now, or by the server's clock if now is nil.
func (db *database) sweep(now func() int64) error {
	statement, args := Sweep, []any(nil)
	if now != nil {
		statement, args = "DELETE FROM ratelimit_states WHERE expires <= $1", []any{now()}
	}
	_, err := db.admin.Exec(context.Background(), statement, args...)
	return err
}

// loseAnswer breaks the connection of the next COMMIT after the server has executed it.
func (db *database) loseAnswer() error {
	db.proxy.Set(faultproxy.Fault{Kind: faultproxy.CutAfter, Holding: "commit", Times: 1})
	return nil
}

// freeze stops the server from answering until thaw is called.
func (db *database) freeze() (thaw func() error, err error) {
	db.proxy.Set(faultproxy.Fault{Kind: faultproxy.Freeze})
	return func() error {
		db.proxy.Heal()
		return nil
	}, nil
}
