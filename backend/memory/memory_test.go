package memorystore

import (
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// clock is a clock that tests set.
type clock struct{ µs atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.µs.Store(1_790_000_000_000_000)
	return c
}

func (c *clock) now() int64              { return c.µs.Load() }
func (c *clock) advance(d time.Duration) { c.µs.Add(d.Microseconds()) }

func open(t testing.TB, opts *Options) *Store {
	t.Helper()
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

var perMinute = algorithm.SlidingLog(driver.PerMinute("minute", 3))

func demand(op driver.Op, key string, n int64) driver.Demand {
	return driver.Demand{Key: key, Algorithm: perMinute, Op: op, N: n}
}

// must decides d and fails the test if Allowed is not want.
func must(t *testing.T, s *Store, d driver.Demand, want bool) driver.Result {
	t.Helper()
	res, err := s.Take(t.Context(), d)
	if err != nil {
		t.Fatalf("%v: %v", d.Op, err)
	}
	if res.Allowed != want {
		t.Fatalf("%v: got %+v, want allowed %v", d.Op, res, want)
	}
	return res
}

func TestOptions(t *testing.T) {
	if s, err := New(&Options{MaxKeys: -1}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("got %v, %v", s, err)
	}
}

func TestRefuseWhenFull(t *testing.T) {
	c := newClock()
	s := open(t, &Options{MaxKeys: 10, Now: c.now})
	for i := range 10 {
		must(t, s, demand(driver.OpTake, strconv.Itoa(i), 2), true)
	}
	held := func(op driver.Op, key string) driver.Demand {
		d := demand(op, key, 1)
		d.Algorithm, d.ID = algorithm.Budget(d.Algorithm), 1
		return d
	}
	for _, d := range []driver.Demand{demand(driver.OpTake, "new", 1),
		demand(driver.OpPeek, "new", 1), demand(driver.OpForce, "new", 1),
		held(driver.OpHold, "new"), held(driver.OpHold, "0")} {
		if _, err := s.Take(t.Context(), d); !errors.Is(err, driver.ErrCapacity) {
			t.Errorf("%v of a new key: %v, want ErrCapacity", d.Op, err)
		}
	}
	for _, d := range []driver.Demand{held(driver.OpSettle, "new"),
		demand(driver.OpReset, "new", 1)} {
		must(t, s, d, true)
	}
	ds := []driver.Demand{demand(driver.OpTake, "0", 1), demand(driver.OpTake, "new", 1)}
	if err := s.TakeAll(t.Context(), ds,
		make([]driver.Result, 2)); !errors.Is(err, driver.ErrCapacity) {
		t.Errorf("TakeAll with a new key: %v, want ErrCapacity", err)
	}
	for i := range 10 { // live keys keep their history, and the TakeAll left no trace
		must(t, s, demand(driver.OpTake, strconv.Itoa(i), 2), false)
		must(t, s, demand(driver.OpTake, strconv.Itoa(i), 1), true)
	}

	c.advance(61 * time.Second)
	for i := range 10 { // expired keys go first
		must(t, s, demand(driver.OpTake, "fresh"+strconv.Itoa(i), 3), true)
	}
	if s.Stats().Keys != 10 {
		t.Errorf("%d states, want 10", s.Stats().Keys)
	}
	must(t, s, demand(driver.OpReset, "fresh0", 0), true)
	must(t, s, demand(driver.OpTake, "another", 1), true)
}

// TestFlood sends new keys to a full store from many goroutines: the bound holds at every moment,
// and keys that count keep their states.
func TestFlood(t *testing.T) {
	const maxKeys, workers, each = 1000, 16, 5000
	c := newClock()
	s := open(t, &Options{MaxKeys: maxKeys, Now: c.now})
	must(t, s, demand(driver.OpTake, "live", 3), true)
	var wg sync.WaitGroup
	var admitted atomic.Int64
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				res, err := s.Take(t.Context(), demand(driver.OpTake, fmt.Sprint(w, "-", i), 1))
				switch {
				case err == nil && res.Allowed:
					admitted.Add(1)
				case !errors.Is(err, driver.ErrCapacity):
					t.Errorf("%+v, %v", res, err)
				}
				if n := s.Stats().Keys; n > maxKeys+workers {
					t.Errorf("%d states and reservations", n)
				}
			}
		})
	}
	wg.Wait()
	if admitted.Load() != maxKeys-1 || s.Stats().Keys != maxKeys {
		t.Errorf("%d new keys admitted and %d states, want %d and %d", admitted.Load(),
			s.Stats().Keys, maxKeys-1, maxKeys)
	}
	must(t, s, demand(driver.OpTake, "live", 1), false)
}

func TestCleaner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, nil)
		for i := range 2000 {
			must(t, s, demand(driver.OpTake, strconv.Itoa(i), 1), true)
		}
		time.Sleep(30 * time.Second)
		for i := range 1000 {
			must(t, s, demand(driver.OpTake, strconv.Itoa(i), 1), true)
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if s.Stats().Keys != 1000 {
			t.Errorf("%d states, want those 1000 that still count", s.Stats().Keys)
		}
		for i := range 1000 {
			must(t, s, demand(driver.OpTake, strconv.Itoa(i), 3), false)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.Stats().Keys != 0 {
			t.Errorf("%d states, want none", s.Stats().Keys)
		}
		must(t, s, demand(driver.OpTake, "0", 3), true)
	}) // which fails if Close leaves a goroutine
}

