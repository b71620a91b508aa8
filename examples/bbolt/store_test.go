package bbolt_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/transactional"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
	store "github.com/truewindow/ratelimit/examples/bbolt"
)

func open(t testing.TB) *bbolt.DB {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "limits.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	db.NoSync = true // the suite has thousands of transactions
	t.Cleanup(func() { db.Close() })
	return db
}

// TestConformance runs the public suite on a file.
func TestConformance(t *testing.T) {
	db := open(t)
	conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
		clock := now
		if clock == nil {
			clock = func() int64 { return time.Now().UnixMicro() }
		}
		opts := &transactional.Options{Now: now, Timeout: 4 * time.Second}
		s, err := store.New(db, opts)
		if err != nil {
			t.Fatal(err)
		}
		return conformance.Harness{
			Store: s,
			Second: func(t testing.TB) driver.Store {
				second, err := store.New(db, opts)
				if err != nil {
					t.Fatal(err)
				}
				return second
			},
			Close: s.Close,
			Freeze: func() (func() error, error) {
				lock, err := db.Begin(true)
				if err != nil {
					return nil, err
				}
				return lock.Rollback, nil
			},
			Sweep: func() error { return store.Sweep(db, clock()) },
		}
	}, nil)
}

// BenchmarkStore measures a file whose commits wait for the disk, and one whose commits do not.
func BenchmarkStore(b *testing.B) {
	for _, noSync := range []bool{false, true} {
		b.Run(fmt.Sprintf("NoSync=%v", noSync), func(b *testing.B) {
			db := open(b)
			db.NoSync = noSync
			conformance.Benchmark(b, func(t testing.TB, _ func() int64) conformance.Harness {
				s, err := store.New(db, &transactional.Options{Timeout: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				return conformance.Harness{Store: s}
			})
		})
	}
}

// TestFileKeepsHistory closes the file between two calls.
func TestFileKeepsHistory(t *testing.T) {
	name := filepath.Join(t.TempDir(), "limits.db")
	for i := range 3 {
		db, err := bbolt.Open(name, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := store.New(db, nil)
		if err != nil {
			t.Fatal(err)
		}
		limiter, err := ratelimit.New(s, algorithm.SlidingLog(driver.PerHour("login", 3)))
		if err != nil {
			t.Fatal(err)
		}
		res, err := limiter.AllowN(t.Context(), "user:42", 2)
		if err != nil {
			t.Fatal(err)
		}
		if res.Allowed != (i == 0) || res.Remaining != 1 {
			t.Errorf("%+v", res)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestClosed tests a file that is closed.
func TestClosed(t *testing.T) {
	db := open(t)
	s, err := store.New(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	d := driver.Demand{Key: "user:42", N: 1,
		Algorithm: algorithm.SlidingLog(driver.PerHour("calls", 1))}
	if _, err := s.Take(t.Context(), d); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
}

// TestSweep deletes expired states, adjacent ones included, and nothing else.
func TestSweep(t *testing.T) {
	db := open(t)
	if err := store.Sweep(db, 1); err != nil {
		t.Errorf("an empty file: %v", err)
	}
	now := int64(1e15)
	s, err := store.New(db, &transactional.Options{Now: func() int64 { return now }})
	if err != nil {
		t.Fatal(err)
	}
	take := func(key string, limit driver.Limit) driver.Result {
		t.Helper()
		res, err := s.Take(t.Context(),
			driver.Demand{Key: key, Algorithm: algorithm.SlidingLog(limit), N: 1})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	for i := range 50 {
		take(fmt.Sprint("second", i), driver.PerSecond("l", 1))
		if i%10 == 0 {
			take(fmt.Sprint("second", i, "x"), driver.PerHour("l", 1))
		}
	}
	now += time.Minute.Microseconds()
	if err := store.Sweep(db, now); err != nil {
		t.Fatal(err)
	}
	keys := 0
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			keys += b.Stats().KeyN
			return nil
		})
	})
	if err != nil || keys != 5 {
		t.Errorf("%d keys, %v; want 5", keys, err)
	}
	if take("second10x", driver.PerHour("l", 1)).Allowed {
		t.Error("a state that counts was deleted")
	}
}
