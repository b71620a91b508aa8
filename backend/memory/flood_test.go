package memorystore

import (
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
	"github.com/truewindow/ratelimit/internal/testkit/heap"
)

// TestFloodOfMillions sends half a million distinct keys, ten million in a full run, to a store of
// 100,000. The store takes no more memory than with 100,000 keys, keys that count keep their
// history, and no key is admitted more than its limit.
func TestFloodOfMillions(t *testing.T) {
	const maxKeys, live, windows, again = 100_000, 1000, 2, 997
	flood := depth.Of(500_000, 10_000_000) / windows
	c := newClock()
	empty := heap.Live()
	s := open(t, &Options{MaxKeys: maxKeys, Now: c.now})
	var filled, flooded int64
	for window := range windows {
		key := func(i int) string { return strconv.Itoa(window*flood + i) }
		for i := range live {
			must(t, s, demand(driver.OpTake, "live"+strconv.Itoa(i), 2), true)
		}
		admitted := throw(t, s, maxKeys-live, key)
		if window == 0 {
			filled = heap.Live() - empty
		}
		rest := throw(t, s, flood-(maxKeys-live),
			func(i int) string { return key(maxKeys - live + i) })
		flooded = max(flooded, heap.Live()-empty)

		if admitted != maxKeys-live || rest != 0 {
			t.Errorf("admitted %d keys, and %d when it was full; want %d and none",
				admitted, rest, maxKeys-live)
		}
		for i := 0; i < flood; i += again {
			res, err := s.Take(t.Context(), demand(driver.OpTake, key(i), 1))
			if res.Allowed || err != nil && !errors.Is(err, driver.ErrCapacity) {
				t.Fatalf("beyond the limit: %+v, %v", res, err)
			}
		}
		for i := range live {
			must(t, s, demand(driver.OpTake, "live"+strconv.Itoa(i), 2), false)
			must(t, s, demand(driver.OpTake, "live"+strconv.Itoa(i), 1), true)
		}
		c.advance(61 * time.Second)
	}
	t.Logf("%d keys in %d windows: %d MiB with %d states, at most %d MiB after the flood; %+v",
		windows*flood, windows, filled>>20, maxKeys, flooded>>20, s.Stats())
	if most := filled + filled/8 + 1<<20; flooded > most {
		t.Errorf("%d bytes after the flood, %d before: more than %d", flooded, filled, most)
	}
	if st := s.Stats(); st.Keys != maxKeys || st.Refused == 0 {
		t.Errorf("%+v", st)
	}
}

// throw takes all of the limit of n keys, each once, from several goroutines, and returns how many
// were admitted.
func throw(t *testing.T, s *Store, n int, key func(i int) string) int64 {
	t.Helper()
	var admitted atomic.Int64
	var wg sync.WaitGroup
	workers := 2 * runtime.GOMAXPROCS(0)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				res, err := s.Take(t.Context(), demand(driver.OpTake, key(i), 3))
				switch {
				case err == nil && res.Allowed:
					admitted.Add(1)
				case err != nil && !errors.Is(err, driver.ErrCapacity):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return admitted.Load()
}

// TestBurstGivesBack: keys that once had many records, and then take one unit in each window, free
// the memory of those records.
func TestBurstGivesBack(t *testing.T) {
	const keys, burst = 20, 10_000
	var now atomic.Int64
	now.Store(time.Now().UnixMicro())
	empty := heap.Live()
	s := open(t, &Options{Now: now.Load})
	limit := algorithm.SlidingLog(driver.PerMinute("minute", burst))
	take := func(i int) {
		must(t, s, driver.Demand{Key: strconv.Itoa(i), Algorithm: limit, N: 1}, true)
	}
	for range burst {
		now.Add(1)
		for i := range keys {
			take(i)
		}
	}
	full := heap.Live()
	for range 2 {
		now.Add(time.Minute.Microseconds())
		for i := range keys {
			take(i)
		}
	}
	idle := heap.Live()
	if held := idle - empty; held > 1<<19 {
		t.Errorf("%d bytes are held for %d keys", held, keys)
	}
	if given := full - idle; given < keys*burst*11 {
		t.Errorf("%d bytes were freed by %d keys with %d records each", given, keys, burst)
	}
	if s.Stats().Keys != keys {
		t.Errorf("%d states", s.Stats().Keys)
	}
}

// TestStats: calls that find no room are counted.
func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, &Options{MaxKeys: 2})
		want := func(want Stats) {
			t.Helper()
			if got := s.Stats(); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		must(t, s, demand(driver.OpTake, "a", 1), true)
		must(t, s, demand(driver.OpTake, "b", 1), true)
		want(Stats{Keys: 2, MaxKeys: 2})
		for _, op := range []driver.Op{driver.OpTake, driver.OpPeek,
			driver.OpForce} {
			_, _ = s.Take(t.Context(), demand(op, "c", 1))
		}
		ds := []driver.Demand{demand(driver.OpTake, "a", 1),
			demand(driver.OpTake, "c", 1), demand(driver.OpTake, "d", 1)}
		_ = s.TakeAll(t.Context(), ds, make([]driver.Result, len(ds)))
		want(Stats{Keys: 2, MaxKeys: 2, Refused: 4})
		time.Sleep(62 * time.Second)
		synctest.Wait()
		want(Stats{MaxKeys: 2, Refused: 4})
	})
}
