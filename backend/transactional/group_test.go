package transactional_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/transactional"
	"github.com/truewindow/ratelimit/driver"
)

const latency = 20 * time.Millisecond // of a transaction that writes

// An outcome is what a call of a group returned.
type outcome struct {
	res []driver.Result
	err error
}

func (o outcome) allowed() bool {
	refused := func(r driver.Result) bool { return !r.Allowed }
	return o.err == nil && !slices.ContainsFunc(o.res, refused)
}

func thousandAnHour(key string, n int64) driver.Demand {
	return driver.Demand{Key: key, N: n, Algorithm: algorithm.SlidingLog(
		driver.PerHour("calls", 1000))}
}

// together makes calls that arrive one after the other while a transaction runs, and returns their
// outcomes.
func together(t *testing.T, s driver.Store, calls ...[]driver.Demand) []outcome {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = s.Take(t.Context(), thousandAnHour("first", 1)) })
	synctest.Wait()
	outcomes := make([]outcome, len(calls))
	for i, ds := range calls {
		outcomes[i].res = make([]driver.Result, len(ds))
		wg.Go(func() { outcomes[i].err = s.TakeAll(t.Context(), ds, outcomes[i].res) })
		synctest.Wait()
	}
	wg.Wait()
	return outcomes
}

// TestGroupCommit: calls that arrive while a transaction runs are decided in the next one, in the
// order of arrival, and each gets its own results.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newRows(latency)
		s := db.store(t)
		var calls [][]driver.Demand
		for i := range 100 {
			ds := []driver.Demand{thousandAnHour("k", int64(1+i%3))}
			if i%10 == 9 {
				ds = append(ds, thousandAnHour(fmt.Sprint("k", i), 7))
			}
			calls = append(calls, ds)
		}
		began, left := time.Now(), int64(1000)
		for i, o := range together(t, s, calls...) {
			left -= calls[i][0].N
			if !o.allowed() || o.res[0].Remaining != left || len(o.res) > 1 &&
				o.res[1].Remaining != 993 {
				t.Fatalf("call %d: %+v, %d should be left", i, o, left)
			}
		}
		if n := db.transactions.Load(); n != 2 || time.Since(began) != 2*latency {
			t.Errorf("%d transactions took %v", n, time.Since(began))
		}
		if n := db.saved.Load(); n != 2 {
			t.Errorf("Save was called %d times", n)
		}
	})
}

// TestGroupAtTheLimit: what one call of a group takes, the next one has not.
func TestGroupAtTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := make([][]driver.Demand, 30)
		for i := range calls {
			calls[i] = []driver.Demand{{Key: "k", N: 1, Algorithm: tenAnHour}}
		}
		for i, o := range together(t, newRows(latency).store(t), calls...) {
			if o.err != nil || o.allowed() != (i < 10) {
				t.Errorf("call %d: %+v", i, o)
			}
		}
	})
}

// TestGroupBounds: a transaction has at most 256 keys and 1,024 demands, and no call is in two.
func TestGroupBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct{ calls, demands, keys, want int }{
			"keys":         {calls: 257, demands: 1, keys: 257, want: 2},
			"exact":        {calls: 256, demands: 1, keys: 256, want: 1},
			"demands":      {calls: 1025, demands: 1, keys: 1, want: 2},
			"large calls":  {calls: 5, demands: 200, keys: 1000, want: 5},
			"largest":      {calls: 2, demands: 256, keys: 512, want: 2},
			"of same keys": {calls: 5, demands: 250, keys: 250, want: 2},
		} {
			db := newRows(latency)
			calls, n := make([][]driver.Demand, tt.calls), 0
			for i := range calls {
				for range tt.demands {
					d := thousandAnHour(fmt.Sprint("k", n%tt.keys), 1)
					d.Op = driver.OpForce
					calls[i] = append(calls[i], d)
					n++
				}
			}
			for i, o := range together(t, db.store(t), calls...) {
				if !o.allowed() {
					t.Errorf("%s: call %d: %v", name, i, o.err)
				}
			}
			if n := int(db.transactions.Load()) - 1; n != tt.want {
				t.Errorf("%s: %d transactions, want %d", name, n, tt.want)
			}
			if _, keys := db.bounds(); keys > 256 {
				t.Errorf("%s: a transaction had %d keys", name, keys)
			}
		}
	})
}

