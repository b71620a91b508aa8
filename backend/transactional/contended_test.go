package transactional_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/transactional"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// rows is a database whose rows lock in the order of the callers, and whose transactions last for
// latency.
type rows struct {
	latency time.Duration
	deaf    bool                                     // to contexts
	failsOn func(method string, keys []string) error // is called by each, or nil
	ends    func()                                   // is called by Rollback, or nil
	begun   atomic.Int64                             // transactions in progress

	transactions, saved atomic.Int64
	cut                 atomic.Int64 // methods whose context ended
	numbers             atomic.Int64

	mu       sync.Mutex
	most     int64 // transactions at once
	mostKeys int   // of a transaction
	states   map[string][]byte
	locks    map[string]chan struct{} // a value is a lock that is free
	frozen   chan struct{}            // closed at thaw; nil: it is not frozen
}

func newRows(latency time.Duration) *rows {
	return &rows{latency: latency, states: make(map[string][]byte),
		locks: make(map[string]chan struct{})}
}

func (r *rows) store(t testing.TB) *transactional.Store {
	t.Helper()
	return r.storeWith(t, nil)
}

func (r *rows) storeWith(t testing.TB, opts *transactional.Options) *transactional.Store {
	t.Helper()
	s, err := transactional.New(func(context.Context) (transactional.Tx, error) {
		r.begin()
		if err := r.fail("begin", nil); err != nil {
			r.begun.Add(-1)
			return nil, err
		}
		return &rowsTx{rows: r}, nil
	}, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// begin counts a transaction.
func (r *rows) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.most = max(r.most, r.begun.Add(1))
	r.transactions.Add(1)
}

// bounds returns the most transactions at once, and the most keys of one.
func (r *rows) bounds() (transactions int64, keys int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most, r.mostKeys
}

func (r *rows) fail(method string, keys []string) error {
	if r.failsOn == nil {
		return nil
	}
	return r.failsOn(method, keys)
}

// number returns a number that looks random.
func (r *rows) number() int64 { return r.numbers.Add(1) * 7919 % 1009 }

// freeze stops the database from answering until thaw is called.
func (r *rows) freeze() (thaw func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	frozen := make(chan struct{})
	r.frozen = frozen
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.frozen = nil
		close(frozen)
	}
}

// wait waits until c is closed or receives a value.
func (r *rows) wait(ctx context.Context, c <-chan struct{}) error {
	if r.deaf {
		ctx = context.Background()
	}
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		r.cut.Add(1)
		return ctx.Err()
	}
}

// trip is a round trip that takes d.
func (r *rows) trip(ctx context.Context, d time.Duration) error {
	past := make(chan struct{})
	timer := time.AfterFunc(d, func() { close(past) })
	defer timer.Stop()
	if err := r.wait(ctx, past); err != nil {
		return err
	}
	r.mu.Lock()
	frozen := r.frozen
	r.mu.Unlock()
	if frozen == nil {
		return nil
	}
	return r.wait(ctx, frozen)
}

type rowsTx struct {
	rows   *rows
	keys   []string
	locked []chan struct{}
	saved  map[string][]byte
}

func (tx *rowsTx) Load(
	ctx context.Context, keys []string,
) (states [][]byte, now int64, err error) {
	r := tx.rows
	tx.keys = keys
	r.mu.Lock()
	r.mostKeys = max(r.mostKeys, len(keys))
	r.mu.Unlock()
	if err := r.fail("load", keys); err != nil {
		return nil, 0, err
	}
	for _, key := range keys {
		r.mu.Lock()
		if r.locks[key] == nil {
			r.locks[key] = make(chan struct{}, 1)
			r.locks[key] <- struct{}{}
		}
		lock := r.locks[key]
		r.mu.Unlock()
		if err := r.wait(ctx, lock); err != nil {
			return nil, 0, err
		}
		tx.locked = append(tx.locked, lock)
	}
	if err := r.trip(ctx, r.latency/2); err != nil {
		return nil, 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		states = append(states, r.states[key])
	}
	return states, time.Now().UnixMicro(), nil
}

