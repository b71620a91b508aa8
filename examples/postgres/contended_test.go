package postgres

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// TestContended floods one key from 300 callers of two processes, for longer than the stores'
// timeout. FailOpen admits nothing, no breaker opens, and others are decided.
func TestContended(t *testing.T) {
	fast := clock
	clock += " FROM pg_sleep(0.05)" // so that the callers would need 15 s
	defer func() { clock = fast }()
	db := newDatabase(t, start(t))
	var wg sync.WaitGroup
	var admitted, contended, others atomic.Int64
	var breakers []*layer.Breaker
	began := time.Now()
	flood := func(ask func()) {
		for time.Since(began) < 5*time.Second {
			ask()
		}
	}
	for process := range 2 {
		b, err := layer.NewBreaker(newStore(t, db, nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		breakers = append(breakers, b)
		l, err := ratelimit.New(b, algorithm.SlidingLog(driver.PerHour("calls", 10)))
		if err != nil {
			t.Fatal(err)
		}
		l = l.WithPolicy(ratelimit.FailOpen)
		for range 150 {
			wg.Go(func() {
				flood(func() {
					res, err := l.Allow(t.Context(), "stranger")
					if res.Allowed {
						admitted.Add(1)
					} else if errors.Is(err, driver.ErrContended) {
						contended.Add(1)
					}
				})
			})
		}
		wg.Go(func() {
			flood(func() {
				key := fmt.Sprint("user", process, others.Add(1))
				if res, err := l.Allow(t.Context(), key); err != nil || res.Remaining != 9 {
					t.Errorf("another key: %+v, %v", res, err)
				}
			})
		})
	}
	wg.Wait()
	t.Logf("%d admitted, %d contended, %d of others", admitted.Load(), contended.Load(),
		others.Load())
	if n := admitted.Load(); n != 10 {
		t.Errorf("%d calls of the stranger were admitted, want 10", n)
	}
	if contended.Load() == 0 {
		t.Error("no call was contended")
	}
	for _, b := range breakers {
		if s := b.Stats(); s.Opened > 0 {
			t.Errorf("the breaker: %+v", s)
		}
	}
}

// TestLockTimeout: a key's lock that is not free in time is no outage, and a locked table is one.
func TestLockTimeout(t *testing.T) {
	address := start(t)
	db := newDatabase(t, address)
	s, err := New(pool(t, url(address, db.schema)+"&lock_timeout=50ms"), nil)
	if err != nil {
		t.Fatal(err)
	}
	d := driver.Demand{Key: "user:42", N: 1,
		Algorithm: algorithm.SlidingLog(driver.PerHour("calls", 1))}
	for _, tt := range []struct {
		lock   string
		args   []any
		outage bool
	}{
		{lock, []any{[]string{d.StoredKey()}}, false},
		{"LOCK TABLE ratelimit_states", nil, true},
	} {
		holder, err := db.admin.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := holder.Exec(t.Context(), tt.lock, tt.args...); err != nil {
			t.Fatal(err)
		}
		_, err = s.Take(t.Context(), d)
		if err == nil || !strings.Contains(err.Error(), "55P03") ||
			driver.IsOutage(err) != tt.outage || errors.Is(err, driver.ErrContended) == tt.outage {
			t.Errorf("%s: %v", tt.lock, err)
		}
		if err := holder.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
