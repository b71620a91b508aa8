package sql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/lib/pq"
	_ "github.com/ncruces/go-sqlite3/driver"
	_ "modernc.org/sqlite"

	"github.com/truewindow/ratelimit/backend/postgres"
	sqlstore "github.com/truewindow/ratelimit/backend/sql"
	"github.com/truewindow/ratelimit/integration/faultproxy"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// A kind is a database with a driver.
type kind struct {
	name    string
	dialect sqlstore.Dialect
	driver  string
	image   string // of a server, or "" for SQLite
	rare    bool   // not in every run
	layers  bool   // around the store, in the suite
	many    bool   // eight transactions at once, in the suite
}

const (
	postgres17 = "postgres:17"
	mariaDB    = "mariadb:11.8"
)

// pipelined is pgx through package postgres.
const pipelined = "pipelined pgx"

var kinds = []kind{
	{name: "postgres", dialect: sqlstore.PostgreSQL, driver: pipelined, image: postgres17},
	{name: "postgres-pq", dialect: sqlstore.PostgreSQL, driver: "postgres", image: postgres17,
		rare: true},
	{name: "postgres-15", dialect: sqlstore.PostgreSQL, driver: "pgx", image: "postgres:15",
		rare: true, many: true},
	{name: "postgres-layers", dialect: sqlstore.PostgreSQL, driver: "pgx", image: postgres17,
		rare: true, layers: true},
	{name: "mariadb", dialect: sqlstore.MySQL, driver: "mysql", image: mariaDB},
	{name: "mariadb-10.11", dialect: sqlstore.MySQL, driver: "mysql", image: "mariadb:10.11",
		rare: true, many: true},
	{name: "mysql", dialect: sqlstore.MySQL, driver: "mysql", image: "mysql:9", rare: true},
	{name: "sqlite", dialect: sqlstore.SQLite, driver: "sqlite"},
	{name: "sqlite-wasm", dialect: sqlstore.SQLite, driver: "sqlite3", rare: true},
}

func sqliteKind() kind {
	return kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.dialect == sqlstore.SQLite })]
}

// each runs f for each kind, on one server of each image.
func each(t *testing.T, f func(t *testing.T, k kind)) {
	t.Helper()
	for _, k := range kinds {
		if k.rare != (os.Getenv(restVariable) != "") && !depth.Full {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			f(t, k)
		})
	}
}

// restVariable is set in the environment if the rare kinds run instead of the others.
const restVariable = "RATELIMIT_SQL_REST"

const password = "of-a-test"

// addressVariable has the address of the server of an image, in the environment of a process of a
// test.
func addressVariable(image string) string {
	return "RATELIMIT_SQL_" + strings.Map(func(r rune) rune {
		if strings.ContainsRune(":./-", r) {
			return '_'
		}
		return r
	}, image)
}

var addresses struct {
	sync.Mutex
	of map[string]func() string
}

// address returns the address of the one server of an image.
func (k kind) address(t testing.TB) string {
	t.Helper()
	servers.NeedImage(t, k.image) // here, since a skip inside of OnceValue is a panic for the next
	addresses.Lock()
	if addresses.of == nil {
		addresses.of = make(map[string]func() string)
	}
	get := addresses.of[k.image]
	if get == nil {
		get = sync.OnceValue(func() string { return k.startServer(outlives{t}).address })
		addresses.of[k.image] = get
	}
	addresses.Unlock()
	return get()
}

// A server is that of a database.
type server struct {
	*servers.Other // nil if another process has started it
	address        string
}

