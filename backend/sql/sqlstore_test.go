package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	sqlstore "github.com/truewindow/ratelimit/backend/sql"
	ratelimitdriver "github.com/truewindow/ratelimit/driver"
)

// nowhere is a connector to a server that is not there.
type nowhere struct{}

func (nowhere) Connect(context.Context) (driver.Conn, error) { return nil, errors.New("no server") }
func (nowhere) Driver() driver.Driver                        { return nil }

func TestInvalidOptions(t *testing.T) {
	db := sql.OpenDB(nowhere{})
	defer db.Close()
	for name, err := range map[string]error{
		"no database":          newError(nil, sqlstore.SQLite, sqlstore.Options{}),
		"no dialect":           newError(db, 0, sqlstore.Options{}),
		"an unknown dialect":   newError(db, 9, sqlstore.Options{}),
		"a negative Timeout":   newError(db, sqlstore.SQLite, sqlstore.Options{Timeout: -1}),
		"many Transactions":    newError(db, sqlstore.SQLite, sqlstore.Options{Transactions: 65}),
		"a quote in Table":     newError(db, sqlstore.MySQL, sqlstore.Options{Table: "a`; b"}),
		"three parts of Table": newError(db, sqlstore.MySQL, sqlstore.Options{Table: "a.b.c"}),
		"an empty part of it":  newError(db, sqlstore.MySQL, sqlstore.Options{Table: "a."}),
		"a long part of it": newError(db, sqlstore.MySQL,
			sqlstore.Options{Table: strings.Repeat("a", 64)}),
		"a space in it":         newError(db, sqlstore.PostgreSQL, sqlstore.Options{Table: "a b"}),
		"a letter that is none": newError(db, sqlstore.PostgreSQL, sqlstore.Options{Table: "gör"}),
	} {
		if !errors.Is(err, ratelimitdriver.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := sqlstore.Schema(0, ""); !errors.Is(err, ratelimitdriver.ErrInvalid) {
		t.Errorf("Schema of no dialect: %v", err)
	}
}

func newError(db *sql.DB, d sqlstore.Dialect, opts sqlstore.Options) error {
	_, err := sqlstore.New(db, d, &opts)
	return err
}

// TestNoServer: a server that is not there is an outage, and New and Close do not need it.
func TestNoServer(t *testing.T) {
	db := sql.OpenDB(nowhere{})
	defer db.Close()
	s, err := sqlstore.New(db, sqlstore.PostgreSQL, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := ratelimitdriver.Demand{Key: "k", N: 1,
		Algorithm: algorithm.SlidingLog(ratelimitdriver.PerHour("calls", 1))}
	for what, err := range map[string]error{
		"Take":    takeError(t, s, d),
		"Migrate": s.Migrate(t.Context()),
		"Probe":   s.Probe(t.Context()),
	} {
		if !ratelimitdriver.IsOutage(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n, err := s.Sweep(t.Context()); !ratelimitdriver.IsOutage(err) || n != 0 {
		t.Errorf("Sweep: %d, %v", n, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := takeError(t, s, d); !errors.Is(err, ratelimitdriver.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func takeError(t *testing.T, s *sqlstore.Store, d ratelimitdriver.Demand) error {
	_, err := s.Take(t.Context(), d)
	return err
}

func ExampleNew() {
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL")) // which import _ ".../pgx/v5/stdlib" adds
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	store, err := sqlstore.New(db, sqlstore.PostgreSQL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := store.Migrate(ctx); err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("login", 60)))
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := limiter.Allow(ctx, "user:42")
	fmt.Println(res.Allowed, err)
}

// A statement for a migration of your own.
func ExampleSchema() {
	statement, err := sqlstore.Schema(sqlstore.PostgreSQL, "limits.states")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(statement)
	// Output:
	// CREATE TABLE IF NOT EXISTS "limits"."states" (
	// 	stored_key text COLLATE "C" PRIMARY KEY,
	// 	state bytea NOT NULL,
	// 	expires bigint NOT NULL
	// ) WITH (fillfactor = 70)
}