// TestGroupBytes: when the states that are to be written have 4 MiB, the next transaction decides
// the rest.
func TestGroupBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newRows(latency)
		calls := make([][]driver.Demand, 20)
		for i := range calls {
			calls[i] = []driver.Demand{{Key: fmt.Sprint("k", i), N: 1,
				Algorithm: large{algorithm.SlidingLog(driver.PerHour("calls", 10)), 1 << 20}}}
		}
		for i, o := range together(t, db.store(t), calls...) {
			if !o.allowed() {
				t.Errorf("call %d: %v", i, o.err)
			}
		}
		if n := db.transactions.Load() - 1; n != 5 {
			t.Errorf("%d transactions, want 5", n)
		}
	})
}

// large is an algorithm whose states have size bytes.
type large struct {
	driver.Algorithm
	size int
}

func (l large) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	next, keep, res := l.Algorithm.Step(state[:min(12, len(state))], now, d)
	return append(next, make([]byte, l.size-len(next))...), keep, res
}

// TestGroupNeighbours: what goes wrong with a key or a call is the error of the calls concerned.
func TestGroupNeighbours(t *testing.T) {
	boom := errors.New("boom")
	for _, method := range []string{"load", "save", "commit", "step", "corrupt"} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newRows(latency)
				db.failsOn = func(m string, keys []string) error {
					if m != method || !slices.ContainsFunc(keys, isBad) {
						return nil
					} else if m == "commit" {
						return fmt.Errorf("%w: %w", driver.ErrUnavailable, boom)
					}
					return boom
				}
				bad := thousandAnHour("bad", 1)
				switch method {
				case "step":
					bad.Algorithm = panics{bad.Algorithm}
				case "corrupt":
					db.states[bad.StoredKey()] = []byte("garbage")
				}
				peek := thousandAnHour("d", 1)
				peek.Op = driver.OpPeek
				calls := [][]driver.Demand{
					{peek}, {thousandAnHour("a", 1)}, {bad}, {thousandAnHour("b", 1)},
					{thousandAnHour("a", 1), bad}, {thousandAnHour("a", 1)},
					{thousandAnHour("b", 1), thousandAnHour("c", 1)}, {bad},
				}
				var mu sync.Mutex
				panicked := 0
				for i, o := range together(t, recovering{db.store(t), func() {
					mu.Lock()
					defer mu.Unlock()
					panicked++
				}}, calls...) {
					wrong := slices.Contains(calls[i], bad)
					if !wrong && !o.allowed() || wrong && method != "step" && o.err == nil {
						t.Errorf("call %d: %+v", i, o)
					}
					if errors.Is(o.err, driver.ErrOutcomeUnknown) {
						t.Errorf("call %d: %v", i, o.err)
					}
				}
				if method == "step" && panicked != 3 {
					t.Errorf("%d panics, want 3", panicked)
				}
				for key, want := range map[string]int64{"a": 998, "b": 998, "c": 999} {
					d := thousandAnHour(key, 1)
					d.Op = driver.OpPeek
					if res, err := db.store(t).Take(t.Context(), d); err != nil ||
						res.Remaining != want {
						t.Errorf("%s: %+v, %v", key, res, err)
					}
				}
			})
		})
	}
}

func isBad(key string) bool { return strings.HasPrefix(key, "bad") }

// panics is an algorithm whose steps panic.
type panics struct{ driver.Algorithm }

func (p panics) Step([]byte, int64, driver.Demand) ([]byte, time.Duration, driver.Result) {
	panic("in a step")
}

// recovering is a store whose panics are counted.
type recovering struct {
	driver.Store
	panicked func()
}

func (s recovering) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	defer func() {
		if recover() != nil {
			s.panicked()
		}
	}()
	return s.Store.TakeAll(ctx, ds, out)
}