func (tx *rowsTx) Save(_ context.Context, states []transactional.State) error {
	tx.saved = make(map[string][]byte)
	for _, s := range states {
		tx.saved[s.Key] = slices.Clone(s.Bytes)
	}
	tx.rows.saved.Add(1)
	return tx.rows.fail("save", tx.keys)
}

func (tx *rowsTx) Commit(ctx context.Context) error {
	r := tx.rows
	if err := r.fail("commit", tx.keys); err != nil {
		return err
	}
	if err := r.trip(ctx, r.latency/2); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, state := range tx.saved {
		r.states[key] = state
	}
	return nil
}

func (tx *rowsTx) Rollback() {
	if tx.rows.ends != nil {
		tx.rows.ends()
	}
	tx.rows.begun.Add(-1)
	for _, lock := range tx.locked {
		lock <- struct{}{}
	}
}

// flood has n callers ask, each again and again for as long as said.
func flood(wg *sync.WaitGroup, n int, long time.Duration, ask func()) {
	for range n {
		wg.Go(func() {
			for began := time.Now(); time.Since(began) < long; {
				ask()
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}

var tenAnHour = algorithm.SlidingLog(driver.PerHour("calls", 10))

// newBreaker returns a breaker and a limiter around it that admits in an outage.
func newBreaker(t *testing.T, s driver.Store) (*layer.Breaker, *ratelimit.Limiter) {
	t.Helper()
	b, err := layer.NewBreaker(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ratelimit.New(b, tenAnHour)
	if err != nil {
		t.Fatal(err)
	}
	return b, l.WithPolicy(ratelimit.FailOpen)
}

// TestContended: callers who flood their own key, in two processes, are admitted by no policy and
// open no breaker, whether they give up soon or not and whether the database notices. Others are
// decided meanwhile.
func TestContended(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprintf("deaf=%t", deaf), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testContended(t, deaf) })
		})
	}
}

func testContended(t *testing.T, deaf bool) {
	const long = 4 * time.Second
	db := newRows(20 * time.Millisecond)
	db.deaf = deaf
	var wg sync.WaitGroup
	var admitted, contended, unknown atomic.Int64
	breakers := make([]*layer.Breaker, 2)
	for i := range breakers {
		b, l := newBreaker(t, db.store(t))
		breakers[i] = b
		for caller := range 60 {
			within := []time.Duration{15, 40, 300, 5000}[caller%4] * time.Millisecond
			flood(&wg, 1, long, func() {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				res, err := l.Allow(ctx, "stranger")
				switch {
				case res.Allowed:
					admitted.Add(1)
				case errors.Is(err, driver.ErrContended):
					contended.Add(1)
				case err != nil && within > time.Second:
					t.Errorf("within %v: %v", within, err)
				}
				if errors.Is(err, driver.ErrOutcomeUnknown) {
					unknown.Add(1)
				}
			})
		}
		user := 0
		flood(&wg, 1, long, func() {
			user++
			res, err := l.Allow(t.Context(), fmt.Sprint("user", i, user))
			if err != nil || res.Source != ratelimit.SourceStore || !res.Allowed {
				t.Errorf("another key: %+v, %v", res, err)
			}
		})
	}
	wg.Wait()
	time.Sleep(time.Second) // until transactions without callers have ended
	if n := admitted.Load(); n > 10 || n+unknown.Load() < 10 {
		t.Errorf("%d calls were admitted, %d unknown, want 10", n, unknown.Load())
	}
	if contended.Load() == 0 {
		t.Error("no call was contended")
	}
	for _, b := range breakers {
		if s := b.Stats(); s.Opened > 0 || s.Failures > 0 {
			t.Errorf("the breaker: %+v", s)
		}
	}
	if n, _ := db.bounds(); n > 2 { // one in each process
		t.Errorf("%d transactions were in progress at once", n)
	}
}

