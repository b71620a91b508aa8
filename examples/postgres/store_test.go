package postgres

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/transactional"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/conformance/linear"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/storeclock"
)

func TestMain(m *testing.M) {
	os.Exit(servers.Run(m, servers.Task{Env: mistakeVariable, Run: func(mistake string) int {
		mistakes[mistake].plant()
		return m.Run()
	}}))
}

// newStore returns a store whose pool is closed at the end of the test.
func newStore(t testing.TB, db *database, now func() int64) *transactional.Store {
	t.Helper()
	s, err := New(db.connect(t), &transactional.Options{Now: now, Timeout: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestConformance runs the public suite on a server.
func TestConformance(t *testing.T) {
	address := start(t, "fsync=off")
	conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
		db := newDatabase(t, address)
		db.countWrites(t)
		s := newStore(t, db, now)
		return conformance.Harness{
			Store:      s,
			Second:     func(t testing.TB) driver.Store { return newStore(t, db, now) },
			Writes:     db.writes,
			Close:      s.Close,
			LoseAnswer: db.loseAnswer,
			Freeze:     db.freeze,
			Sweep:      func() error { return db.sweep(now) },
		}
	}, &conformance.Options{CheckHistory: linear.Check})
}

// TestClockIsReadLast lets a call wait for its lock while the state of its key expires and is
// deleted. With a clock that was read before the wait, it would be admitted too early.
func TestClockIsReadLast(t *testing.T) {
	db := newDatabase(t, start(t))
	s := newStore(t, db, nil)
	limit := driver.Limit{Name: "calls", Max: 1, Window: 50 * time.Millisecond}
	d := driver.Demand{Key: "user:42", Algorithm: algorithm.SlidingLog(limit), N: 1}
	ds, first := []driver.Demand{d, storeclock.Show(d.Key)}, make([]driver.Result, 2)
	if err := s.TakeAll(t.Context(), ds, first); err != nil || !first[0].Allowed {
		t.Fatalf("%+v, %v", first, err)
	}
	holder, err := db.admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(t.Context(), lock, []string{d.StoredKey()}); err != nil {
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
	servers.Await(t, db.waits)
	time.Sleep(limit.Window)
	if err := errors.Join(db.sweep(nil), holder.Rollback(t.Context())); err != nil {
		t.Fatal(err)
	}
	res := <-second
	near := time.Now().UnixMicro()
	apart := time.Duration(storeclock.Of(res[1], near)-storeclock.Of(first[1], near)) *
		time.Microsecond
	if apart < limit.Window {
		t.Errorf("the clock of the second decision is %v after the first: %+v", apart, res)
	}
}

// TestUnavailable tests a server that does not listen, and a pool that is closed.
func TestUnavailable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	refused, closed := pool(t, url(listener.Addr().String(), "")), pool(t, url("127.0.0.1:1", ""))
	closed.Close()
	for name, p := range map[string]*pgxpool.Pool{"refused": refused, "closed": closed} {
		s, err := New(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		limit := driver.PerHour("calls", 1)
		d := driver.Demand{Key: "user:42", Algorithm: algorithm.SlidingLog(limit), N: 1}
		_, err = s.Take(t.Context(), d)
		if !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", name, err)
		}
		if strings.Contains(fmt.Sprint(err), password) {
			t.Errorf("%s: the password is in %q", name, err)
		}
	}
}

// BenchmarkStore measures a server whose commits wait for the disk, and one whose commits do not.
func BenchmarkStore(b *testing.B) {
	for _, commit := range []string{"on", "off"} {
		b.Run("synchronous_commit="+commit, func(b *testing.B) {
			address := start(b, "synchronous_commit="+commit)
			db := newDatabase(b, address)
			conformance.Benchmark(b, func(t testing.TB, _ func() int64) conformance.Harness {
				opts := &transactional.Options{Timeout: time.Minute}
				s, err := New(pool(t, url(address, db.schema)), opts)
				if err != nil {
					t.Fatal(err)
				}
				return conformance.Harness{Store: s}
			})
		})
	}
}
