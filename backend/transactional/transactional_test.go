package transactional_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/transactional"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
)

func newStore(
	t testing.TB, db *database, opts *transactional.Options,
) *transactional.Store {
	t.Helper()
	store, err := transactional.New(db.tx, opts)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// TestConformance runs the public suite. TestMistakes runs it in processes with mistakes.
func TestConformance(t *testing.T) {
	conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
		db := newDatabase()
		db.mistake = os.Getenv(mistakeVariable)
		opts := &transactional.Options{Now: now, Timeout: 4 * time.Second}
		if strings.Contains(t.Name(), "frozen") { // its calls wait for as long
			opts.Timeout = 2 * time.Second
		}
		store := newStore(t, db, opts)
		clock := now
		if clock == nil {
			clock = func() int64 { return time.Now().UnixMicro() }
		}
		return conformance.Harness{
			Store:  store,
			Second: func(t testing.TB) driver.Store { return newStore(t, db, opts) },
			Writes: func() (int64, error) {
				db.memory.Lock()
				defer db.memory.Unlock()
				return db.writes, nil
			},
			Close: store.Close,
			LoseAnswer: func() error {
				db.memory.Lock()
				defer db.memory.Unlock()
				db.lose = true
				return nil
			},
			Freeze: db.freeze,
			Sweep: func() error {
				db.sweep(clock())
				return nil
			},
		}
	}, nil)
}

var hourly = algorithm.SlidingLog(driver.PerHour("hourly", 3))

func take(t testing.TB, store driver.Store) (driver.Result, error) {
	t.Helper()
	return store.Take(t.Context(), driver.Demand{Key: "k", Algorithm: hourly, N: 1})
}

// used returns how many units of the key are recorded.
func used(t testing.TB, db *database) int64 {
	t.Helper()
	d := driver.Demand{Key: "k", Algorithm: hourly, N: 1, Op: driver.OpPeek}
	res, err := newStore(t, db, nil).Take(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return hourly.Limit().Max - res.Remaining
}

func TestInvalidOptions(t *testing.T) {
	if _, err := transactional.New(nil, nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no begin: %v", err)
	}
	_, err := transactional.New(newDatabase().tx, &transactional.Options{Timeout: -1})
	if !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a negative Timeout: %v", err)
	}
	for _, n := range []int{-1, 65} {
		_, err := transactional.New(newDatabase().tx, &transactional.Options{Transactions: n})
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%d Transactions: %v", n, err)
		}
	}
}

// TestErrors: a failure before Commit records nothing and is ErrUnavailable. A failure of Commit is
// ErrOutcomeUnknown, unless it wraps ErrUnavailable.
func TestErrors(t *testing.T) {
	boom := errors.New("boom")
	conflict := fmt.Errorf("%w: serialization failure", driver.ErrUnavailable)
	full := fmt.Errorf("%w: the disk is full", driver.ErrCapacity)
	for name, tt := range map[string]struct {
		fail    func(*database)
		cause   error
		text    string
		unknown bool
	}{
		"begin":       {fail: func(db *database) { db.begin = boom }, cause: boom},
		"load":        {fail: func(db *database) { db.load = boom }, cause: boom},
		"too few":     {fail: func(db *database) { db.short = true }, text: "0 states for 1 keys"},
		"past":        {fail: func(db *database) { db.clock = -1 }, text: "out of range"},
		"nanoseconds": {fail: func(db *database) { db.clock = 1e18 }, text: "out of range"},
		"save":        {fail: func(db *database) { db.save = boom }, cause: boom},
		"capacity":    {fail: func(db *database) { db.save = full }, cause: driver.ErrCapacity},
		"commit":      {fail: func(db *database) { db.commit = boom }, cause: boom, unknown: true},
		"conflict":    {fail: func(db *database) { db.commit = conflict }, cause: conflict},
	} {
		t.Run(name, func(t *testing.T) {
			db := newDatabase()
			store := newStore(t, db, nil)
			tt.fail(db)
			_, err := take(t, store)
			if !errors.Is(err, driver.ErrUnavailable) ||
				errors.Is(err, driver.ErrOutcomeUnknown) != tt.unknown ||
				tt.cause != nil && !errors.Is(err, tt.cause) ||
				!strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v", err)
			}
			db.begin, db.load, db.save, db.commit, db.short, db.clock = nil, nil, nil, nil, false, 0
			if n := used(t, db); n != 0 {
				t.Errorf("%d units are recorded", n)
			}
		})
	}
}

