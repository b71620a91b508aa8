package sqlstore

import (
	"context"
	"database/sql"
)

// A Statement is text with arguments.
type Statement struct {
	Text string
	Args []any
}

// A Pipeliner is a connection of a driver that sends several statements in one round trip. With it
// a decision on PostgreSQL takes two round trips in place of four. Those of package
// [github.com/truewindow/ratelimit/backend/postgres] are Pipeliners.
type Pipeliner interface {
	// Pipeline executes statements in their order, until one fails. It calls row, unless that is
	// nil, for each row of the last one.
	Pipeline(
		ctx context.Context, statements []Statement, row func(scan func(dest ...any) error) error,
	) error
}

// scan copies the columns of a row.
type scan = func(dest ...any) error

// pipeline executes statements on a connection that is a Pipeliner, and reports whether it is one.
func pipeline(
	ctx context.Context, c *sql.Conn, row func(scan) error, statements ...Statement,
) (ok bool, err error) {
	errRaw := c.Raw(func(conn any) error {
		var p Pipeliner
		if p, ok = conn.(Pipeliner); ok {
			err = p.Pipeline(ctx, statements, row)
		}
		return nil
	})
	if errRaw != nil {
		return true, errRaw
	}
	return ok, err
}

func (s Statement) exec(ctx context.Context, c *sql.Conn) error {
	_, err := c.ExecContext(ctx, s.Text, s.Args...)
	return err
}

func (s Statement) query(ctx context.Context, c *sql.Conn, row func(scan) error) error {
	rows, err := c.QueryContext(ctx, s.Text, s.Args...)
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
