package sql

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	sqlstore "github.com/truewindow/ratelimit/backend/sql"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// TestContended floods one key from 300 callers of two processes. FailOpen admits nothing, no
// breaker opens, and others are decided.
func TestContended(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		db := k.newDatabase(t)
		var wg sync.WaitGroup
		var admitted, unknown, others atomic.Int64
		began := time.Now()
		flood := func(n int, ask func()) {
			for range n {
				wg.Go(func() {
					for time.Since(began) < 2*time.Second {
						ask()
					}
				})
			}
		}
		var breakers []*layer.Breaker
		for process := range 2 {
			b, err := layer.NewBreaker(db.newStore(t, &sqlstore.Options{Timeout: 4 * time.Second}),
				nil)
			if err != nil {
				t.Fatal(err)
			}
			breakers = append(breakers, b)
			l, err := ratelimit.New(b, algorithm.SlidingLog(driver.PerHour("calls", 10)))
			if err != nil {
				t.Fatal(err)
			}
			l = l.WithPolicy(ratelimit.FailOpen)
			flood(150, func() {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				res, err := l.Allow(ctx, "stranger")
				if res.Allowed {
					admitted.Add(1)
				}
				if errors.Is(err, driver.ErrOutcomeUnknown) {
					unknown.Add(1)
				}
			})
			flood(1, func() {
				key := fmt.Sprint("user", process, others.Add(1))
				if res, err := l.Allow(t.Context(), key); err != nil || res.Remaining != 9 {
					t.Errorf("another key: %+v, %v", res, err)
				}
			})
		}
		wg.Wait()
		t.Logf("%d of others were decided", others.Load())
		if n := admitted.Load(); n > 10 || n+unknown.Load() < 10 {
			t.Errorf("%d calls of the stranger were admitted, want 10", n)
		}
		for _, b := range breakers {
			if s := b.Stats(); s.Opened > 0 {
				t.Errorf("the breaker: %+v", s)
			}
		}
	})
}

// TestLockedKey: a key that another session has locked is contended; its neighbours are decided.
func TestLockedKey(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		if k.dialect == sqlstore.SQLite {
			t.Skip("it locks the file")
		}
		db := k.newDatabase(t)
		// MySQL waits for whole seconds.
		s := db.newStore(t, &sqlstore.Options{Timeout: 8 * time.Second, Transactions: 1})
		locked := of("locked", 1)
		holder, err := db.admin.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Close()
		lock := fmt.Sprintf("SELECT pg_advisory_lock(%d)", lockOf(locked))
		if k.dialect == sqlstore.MySQL {
			lock = fmt.Sprintf("DO GET_LOCK('ratelimit%016x', 1)", lockOf(locked))
		}
		if _, err := holder.ExecContext(t.Context(), lock); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				d := of(fmt.Sprint("free", i), 1)
				if i%5 == 0 {
					d = locked
				}
				_, err := s.Take(t.Context(), d)
				if i%5 == 0 && !errors.Is(err, driver.ErrContended) || i%5 != 0 && err != nil {
					t.Errorf("%s: %v", d.Key, err)
				}
			})
		}
		wg.Wait()
	})
}
