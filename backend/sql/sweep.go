package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

// sweepRows is how many rows a statement of the sweep looks at.
const sweepRows = 1000

// A sweeper deletes expired rows in the background, at times when the store is used.
type sweeper struct {
	every time.Duration
	ctx   context.Context
	end   context.CancelFunc

	mu       sync.Mutex
	last     time.Time // when it began to sweep
	after    string    // the last key that it looked at, where it goes on
	sweeping bool
	running  sync.WaitGroup
}

// sweepSometimes begins a sweep if it is time for one.
func (s *Store) sweepSometimes() {
	w := &s.sweeper
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.every < 0 || w.sweeping || time.Since(w.last) < w.every || w.ctx.Err() != nil {
		return
	}
	w.last, w.sweeping = time.Now(), true
	after := w.after
	w.running.Go(func() {
		_, after, _ = s.sweep(w.ctx, after)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.after, w.sweeping = after, false
	})
}

// stop ends a sweep, and lets no other begin.
func (w *sweeper) stop() {
	w.mu.Lock()
	w.end()
	w.mu.Unlock()
	w.running.Wait()
}

// Sweep deletes expired rows, and returns how many. It looks at a thousand rows at a time, and
// pauses between, so that decisions wait for no more than that. It ends if another sweep of the
// table runs.
func (s *Store) Sweep(ctx context.Context) (deleted int64, err error) {
	deleted, _, err = s.sweep(ctx, "")
	return deleted, err
}

// sweep looks at the rows behind the key after. It returns the last key that it looked at, or "" if
// there are no more.
func (s *Store) sweep(
	ctx context.Context, after string,
) (deleted int64, last string, err error) {
	more := true
	lock := -locksOf([]string{"sweep " + s.table})[0] // those of keys are not negative
	for more && err == nil && ctx.Err() == nil {
		began := time.Now()
		err = s.onConn(ctx, func(c *sql.Conn) error {
			alone, err := s.dialect.sweeping(ctx, c, lock)
			if err != nil {
				return err
			}
			n := int64(0)
			if more = alone; alone {
				n, after, err = s.sweepRows(ctx, c, after)
				deleted += n
				more = after != ""
			}
			if err != nil {
				return err
			}
			return s.dialect.swept(ctx, c, lock)
		})
		if more {
			pause(ctx, time.Since(began))
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	return deleted, after, err
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// sweepRows deletes the expired ones of the rows behind the key after. It returns the last key that
// it looked at, or "" if there are no more.
func (s *Store) sweepRows(
	ctx context.Context, c *sql.Conn, after string,
) (deleted int64, last string, err error) {
	d := s.dialect
	rest := "stored_key > " + d.text(after)
	err = c.QueryRowContext(ctx, fmt.Sprintf("SELECT stored_key FROM %s WHERE %s "+
		"ORDER BY stored_key LIMIT 1 OFFSET %d", s.table, rest, sweepRows-1)).Scan(&last)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		last = ""
	case err != nil:
		return 0, "", redactedOf(err)
	default:
		rest += " AND stored_key <= " + d.text(last)
	}
	now := d.clock()
	if now == "" {
		now = fmt.Sprint(time.Now().UnixMicro())
	}
	if s.now != nil {
		now = fmt.Sprint(s.now())
	}
	result, err := c.ExecContext(ctx, d.remove(s.table, rest+" AND expires <= "+now))
	if err != nil {
		return 0, "", redactedOf(err) // it may be about any row
	}
	deleted, err = result.RowsAffected()
	return deleted, last, err
}