// TestContendedSteadily: while more calls arrive than the database decides, it decides as many as
// it can. In the order of arrival, each would have its turn just before its time is over.
func TestContendedSteadily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRows(200 * time.Millisecond).store(t)
		d := driver.Demand{Key: "k", Algorithm: tenAnHour, N: 1, Op: driver.OpPeek}
		var wg sync.WaitGroup
		var decided atomic.Int64
		for range 60_000 {
			wg.Go(func() {
				if _, err := s.Take(t.Context(), d); err == nil {
					decided.Add(1)
				} else if driver.IsOutage(err) {
					t.Error(err)
				}
			})
			time.Sleep(50 * time.Microsecond)
		}
		wg.Wait()
		time.Sleep(time.Second) // until the last transaction has ended
		// A peek takes 100 ms, so 1,024 calls are decided in that time.
		if n := decided.Load(); n < 30_000 {
			t.Errorf("%d calls were decided in 3 s, want about 31,000", n)
		}
	})
}

// TestContendedTogether: callers who flood their own key keep nobody else from the keys that they
// claim together with it.
func TestContendedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newRows(20 * time.Millisecond)
		b, l := newBreaker(t, db.store(t))
		all, err := ratelimit.New(b, algorithm.SlidingLog(driver.PerHour("all", 1_000_000)))
		if err != nil {
			t.Fatal(err)
		}
		all = all.WithPolicy(ratelimit.FailOpen)
		claims := func(key string) []ratelimit.Claim {
			return []ratelimit.Claim{{Limiter: l, Key: key, N: 1}, {Limiter: all, Key: "all", N: 1}}
		}
		var wg sync.WaitGroup
		var admitted, decided atomic.Int64
		flood(&wg, 300, 10*time.Second, func() {
			if res, _ := l.Allow(t.Context(), "stranger"); res.Allowed {
				admitted.Add(1)
			}
		})
		flood(&wg, 10, 10*time.Second, func() {
			res, err := ratelimit.AllowAll(t.Context(), claims("stranger")...)
			if err == nil && res[ratelimit.Binding(res)].Allowed {
				admitted.Add(1)
			}
		})
		user := 0
		flood(&wg, 1, 10*time.Second, func() {
			user++
			res, err := ratelimit.AllowAll(t.Context(), claims(fmt.Sprint("user", user))...)
			if err != nil || res[0].Source != ratelimit.SourceStore || !res[0].Allowed {
				t.Errorf("another key: %+v, %v", res, err)
			}
			decided.Add(1)
		})
		wg.Wait()
		if admitted.Load() != 10 || b.Stats().Failures > 0 {
			t.Errorf("%d calls were admitted, %+v", admitted.Load(), b.Stats())
		}
		if n := decided.Load(); n < 100 {
			t.Errorf("another caller was decided %d times in 10 s", n)
		}
	})
}

// TestSeveralBusyKeys: a call with several keys is decided although others wait for each of them,
// also if these have several keys too.
func TestSeveralBusyKeys(t *testing.T) {
	for name, others := range map[string][]string{
		"one key each":  {"a", "b", "c"},
		"two keys each": {"ax", "bx", "cx", "ab", "bc"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRows(20 * time.Millisecond).store(t)
				take := func(keys string) error {
					var ds []driver.Demand
					for _, key := range keys {
						ds = append(ds, driver.Demand{Key: string(key), Algorithm: tenAnHour, N: 1,
							Op: driver.OpPeek})
					}
					return s.TakeAll(t.Context(), ds, make([]driver.Result, len(ds)))
				}
				var wg sync.WaitGroup
				var decided atomic.Int64
				for _, keys := range others {
					flood(&wg, 5, 10*time.Second, func() { _ = take(keys) })
				}
				flood(&wg, 1, 10*time.Second, func() {
					if take("abc") == nil {
						decided.Add(1)
					}
				})
				wg.Wait()
				if n := decided.Load(); n < 20 { // without order 1 or 2
					t.Errorf("%d calls were decided in 10 s", n)
				}
			})
		})
	}
}