// startServer starts a server of its own with settings such as "fsync=on".
func (k kind) startServer(t testing.TB, settings ...string) server {
	t.Helper()
	if address := os.Getenv(addressVariable(k.image)); address != "" {
		return server{nil, address}
	}
	port, cmd := "5432", []string{"env", "POSTGRES_PASSWORD=" + password, "docker-entrypoint.sh",
		"postgres"}
	settings = append([]string{"fsync=off", "max_connections=400", "log_min_messages=panic",
		"log_min_error_statement=panic"}, settings...)
	if k.dialect == sqlstore.MySQL {
		program := "mariadbd"
		if strings.HasPrefix(k.image, "mysql") {
			program = "mysqld"
		}
		port, cmd = "3306", []string{"env", "MARIADB_ROOT_PASSWORD=" + password,
			"MYSQL_ROOT_PASSWORD=" + password, "docker-entrypoint.sh", program}
		settings = append([]string{"max_connections=400", "innodb_flush_log_at_trx_commit=0"},
			settings[4:]...)
	}
	for _, setting := range settings {
		if k.dialect == sqlstore.MySQL {
			cmd = append(cmd, "--"+setting)
		} else {
			cmd = append(cmd, "-c", setting)
		}
	}
	// The shell starts it again when killAll has killed it.
	cmd = append([]string{"sh", "-c", `while :; do "$@"; done`, "sh"}, cmd...)
	other := servers.StartOther(t, k.image, nil, cmd...)
	address := net.JoinHostPort(other.IP, port)
	db, err := k.openPool(address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	awaitPing(t, db)
	return server{other, address}
}

// awaitPing waits until a server answers. On a busy machine it takes long to make its files.
func awaitPing(t testing.TB, db *sql.DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := servers.Poll(ctx, func() (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return db.PingContext(ctx) == nil, nil
	}); err != nil {
		t.Fatalf("the server does not answer: %v", err)
	}
}

// killAll kills all processes of a server, which then starts again with its data, at its address.
func (s server) killAll(t testing.TB) {
	t.Helper()
	s.Exec(t, "sh", "-c", "kill -9 -1")
}

// outlives is a test whose cleanups run when all tests have ended. They log nothing.
type outlives struct{ testing.TB }

func (outlives) Failed() bool { return false }

func (o outlives) Cleanup(f func()) {
	servers.AtEnd(func() error {
		f()
		return nil
	})
}

// dsn returns the name of the data source of a server or a file.
func (k kind) dsn(address string) string {
	switch {
	case k.dialect == sqlstore.PostgreSQL:
		return fmt.Sprintf("postgres://postgres:%s@%s/postgres?sslmode=disable", password, address)
	case k.dialect == sqlstore.MySQL:
		return fmt.Sprintf("root:%s@tcp(%s)/test", password, address)
	case k.driver == "sqlite":
		return "file:" + address + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(100)" +
			"&_pragma=synchronous(OFF)"
	default:
		return "file:" + address + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(100)" +
			"&_pragma=synchronous(OFF)"
	}
}

// A database is a schema of a server behind a proxy that lets its connections fail, or a file.
type database struct {
	kind
	schema string
	proxy  *faultproxy.Proxy
	direct string  // address, not through the proxy
	admin  *sql.DB // not through the proxy

	counting sync.Once
}

var databases atomic.Int64

// newDatabase makes an empty database.
func (k kind) newDatabase(t testing.TB) *database {
	t.Helper()
	if k.image == "" {
		return k.databaseAt(t, filepath.Join(t.TempDir(), "limits.db"))
	}
	return k.databaseAt(t, k.address(t))
}

func (k kind) databaseAt(t testing.TB, address string) *database {
	t.Helper()
	db := &database{kind: k, direct: address}
	db.admin = db.open(t, address)
	if k.image == "" {
		return db
	}
	db.schema = fmt.Sprintf("limits_%d_%d", os.Getpid(), databases.Add(1))
	var err error
	if db.proxy, err = faultproxy.Listen(address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.proxy.Close() })
	db.exec(t, "CREATE SCHEMA "+db.schema)
	t.Cleanup(func() {
		drop := "DROP SCHEMA " + db.schema
		if k.dialect == sqlstore.PostgreSQL {
			drop += " CASCADE"
		}
		db.exec(t, drop)
	})
	return db
}

func (k kind) openPool(address string) (*sql.DB, error) {
	if k.driver != pipelined {
		return sql.Open(k.driver, k.dsn(address))
	}
	config, err := pgx.ParseConfig(k.dsn(address))
	if err != nil {
		return nil, err
	}
	return postgres.OpenDB(*config), nil
}

// open returns a pool that is closed at the end of the test.
func (k kind) open(t testing.TB, address string) *sql.DB {
	t.Helper()
	pool, err := k.openPool(address)
	if err != nil {
		t.Fatal(err)
	}
	pool.SetMaxOpenConns(16)
	pool.SetMaxIdleConns(16)
	t.Cleanup(func() { pool.Close() })
	return pool
}

