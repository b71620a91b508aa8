package layer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

// TestDebt leads a debt through its states.
func TestDebt(t *testing.T) {
	five := algorithm.SlidingLog(driver.Limit{Name: "five", Max: 5, Window: time.Minute})
	on := func(op driver.Op, n int64) driver.Demand {
		return driver.Demand{Key: "k", Algorithm: five, Op: op, N: n}
	}
	var l *ledger
	take := func(n int64) {
		t.Helper()
		out := make([]driver.Result, 1)
		err := l.take([]driver.Demand{on(driver.OpTake, n)}, out, nil)
		if err != nil || !out[0].Allowed {
			t.Fatalf("take of %d: %+v, %v", n, out[0], err)
		}
	}
	begin := func() *attempt {
		t.Helper()
		a, isNew := l.begin(on(driver.OpTake, 1))
		if a == nil || !isNew {
			t.Fatalf("no new attempt: %+v", a)
		}
		return a
	}
	unknownTimes := func(n int) {
		for range n {
			l.finish(begin(), unknown, driver.ErrOutcomeUnknown)
		}
	}
	for _, tt := range []struct {
		name string
		do   func()
		want int64 // units owed at the end
	}{
		{"peeked", func() {
			d := []driver.Demand{on(driver.OpPeek, 2)}
			if err := l.take(d, make([]driver.Result, 1), nil); err != nil {
				t.Fatal(err)
			}
		}, 0},
		{"admitted twice", func() { take(2); take(1) }, 3},
		{"recorded", func() { take(2); l.finish(begin(), settled, nil) }, 0},
		{"not sent", func() { take(2); l.finish(begin(), notSent, driver.ErrUnavailable) }, 2},
		{"unknown twice", func() { take(2); unknownTimes(2) }, 2},
		{"unknown three times", func() { take(2); unknownTimes(3) }, 0},
		{"admitted while being recorded", func() {
			take(2)
			a := begin()
			take(1)
			l.finish(a, settled, nil)
		}, 1},
		{"one attempt at a time", func() {
			take(2)
			a := begin()
			if b, isNew := l.begin(on(driver.OpTake, 1)); b != a || isNew {
				t.Errorf("another attempt: %+v", b)
			}
			if more := l.beginSome(9); len(more) != 0 {
				t.Errorf("%d other attempts", len(more))
			}
		}, 2},
		{"reset", func() { take(2); l.reset(on(driver.OpReset, 0)) }, 0},
		{"reset and admitted while being recorded", func() {
			take(2)
			a := begin()
			l.reset(on(driver.OpReset, 0))
			take(1)
			l.finish(a, settled, nil)
		}, 1},
		{"expired", func() { take(2); time.Sleep(time.Minute); l.expire() }, 0},
		{"not expired", func() { take(2); time.Sleep(time.Minute - 1000); l.expire() }, 2},
		{"expired while being recorded", func() {
			take(2)
			begin()
			time.Sleep(time.Minute)
			l.expire()
		}, 2},
		{"nothing counts any more", func() {
			take(2)
			time.Sleep(time.Minute)
			if a := begin(); a.force.N != 0 || a.units != 2 {
				t.Errorf("%d of %d units are to be recorded", a.force.N, a.units)
			}
		}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				local, err := memorystore.New(nil)
				if err != nil {
					t.Fatal(err)
				}
				defer local.Close()
				l = newLedger(local, 1, 9)
				tt.do()
				var owed int64
				for _, o := range l.debts {
					owed += o.units
				}
				if owed != tt.want {
					t.Errorf("%d units are owed, want %d", owed, tt.want)
				}
				n, bytes := l.pending.Load(), l.keyBytes
				if n != int64(len(l.debts)) || bytes != len("k")*len(l.debts) {
					t.Errorf("%d debts, %d pending, with %d bytes of keys", len(l.debts), n, bytes)
				}
			})
		})
	}
}

// stumbling is an algorithm whose Step panics once when armed.
type stumbling struct {
	driver.Algorithm
	armed *bool
}

func (stumbling) Name() string { return "stumbling" }

func (s stumbling) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	if *s.armed {
		*s.armed = false
		panic("stumbled")
	}
	return s.Algorithm.Step(state, now, d)
}

// TestPanicBeforeAttempt: if the algorithm panics when an attempt begins, the next one can begin.
func TestPanicBeforeAttempt(t *testing.T) {
	local, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	l := newLedger(local, 1, 1)
	a := stumbling{algorithm.SlidingLog(driver.PerMinute("minute", 5)), new(bool)}
	d := driver.Demand{Key: "k", Algorithm: a, N: 2}
	if err := l.take([]driver.Demand{d}, make([]driver.Result, 1), nil); err != nil {
		t.Fatal(err)
	}
	*a.armed = true
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		l.begin(d)
	}()
	if a, isNew := l.begin(d); !isNew || a.force.N != 2 {
		t.Errorf("%+v, new %v; want a new attempt of 2 units", a, isNew)
	}
}

// TestKeyBytesOfHolds: the bytes of keys that count for pending holds are given back with the last.
func TestKeyBytesOfHolds(t *testing.T) {
	local, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	l := newLedger(local, 1, 9)
	d := driver.Demand{Key: "key", Op: driver.OpHold, N: 1, ID: 7,
		Algorithm: algorithm.Budget(algorithm.SlidingLog(driver.PerMinute("budget", 9)))}
	ds, out := []driver.Demand{d}, make([]driver.Result, 1)
	if err := l.take(ds, out, driver.ErrUnavailable); err != nil {
		t.Fatal(err)
	}
	if l.held.Load() != 1 || l.keyBytes != 2*len(d.Key) {
		t.Fatalf("%d holds with %d bytes of keys", l.held.Load(), l.keyBytes)
	}
	d.Op = driver.OpReset
	if l.reset(d); l.held.Load() != 0 || l.keyBytes != 0 {
		t.Errorf("%d holds with %d bytes of keys after a reset", l.held.Load(), l.keyBytes)
	}
}

// TestTellingHolds: a hold that is settled while the store is being told of it is told at once
// again, and the ledger decides nothing about a hold that the store has been told of.
func TestTellingHolds(t *testing.T) {
	local, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	l := newLedger(local, 1, 9)
	ask := func(op driver.Op, n int64, cause error) error {
		d := driver.Demand{Key: "key", Op: op, N: n, ID: 7,
			Algorithm: algorithm.InFlight("calls", 9)}
		return l.take([]driver.Demand{d}, make([]driver.Result, 1), cause)
	}
	if err := ask(driver.OpHold, 1, driver.ErrUnavailable); err != nil {
		t.Fatal(err)
	}
	h := l.takeDue()[0]
	placing, _, _ := l.beginHold(h)
	if err := ask(driver.OpSettle, 0, errPendingHold); err != nil {
		t.Fatal(err)
	}
	answer := driver.Result{Allowed: true, Units: 1}
	stored, again := l.finishHold(h, placing, answer, settled)
	if placing.Op != driver.OpHold || !stored || !again {
		t.Errorf("%v: stored %v, again %v", placing.Op, stored, again)
	}
	settling, _, _ := l.beginHold(h)
	_, again = l.finishHold(h, settling, answer, settled)
	if again || settling.Op != driver.OpSettle || l.held.Load() != 0 {
		t.Errorf("%v: again %v, %d holds", settling.Op, again, l.held.Load())
	}
	if err := ask(driver.OpSettle, 0, errPendingHold); !errors.Is(err, errTold) {
		t.Errorf("got %v, want errTold", err)
	}
}