// TestFrozenIsOutage: the error of a call that waits behind others of its key is an outage if the
// database answers none of them, and its answers end the outage.
func TestFrozenIsOutage(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			db := newRows(20 * time.Millisecond)
			db.deaf = deaf
			s := db.store(t)
			var wg sync.WaitGroup
			var late, answered atomic.Int64
			frozen := time.Now().Add(3 * time.Second)
			time.AfterFunc(3*time.Second, func() { time.AfterFunc(4*time.Second, db.freeze()) })
			flood(&wg, 300, 10*time.Second, func() {
				_, err := s.Take(t.Context(), driver.Demand{Key: "k", Algorithm: tenAnHour, N: 1})
				switch at := time.Since(frozen); {
				case at < 600*time.Millisecond:
				case at < 4*time.Second:
					if late.Add(1); !driver.IsOutage(err) {
						t.Errorf("after %v: %v, want an outage", at, err)
					}
				case at > 6*time.Second:
					if driver.IsOutage(err) {
						t.Errorf("%v after the thaw: %v", at-4*time.Second, err)
					} else if err == nil {
						answered.Add(1)
					}
				}
			})
			wg.Wait()
			time.Sleep(time.Second)
			if late.Load() < 300 || answered.Load() == 0 {
				t.Errorf("%d calls of a frozen database, %d answers after it",
					late.Load(), answered.Load())
			}
		})
	}
}

// TestFrozenRollback: a database that freezes after it has answered, and before the transaction has
// ended, is an outage too.
func TestFrozenRollback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newRows(20 * time.Millisecond)
		db.ends = func() { time.Sleep(970 * time.Millisecond) }
		var loads atomic.Int64
		db.failsOn = func(method string, _ []string) error {
			if method == "load" && loads.Add(1) > 1 {
				time.Sleep(3 * time.Second)
			}
			return nil
		}
		s := db.store(t)
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				d := driver.Demand{Key: "k", Algorithm: tenAnHour, N: 1}
				if _, err := s.Take(t.Context(), d); driver.IsOutage(err) != (i > 0) {
					t.Errorf("call %d: %v, want an outage of all but the first", i, err)
				}
			})
		}
		wg.Wait()
		time.Sleep(9 * time.Second) // until the transactions have ended
	})
}

// TestHungTransaction: a transaction that hangs, such as on a broken connection, keeps its key from
// others for no longer than the timeout.
func TestHungTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, hang := newRows(time.Millisecond), make(chan struct{})
		var loads atomic.Int64
		db.failsOn = func(method string, _ []string) error {
			if method == "load" && loads.Add(1) == 1 {
				<-hang
			}
			return nil
		}
		s := db.store(t)
		d := driver.Demand{Key: "k", Algorithm: tenAnHour, N: 1}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := s.Take(t.Context(), d); !driver.IsOutage(err) {
					t.Errorf("behind a transaction that hangs: %v", err)
				}
			})
		}
		wg.Wait()
		if res, err := s.Take(t.Context(), d); err != nil || res.Remaining != 9 {
			t.Errorf("%+v, %v", res, err)
		}
		close(hang)
		synctest.Wait()
		if res, err := s.Take(t.Context(), d); err != nil || res.Remaining != 8 {
			t.Errorf("after the transactions have ended: %+v, %v", res, err)
		}
	})
}

// TestBusyDatabase: by an error that wraps ErrContended an author says that the lock of a key is
// not free in time. It is no outage, and says that nothing was recorded.
func TestBusyDatabase(t *testing.T) {
	busy := fmt.Errorf("%w: lock timeout", driver.ErrContended)
	for _, method := range []string{"begin", "load", "commit"} {
		db := newRows(0)
		db.failsOn = func(m string, _ []string) error {
			if m == method {
				return busy
			}
			return nil
		}
		_, err := db.store(t).Take(t.Context(), driver.Demand{Key: "k", Algorithm: tenAnHour, N: 1})
		if !errors.Is(err, busy) || driver.IsOutage(err) ||
			errors.Is(err, driver.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", method, err)
		}
	}
}
