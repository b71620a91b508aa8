package sql

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	sqlstore "github.com/truewindow/ratelimit/backend/sql"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/storeclock"
)

// TestClockIsReadLast lets a call wait for its lock while the state of its key expires and is
// deleted. With a clock that was read before the wait, it would be admitted too early.
func TestClockIsReadLast(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		if k.dialect == sqlstore.SQLite {
			t.Skip("its clock is read after the lock in this process")
		}
		db := k.newDatabase(t)
		s := db.newStore(t, &sqlstore.Options{Timeout: 8 * time.Second})
		limit := driver.Limit{Name: "calls", Max: 1, Window: 50 * time.Millisecond}
		d := driver.Demand{Key: "user:42", Algorithm: algorithm.SlidingLog(limit), N: 1}
		ds, first := []driver.Demand{d, storeclock.Show(d.Key)}, make([]driver.Result, 2)
		if err := s.TakeAll(t.Context(), ds, first); err != nil || !first[0].Allowed {
			t.Fatalf("%+v, %v", first, err)
		}
		holder, err := db.admin.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Close()
		lock, unlock := "SELECT pg_advisory_lock(%d)", "SELECT pg_advisory_unlock(%d)"
		waits := "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"
		if k.dialect == sqlstore.MySQL {
			lock, unlock = "DO GET_LOCK('ratelimit%016x', 1)", "DO RELEASE_LOCK('ratelimit%016x')"
			waits = "SELECT EXISTS (SELECT * FROM information_schema.processlist " +
				"WHERE state = 'User lock')"
		}
		if _, err := holder.ExecContext(t.Context(), fmt.Sprintf(lock, lockOf(d))); err != nil {
			t.Fatal(err)
		}
		second := make(chan []driver.Result)
		go func() {
			out := make([]driver.Result, 2)
			if err := s.TakeAll(t.Context(), ds, out); err != nil {
				t.Error(err)
			}
			second <- out
		}()
		servers.Await(t, func() (found bool, err error) {
			err = db.admin.QueryRowContext(t.Context(), waits).Scan(&found)
			return found, err
		})
		time.Sleep(limit.Window)
		_, errSweep := s.Sweep(t.Context())
		_, errUnlock := holder.ExecContext(t.Context(), fmt.Sprintf(unlock, lockOf(d)))
		if err := errors.Join(errSweep, errUnlock); err != nil {
			t.Fatal(err)
		}
		res := <-second
		near := time.Now().UnixMicro()
		apart := time.Duration(storeclock.Of(res[1], near)-storeclock.Of(first[1], near)) *
			time.Microsecond
		if apart < limit.Window {
			t.Errorf("the clock of the second decision is %v after the first: %+v", apart, res)
		}
	})
}