// TestWindowReduced: after the Window was reduced, a state is kept for the new one, from the next
// admission on.
func TestWindowReduced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, nil)
		for i, with := range []func(driver.Limit) driver.Algorithm{
			func(l driver.Limit) driver.Algorithm { return algorithm.SlidingLog(l) },
			func(l driver.Limit) driver.Algorithm { return algorithm.FixedWindow(l) },
			func(l driver.Limit) driver.Algorithm {
				return algorithm.SlidingWindowCounter(l)
			},
			func(l driver.Limit) driver.Algorithm {
				return algorithm.Blocking(l.Name, l.Window)
			},
		} {
			for _, window := range []time.Duration{30 * 24 * time.Hour, time.Second} {
				limit := driver.Limit{Name: "reduced", Max: 100, Window: window}
				must(t, s, driver.Demand{Key: strconv.Itoa(i), Algorithm: with(limit),
					Op: driver.OpForce, N: 1}, true)
			}
		}
		time.Sleep(4 * time.Second) // and until the cleaner has run
		synctest.Wait()
		if n := s.Stats().Keys; n != 0 {
			t.Errorf("%d states after two of the new windows, want none", n)
		}
	})
}

// TestKnownAlgorithm: invalid demands fail even if the store has just decided under the same
// algorithm.
func TestKnownAlgorithm(t *testing.T) {
	s := open(t, nil)
	for i := range 2000 { // so that each shard has some
		must(t, s, demand(driver.OpTake, strconv.Itoa(i), 1), true)
	}
	for _, tt := range []struct {
		d    driver.Demand
		want error
	}{
		{demand(driver.OpTake, "", 1), driver.ErrInvalid},
		{demand(driver.OpTake, "7", 0), driver.ErrInvalid},
		{demand(driver.OpPeek, "7", -1), driver.ErrInvalid},
		{demand(200, "7", 1), driver.ErrInvalid},
		{demand(driver.OpForce, "7", driver.MaxUnits+1), driver.ErrInvalid},
		{demand(driver.OpTake, "7", 4), driver.ErrExceedsLimit},
		{demand(driver.OpPeek, "7", 4), driver.ErrExceedsLimit},
		{driver.Demand{Key: "7", N: 1}, driver.ErrInvalid},
	} {
		if _, err := s.Take(t.Context(), tt.d); !errors.Is(err, tt.want) {
			t.Errorf("%v of %d: %v, want %v", tt.d.Op, tt.d.N, err, tt.want)
		}
	}
	must(t, s, demand(driver.OpTake, "7", 2), true)

	// The same limit under another Max is the same history.
	more := demand(driver.OpTake, "7", 2)
	more.Algorithm = algorithm.SlidingLog(driver.PerMinute("minute", 5))
	must(t, s, more, true)
	must(t, s, demand(driver.OpTake, "7", 1), false)
}

func TestClosed(t *testing.T) {
	s := open(t, nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take(t.Context(),
		demand(driver.OpTake, "k", 1)); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Take: %v", err)
	}
	ds := []driver.Demand{demand(driver.OpTake, "k", 1)}
	if err := s.TakeAll(t.Context(), ds,
		make([]driver.Result, 1)); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("TakeAll: %v", err)
	}
}

func TestWaitInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := ratelimit.New(open(t, nil), perMinute)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for range 7 {
			if _, err := l.Wait(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		if got := time.Since(start); got != 2*time.Minute {
			t.Errorf("7 units at 3 a minute took %v, want 2m", got)
		}
	})
}

// TestCleanClockSetBack sets the clock back and takes a unit after the cleaner has read the clock
// and before it locks the shard: the new state is kept.
func TestCleanClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const early, late = int64(1_000_000_000), int64(2_000_000_000)
		now, armed := late, false
		var mu sync.Mutex
		var s *Store
		read := func() (stamp int64, first bool) {
			mu.Lock()
			defer mu.Unlock()
			stamp, first = now, armed
			if armed = false; first {
				now = early
			}
			return stamp, first
		}
		s = open(t, &Options{Now: func() int64 {
			stamp, first := read()
			if first { // by the cleaner, the only caller then
				if _, err := s.Take(t.Context(), demand(driver.OpTake, "k", 1)); err != nil {
					t.Error(err)
				}
			}
			return stamp
		}})
		// With a state the cleaner looks.
		must(t, s, demand(driver.OpTake, "another", 1), true)
		mu.Lock()
		armed = true
		mu.Unlock()
		time.Sleep(2 * cleanInterval)
		synctest.Wait()
		if n := s.Stats().Keys; n != 2 {
			t.Errorf("%d states, want also the one that was taken after the clock was set back", n)
		}
	})
}

// TestTakeAllKeepsWhatItFound: a TakeAll that makes room for a new key does not remove the expired
// state of another of its keys in the same shard, on which it is about to record.
func TestTakeAllKeepsWhatItFound(t *testing.T) {
	c := newClock()
	s := open(t, &Options{MaxKeys: 2, Now: c.now})
	shardOf := func(key string) *shard { return s.shard(maphash.String(s.seed, key)) }
	unknown := "unknown"
	for i := 0; shardOf(unknown) != shardOf("known"); i++ {
		unknown = "unknown" + strconv.Itoa(i)
	}
	for range 50 {
		must(t, s, demand(driver.OpTake, "known", 3), true)
		must(t, s, demand(driver.OpTake, "other", 3), true)
		c.advance(61 * time.Second)
		out := make([]driver.Result, 2)
		ds := []driver.Demand{demand(driver.OpTake, "known", 3),
			demand(driver.OpTake, unknown, 3)}
		if err := s.TakeAll(t.Context(), ds, out); err != nil || !out[0].Allowed ||
			!out[1].Allowed {
			t.Fatalf("%+v, %v", out, err)
		}
		must(t, s, demand(driver.OpPeek, "known", 1), false)
		must(t, s, demand(driver.OpPeek, unknown, 1), false)
		if n := s.Stats().Keys; n > 2 {
			t.Fatalf("%d states", n)
		}
		c.advance(61 * time.Second)
	}
}
