package sql

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	sqlstore "github.com/truewindow/ratelimit/backend/sql"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// TestSweep: expired rows are deleted under load in the background, and no decision fails.
func TestSweep(t *testing.T) {
	rows := 20_000
	if depth.Full {
		rows = 1_000_000
	}
	each(t, func(t *testing.T, k kind) {
		db := k.newDatabase(t)
		s := db.newStore(t, &sqlstore.Options{Timeout: 4 * time.Second,
			SweepEvery: 100 * time.Millisecond})
		db.insertExpired(t, rows)
		short := algorithm.SlidingLog(driver.Limit{Name: "calls", Max: 5,
			Window: 200 * time.Millisecond})
		var wg sync.WaitGroup
		var over atomic.Bool
		var slowest, decided atomic.Int64
		for caller := range 8 {
			wg.Go(func() {
				for i := 0; !over.Load(); i++ {
					began := time.Now()
					d := driver.Demand{Key: fmt.Sprint("user", caller, i%50), N: 1,
						Algorithm: []driver.Algorithm{short, hourly}[i%2]}
					if _, err := s.Take(t.Context(), d); err != nil {
						t.Error(err)
						return
					}
					decided.Add(1)
					slowest.Store(max(slowest.Load(), int64(time.Since(began))))
				}
			})
		}
		began := time.Now()
		var left bool // found in the index: to count the rows would keep the server busy
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := servers.Poll(ctx, func() (bool, error) {
			err := db.admin.QueryRowContext(ctx, "SELECT EXISTS (SELECT * FROM "+
				db.table("ratelimit_states")+
				" WHERE stored_key >= 'expired' AND stored_key < 'expiree')").Scan(&left)
			return !left, err
		}); err != nil {
			t.Errorf("rows are left: %v", err)
		}
		over.Store(true)
		wg.Wait()
		t.Logf("%d rows are swept in %v beside %d decisions, the slowest of which took %v", rows,
			time.Since(began).Round(time.Millisecond), decided.Load(),
			time.Duration(slowest.Load()).Round(time.Millisecond))
		live := 0
		if err := db.admin.QueryRow("SELECT count(*) FROM " + db.table("ratelimit_states") +
			" WHERE stored_key LIKE '%calls%'").Scan(&live); err != nil ||
			int64(live) < min(200, decided.Load()/4) {
			t.Errorf("%d rows that count are left, %v", live, err)
		}
	})
}

// insertExpired inserts rows that have expired.
func (db *database) insertExpired(t *testing.T, n int) {
	t.Helper()
	for i := 0; i < n; {
		statement := "INSERT INTO " + db.table("ratelimit_states") + " VALUES "
		for begin := i; i < min(begin+1000, n); i++ {
			if i > begin {
				statement += ","
			}
			statement += fmt.Sprintf("('expired%d', '123456789012', 1)", i)
		}
		db.exec(t, statement)
	}
}
