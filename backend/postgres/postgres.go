// Package postgres opens stores in PostgreSQL databases by URL. Import it for its side effect:
//
//	import _ "github.com/truewindow/ratelimit/backend/postgres"
//	…
//	store, err := backend.Open(ctx, "postgres://user:password@host/database")
//
// The scheme is postgres or postgresql, and the driver pgx. Package
// [github.com/truewindow/ratelimit/backend/sql] is the store. A URL takes the store's parameters,
// see [sqlstore.Register], and these of libpq: application_name, channel_binding, connect_timeout,
// host, options, port, search_path, sslcert, sslkey, sslmode, sslnegotiation, sslpassword,
// sslrootcert, sslsni and target_session_attrs. It also takes pgx's default_query_exec_mode: write
// exec behind a pooler that keeps no prepared statements. What the URL leaves out is read from
// PGHOST and the other variables of libpq. Without sslmode the connection is encrypted only if the
// server offers it.
package postgres

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/truewindow/ratelimit/backend"
	sqlstore "github.com/truewindow/ratelimit/backend/sql"
)

func init() {
	sqlstore.Register("postgres", sqlstore.PostgreSQL, open)
	sqlstore.Register("postgresql", sqlstore.PostgreSQL, open)
}

// params are the parameters that pgx gets.
var params = []string{"application_name", "channel_binding", "connect_timeout",
	"default_query_exec_mode", "host", "options", "port", "search_path", "sslcert", "sslkey",
	"sslmode", "sslnegotiation", "sslpassword", "sslrootcert", "sslsni", "target_session_attrs"}

func open(u *backend.URL) (*sql.DB, error) {
	query := url.Values{}
	for _, name := range params {
		if value, ok := u.Param(name); ok {
			query.Set(name, value)
		}
	}
	target := url.URL{Scheme: "postgres", Host: strings.Join(u.Hosts, ","), Path: u.Path,
		RawQuery: query.Encode()}
	switch {
	case u.Password() != "":
		target.User = url.UserPassword(u.Username, u.Password())
	case u.Username != "":
		target.User = url.User(u.Username)
	}
	config, err := pgx.ParseConfig(target.String())
	if err != nil {
		why := "a parameter of PostgreSQL is wrong"
		// The error quotes the URL, and then says what is wrong.
		if i := strings.LastIndex(err.Error(), "`: "); i >= 0 && query.Get("sslpassword") == "" {
			why = err.Error()[i+len("`: "):]
		}
		return nil, errors.New(why)
	}
	return OpenDB(*config), nil
}

// OpenDB returns a pool for [sqlstore.New], which a program can use for its own queries too. Its
// connections send several statements in one round trip, which those of sql.Open do not. It does no
// I/O. config is of [pgx.ParseConfig].
func OpenDB(config pgx.ConnConfig) *sql.DB {
	return sql.OpenDB(connector{stdlib.GetConnector(config)})
}

type connector struct{ sqldriver.Connector }

func (c connector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return pipeliner{conn.(*stdlib.Conn)}, nil
}

type pipeliner struct{ *stdlib.Conn }

var _ sqlstore.Pipeliner = pipeliner{}

// Pipeline implements [sqlstore.Pipeliner].
func (p pipeliner) Pipeline(
	ctx context.Context, statements []sqlstore.Statement,
	row func(scan func(dest ...any) error) error,
) error {
	var batch pgx.Batch
	for _, s := range statements {
		batch.Queue(s.Text, s.Args...)
	}
	results := p.Conn.Conn().SendBatch(ctx, &batch)
	err := read(results, len(statements), row)
	if errClose := results.Close(); err == nil {
		err = errClose
	}
	return err
}

func read(results pgx.BatchResults, n int, row func(scan func(dest ...any) error) error) error {
	if row == nil {
		return nil // Close reads them
	}
	for range n - 1 {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
