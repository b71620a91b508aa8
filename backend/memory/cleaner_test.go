package memorystore

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

const month = 31 * 24 * time.Hour

// during returns a take of one unit that counts during a time.
func during(key string, d time.Duration) driver.Demand {
	limit := driver.Limit{Name: d.String(), Max: 1000, Window: d}
	return driver.Demand{Key: key, Algorithm: algorithm.SlidingLog(limit), N: 1}
}

// TestCleanerSleeps: a store with few expiries wakes its cleaner a few times for each, and one
// without states never.
func TestCleanerSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, nil)
		woken := func(wait time.Duration) int64 {
			before := s.alarm.woken.Load()
			time.Sleep(wait)
			synctest.Wait()
			return s.alarm.woken.Load() - before
		}
		if n := woken(month); n != 0 {
			t.Errorf("woken %d times while the store was empty", n)
		}
		must(t, s, during("month", month), true)
		must(t, s, during("minute", time.Minute), true)
		if n := woken(month - time.Second); n > 20 {
			t.Errorf("woken %d times for two expiries", n)
		}
		if n := s.Stats().Keys; n != 1 {
			t.Errorf("%d states, want the one of a month", n)
		}
		if n := woken(2 * time.Second); n > 1 || s.Stats().Keys != 0 {
			t.Errorf("woken %d times, %d states are left", n, s.Stats().Keys)
		}
		if n := woken(month); n != 0 {
			t.Errorf("woken %d times after the last state was deleted", n)
		}
		const calls = 60 * 60
		before := s.alarm.woken.Load()
		for range calls { // an hour on one key
			must(t, s, during("busy", time.Minute), true)
			time.Sleep(time.Second)
		}
		if n := s.alarm.woken.Load() - before; n > 10*60 {
			t.Errorf("woken %d times in %d calls on a state that is kept for a minute", n, calls)
		}
	})
}

// TestCleanerIsInTime: each state is deleted within a second after its expiry, in whatever order
// they expire and however many are added at once, and not before.
func TestCleanerIsInTime(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 11))
			s := open(t, nil)
			var mu sync.Mutex
			var expires []time.Time
			for i := range 200 {
				time.Sleep(time.Duration(r.Int64N(int64(time.Microsecond) << r.IntN(32))))
				var calls sync.WaitGroup
				for j := range 1 + r.IntN(8)*r.IntN(2) {
					keep := time.Duration(r.Int64N(int64(time.Millisecond) << r.IntN(32)))
					keep += time.Millisecond
					calls.Go(func() {
						d := during(strconv.Itoa(1000*i+j), keep.Truncate(time.Microsecond))
						must(t, s, d, true)
						mu.Lock()
						defer mu.Unlock()
						expires = append(expires, time.Now().Add(keep))
					})
				}
				calls.Wait()
				synctest.Wait()
				if r.IntN(2) == 0 { // a second after an expiry, if that is to come
					at := expires[r.IntN(len(expires))]
					time.Sleep(time.Until(at) + cleanInterval + time.Microsecond)
					synctest.Wait()
				}
				least, most := 0, 0
				for _, at := range expires {
					if at.After(time.Now()) {
						least++
					}
					if at.After(time.Now().Add(-cleanInterval - time.Microsecond)) {
						most++
					}
				}
				if n := s.Stats().Keys; n < least || n > most {
					t.Fatalf("seed %d: %d states, want %d to %d", seed, n, least, most)
				}
			}
		})
	}
}

// TestCleanerFollowsClock: under a clock that jumps, an expired state is deleted within a second of
// the process.
func TestCleanerFollowsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		s := open(t, &Options{Now: c.now})
		for range 3 {
			must(t, s, during("k", month), true)
			time.Sleep(3 * time.Second)
			if n := s.Stats().Keys; n != 1 {
				t.Errorf("%d states before the expiry", n)
			}
			c.advance(month)
			time.Sleep(cleanInterval + time.Millisecond)
			synctest.Wait()
			if n := s.Stats().Keys; n != 0 {
				t.Errorf("%d states after the expiry", n)
			}
		}
	})
}