// TestGroupOutcomeUnknown: after a commit without an answer the outcome is unknown of the calls
// that wrote. Those that have seen what may not be there get no answer, and others get theirs.
func TestGroupOutcomeUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newRows(latency)
		s := db.store(t)
		full := driver.Demand{Key: "full", N: 10, Algorithm: tenAnHour}
		if _, err := s.Take(t.Context(), full); err != nil {
			t.Fatal(err)
		}
		lost := errors.New("the connection broke")
		db.failsOn = func(method string, keys []string) error {
			if method == "commit" && slices.ContainsFunc(keys, isBad) {
				return lost
			}
			return nil
		}
		full.N = 1
		d := driver.Demand{Key: "bad", N: 10, Algorithm: tenAnHour}
		peek := thousandAnHour("other", 1)
		peek.Op = driver.OpPeek
		got := together(t, s, []driver.Demand{d}, []driver.Demand{d}, []driver.Demand{full},
			[]driver.Demand{thousandAnHour("other", 1)}, []driver.Demand{peek},
			[]driver.Demand{d, full})
		for i, want := range []error{driver.ErrOutcomeUnknown, driver.ErrUnavailable, nil,
			driver.ErrOutcomeUnknown, driver.ErrUnavailable, driver.ErrUnavailable} {
			if !errors.Is(got[i].err, want) || want == driver.ErrUnavailable &&
				errors.Is(got[i].err, driver.ErrOutcomeUnknown) {
				t.Errorf("call %d: %+v, want %v", i, got[i], want)
			}
		}
		if got[2].res[0].Allowed || got[2].res[0].RetryAfter == 0 {
			t.Errorf("a refusal: %+v", got[2])
		}
	})
}

// TestGroupLeft: a call whose caller has left before its transaction writes is not in it.
func TestGroupLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newRows(latency)
		s := db.store(t)
		first := thousandAnHour("k", 1)
		var wg sync.WaitGroup
		for range 2 { // the second one is in a group with the call below
			wg.Go(func() { _, _ = s.Take(t.Context(), first) })
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), latency+latency/4)
		defer cancel()
		if _, err := s.Take(ctx, thousandAnHour("k", 100)); !errors.Is(err,
			context.DeadlineExceeded) || errors.Is(err, driver.ErrOutcomeUnknown) {
			t.Error(err)
		}
		wg.Wait()
		if res, err := s.Take(t.Context(), first); err != nil || res.Remaining != 997 {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// TestGroupGoesOn: callers that give up cancel no transaction, which would close its connection.
func TestGroupGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newRows(latency)
		s := db.store(t)
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), latency/4)
			defer cancel()
			if _, err := s.Take(ctx, thousandAnHour("k", 1)); err == nil {
				t.Error("a call within a quarter of a transaction was decided")
			}
			time.Sleep(2 * latency)
		}
		if n := db.cut.Load(); n > 0 {
			t.Errorf("%d transactions were cancelled", n)
		}
	})
}

// TestGroupsBesideEachOther: with several Transactions, keys do not wait for a lock of another
// key, and calls with several keys in any order do not deadlock.
func TestGroupsBesideEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newRows(latency)
		s := db.storeWith(t, &transactional.Options{Transactions: 8, Timeout: time.Minute})
		var wg sync.WaitGroup
		flood(&wg, 64, 4*time.Second, func() {
			a, b := db.number()%20, db.number()%20
			ds := []driver.Demand{thousandAnHour(fmt.Sprint(a), 1)}
			if a != b {
				ds = append(ds, thousandAnHour(fmt.Sprint(b), 1))
			}
			for i := range ds {
				ds[i].Op = driver.OpForce
			}
			if err := s.TakeAll(t.Context(), ds, make([]driver.Result, len(ds))); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if n, _ := db.bounds(); n < 4 || n > 8 {
			t.Errorf("%d transactions at once", n)
		}
	})
}

// TestLockWait: a transaction waits for locks for 3/8 of the timeout, or for 1/8 if other calls can
// then be decided apart.
func TestLockWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []time.Duration
		db := newRows(latency)
		begin := func(context.Context) (transactional.Tx, error) {
			note := func(d time.Duration) { waits = append(waits, d) }
			return waitingTx{&rowsTx{rows: db}, note}, nil
		}
		s, err := transactional.New(begin, &transactional.Options{Timeout: 8 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		one, both := thousandAnHour("a", 1), []driver.Demand{thousandAnHour("a", 1),
			thousandAnHour("b", 1)}
		together(t, s, []driver.Demand{one}, []driver.Demand{one}) // a transaction for both
		together(t, s, both, []driver.Demand{one})
		want := []time.Duration{3 * time.Second, 3 * time.Second, 3 * time.Second, time.Second}
		if !slices.Equal(waits, want) {
			t.Errorf("%v, want %v", waits, want)
		}
		if d := transactional.LockWait(t.Context()); d != 0 {
			t.Errorf("of another context: %v", d)
		}
	})
}

// waitingTx tells how long its Load should wait for locks.
type waitingTx struct {
	*rowsTx
	waits func(time.Duration)
}

func (tx waitingTx) Load(ctx context.Context, keys []string) ([][]byte, int64, error) {
	tx.waits(transactional.LockWait(ctx))
	return tx.rowsTx.Load(ctx, keys)
}