// pool returns a pool whose connections go through the proxy.
func (db *database) pool(t testing.TB) *sql.DB {
	t.Helper()
	if db.proxy == nil {
		return db.open(t, db.direct)
	}
	return db.open(t, db.proxy.Addr())
}

// table returns the name of a table of the database.
func (db *database) table(name string) string {
	if db.schema == "" {
		return name
	}
	return db.schema + "." + name
}

// newStore returns a store whose pool is closed at the end of the test. It makes the table.
func (db *database) newStore(t testing.TB, opts *sqlstore.Options) *sqlstore.Store {
	t.Helper()
	if opts == nil {
		opts = &sqlstore.Options{}
	}
	with := *opts
	with.Table = db.table("ratelimit_states")
	s, err := sqlstore.New(db.pool(t), db.dialect, &with)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	return s
}

// storeAt returns a store for a process of its own, which never closes it.
func (k kind) storeAt(address string, opts *sqlstore.Options) (*sqlstore.Store, error) {
	db, err := k.openPool(address)
	if err != nil {
		return nil, err
	}
	return sqlstore.New(db, k.dialect, opts)
}

func (db *database) exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.admin.ExecContext(context.Background(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// writes returns how many writes there were since its first call.
func (db *database) writes() (n int64, err error) {
	db.counting.Do(func() { err = db.countWrites() })
	if err != nil {
		return 0, err
	}
	err = db.admin.QueryRow("SELECT n FROM " + db.table("writes")).Scan(&n)
	return n, err
}

func (db *database) countWrites() error {
	states, writes := db.table("ratelimit_states"), db.table("writes")
	statements := []string{"CREATE TABLE " + writes + " (n bigint)",
		"INSERT INTO " + writes + " VALUES (0)"}
	count := "UPDATE " + writes + " SET n = n + 1"
	switch db.dialect {
	case sqlstore.PostgreSQL:
		statements = append(statements, "CREATE FUNCTION "+db.table("count_write")+
			"() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN "+count+"; RETURN NULL; END'",
			"CREATE TRIGGER count_write AFTER INSERT OR UPDATE ON "+states+
				" FOR EACH STATEMENT EXECUTE FUNCTION "+db.table("count_write")+"()")
	case sqlstore.MySQL:
		for _, what := range []string{"INSERT", "UPDATE"} {
			statements = append(statements, "CREATE TRIGGER "+db.table("count_"+what)+" AFTER "+
				what+" ON "+states+" FOR EACH ROW "+count)
		}
	default:
		for _, what := range []string{"INSERT", "UPDATE"} {
			statements = append(statements, "CREATE TRIGGER count_"+what+" AFTER "+what+" ON "+
				states+" BEGIN "+count+"; END")
		}
	}
	for _, statement := range statements {
		if _, err := db.admin.Exec(statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// loseAnswer breaks the connection of the next commit after the server has executed it.
func (db *database) loseAnswer() error {
	holding := "COMMIT\x00" // not "READ COMMITTED"
	switch {
	case db.driver == pipelined:
		holding = boundOf("COMMIT")
	case db.dialect == sqlstore.MySQL:
		holding = "INSERT"
	}
	db.proxy.Set(faultproxy.Fault{Kind: faultproxy.CutAfter, Holding: holding, Times: 1})
	return nil
}

// boundOf returns what a message Bind of a statement that pgx has prepared contains.
func boundOf(statement string) string {
	sum := sha256.Sum256([]byte(statement))
	return fmt.Sprintf("\x00stmtcache_%x\x00", sum[:24])
}

// freeze stops the database from answering until thaw is called.
func (db *database) freeze() (thaw func() error, err error) {
	if db.proxy != nil {
		db.proxy.Set(faultproxy.Fault{Kind: faultproxy.Freeze})
		return func() error {
			db.proxy.Heal()
			return nil
		}, nil
	}
	c, err := db.admin.Conn(context.Background())
	if err != nil {
		return nil, err
	}
	for begin := time.Now(); ; {
		_, err := c.ExecContext(context.Background(), "BEGIN IMMEDIATE")
		if err == nil {
			break
		} else if time.Since(begin) > 5*time.Second {
			return nil, err
		}
	}
	return func() error {
		_, err := c.ExecContext(context.Background(), "ROLLBACK")
		return errors.Join(err, c.Close())
	}, nil
}