// TestAbandonedBeforeCommit: a call that has reported that nothing was recorded records nothing
// later.
func TestAbandonedBeforeCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, hang := newDatabase(), make(chan struct{})
		db.beforeLoad = func() { <-hang }
		store := newStore(t, db, &transactional.Options{Timeout: time.Minute})
		ds := []driver.Demand{{Key: "k", Algorithm: hourly, N: 1}}
		err := store.TakeAll(t.Context(), ds, make([]driver.Result, 1))
		if !errors.Is(err, context.DeadlineExceeded) ||
			!errors.Is(err, driver.ErrUnavailable) ||
			errors.Is(err, driver.ErrOutcomeUnknown) {
			t.Errorf("error %v", err)
		}
		close(hang)
		synctest.Wait()
		if n := used(t, db); n != 0 {
			t.Errorf("%d units are recorded", n)
		}
	})
}

// TestAbandonedInCommit: a call that ends while Commit runs returns ErrOutcomeUnknown.
func TestAbandonedInCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, hang := newDatabase(), make(chan struct{})
		db.beforeCommit = func() { <-hang }
		store := newStore(t, db, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		ds := []driver.Demand{{Key: "k", Algorithm: hourly, N: 1}}
		err := store.TakeAll(ctx, ds, make([]driver.Result, 1))
		if !errors.Is(err, context.DeadlineExceeded) ||
			!errors.Is(err, driver.ErrOutcomeUnknown) {
			t.Errorf("error %v", err)
		}
		close(hang)
		synctest.Wait()
		if n := used(t, db); n != 1 {
			t.Errorf("%d units are recorded", n)
		}
	})
}

// TestPanicRollsBack: the caller gets the panic, and the next call gets the lock.
func TestPanicRollsBack(t *testing.T) {
	db := newDatabase()
	store := newStore(t, db, nil)
	db.beforeCommit = func() { panic("in Commit") }
	func() {
		defer func() {
			if p := recover(); p != "in Commit" {
				t.Errorf("recovered %v", p)
			}
		}()
		_, _ = take(t, store)
	}()
	if n := used(t, db); n != 0 {
		t.Errorf("%d units are recorded", n)
	}
}

// TestStatesStayTheDatabases: the adapter passes copies of states to steps, which write into them.
func TestStatesStayTheDatabases(t *testing.T) {
	db := newDatabase()
	store := newStore(t, db, nil)
	// The state of a bucket always has the same size, so a step writes into it.
	d := driver.Demand{Key: "k", N: 1,
		Algorithm: algorithm.GCRA(driver.PerHour("hourly", 3))}
	if _, err := store.Take(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	before := make(map[string]string)
	for key, r := range db.rows {
		before[key] = string(r.state)
	}
	db.commit = errLost // so what was saved does not replace what there was
	if _, err := store.Take(t.Context(), d); !errors.Is(err, driver.ErrOutcomeUnknown) {
		t.Fatal(err)
	}
	for key, r := range db.rows {
		if string(r.state) != before[key] {
			t.Errorf("the state of %s has changed", key)
		}
	}
}

// hooked is an algorithm that calls before at the beginning of each step.
type hooked struct {
	driver.Algorithm
	before *func()
}

func (h hooked) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	(*h.before)()
	return h.Algorithm.Step(state, now, d)
}

// TestDemandsAreCopied: the caller uses its slice again while an abandoned transaction is in
// progress.
func TestDemandsAreCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang, used := make(chan struct{}), false
		wait, use := func() { <-hang }, func() { used = true }
		ds := []driver.Demand{
			{Key: "a", Algorithm: hooked{hourly, &wait}, N: 1},
			{Key: "b", Algorithm: hourly, N: 1},
		}
		store := newStore(t, newDatabase(), nil)
		err := store.TakeAll(t.Context(), ds, make([]driver.Result, 2))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		ds[1].Algorithm = hooked{hourly, &use}
		close(hang)
		synctest.Wait()
		if used {
			t.Error("the transaction has used the caller's slice")
		}
	})
}

// TestHungAreBounded: while many transactions hang, calls fail at once.
func TestHungAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, hang := newDatabase(), make(chan struct{})
		db.beforeLoad = func() { <-hang }
		store := newStore(t, db, &transactional.Options{Transactions: 64})
		on := func(key int) driver.Demand {
			return driver.Demand{Key: fmt.Sprint("k", key), Algorithm: hourly, N: 1}
		}
		for i := range 4096 {
			go store.Take(t.Context(), on(i))
		}
		time.Sleep(1500 * time.Millisecond)
		began := time.Now()
		_, err := store.Take(t.Context(), on(0))
		if took := time.Since(began); took > 0 || !driver.IsOutage(err) {
			t.Errorf("%v after %v", err, took)
		}
		close(hang)
		synctest.Wait()
		if n := used(t, db); n != 0 {
			t.Errorf("%d units are recorded", n)
		}
		if _, err := take(t, store); err != nil {
			t.Error(err)
		}
	})
}
