package layer_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
	"github.com/truewindow/ratelimit/layer"
)

// TestLeasedMaxKeys: the number of states with leases is bounded; one that is idle makes room.
func TestLeasedMaxKeys(t *testing.T) {
	for _, a := range []driver.Ahead{manyAMinute, manyAnHour} {
		t.Run(a.Limit().Name, func(t *testing.T) { testLeasedMaxKeys(t, a) })
	}
}

func testLeasedMaxKeys(t *testing.T, a driver.Ahead) {
	synctest.Test(t, func(t *testing.T) {
		s := newLeased(t, newOutage(t), &layer.LeasedOptions{MaxKeys: 2})
		keep := func(keys ...string) {
			for range 100 {
				time.Sleep(time.Millisecond)
				for _, key := range keys {
					take(t, s, of(key, a, 1))
				}
				synctest.Wait()
			}
		}
		for range 30 { // more than a lead, in case two keys share a counter
			keep("a", "b", "c")
		}
		if _, left := s.LeaseOf("c", a); left > 0 || s.Stats().Keys != 2 {
			t.Errorf("%+v", s.Stats())
		}
		for range 700 { // more than a minute
			keep("a")
		}
		warm(t, s, of("c", a, 1))
		if _, left := s.LeaseOf("b", a); left > 0 || s.Stats().Keys != 2 {
			t.Errorf("%+v", s.Stats())
		}
	})
}

// TestLeasedIdle: what was lost before a key was at rest does not keep it from leases for longer
// than a Window and an eighth since then.
func TestLeasedIdle(t *testing.T) {
	for rest, most := range map[time.Duration]int{3 * time.Minute: 1000, 40 * time.Second: 29_000} {
		if rest < time.Minute && !depth.Full {
			continue
		}
		t.Run(rest.String(), func(t *testing.T) { testLeasedIdle(t, rest, most) })
	}
}

func testLeasedIdle(t *testing.T, rest time.Duration, most int) {
	synctest.Test(t, func(t *testing.T) {
		s, d := newLeased(t, newOutage(t), nil), of("k", roomy, 1)
		units := int64(0)
		for i := 0; i < 60_000 || units < 300; i++ {
			time.Sleep(time.Millisecond)
			take(t, s, d)
			synctest.Wait()
			units, _ = s.LeaseOf("k", roomy)
		}
		time.Sleep(rest)
		first := 0 // take from a lease
		for i := 0; first == 0 && i < 60_000; i++ {
			time.Sleep(time.Millisecond)
			before := s.Stats().Admitted
			take(t, s, d)
			synctest.Wait()
			if s.Stats().Admitted > before {
				first = i
			}
		}
		if first == 0 || first > most {
			t.Errorf("the first take from a lease is number %d: %+v", first, s.Stats())
		}
	})
}

var manyAnHour = algorithm.SlidingLog(driver.PerHour("hour", 3_600_000))

// TestLeasedTwoLimits: a key is hot for two limits with other leads, long after the start.
func TestLeasedTwoLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLeased(t, newOutage(t), nil)
		time.Sleep(time.Hour + 300*time.Millisecond)
		for range 20_000 {
			time.Sleep(time.Millisecond)
			var out [2]driver.Result
			err := s.TakeAll(t.Context(),
				[]driver.Demand{of("k", manyAMinute, 1), of("k", manyAnHour, 1)}, out[:])
			if err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if got := s.Stats(); got.Admitted < 30_000 {
			t.Errorf("leases admit %d of 40,000: %+v", got.Admitted, got)
		}
	})
}

// TestLeasedColdKeys: many keys that are seldom asked for do not keep a hot one from leases.
func TestLeasedColdKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLeased(t, newOutage(t), nil)
		r := rand.New(rand.NewPCG(1, 2))
		leased := 0
		calls := depth.Of(40_000, 400_000)
		for i := range calls {
			time.Sleep(20 * time.Microsecond)
			take(t, s, of(fmt.Sprint(r.IntN(100_000)), manyAnHour, 1))
			if i > calls/2 && i%50 == 0 {
				if take(t, s, of("hot", manyAnHour, 1)).Source == driver.SourceLease {
					leased++
				}
			}
		}
		synctest.Wait()
		if got := s.Stats(); leased < calls/500 || got.Keys > 100 {
			t.Errorf("leases decide %d takes of %d of the hot key: %+v", leased, calls/100, got)
		}
	})
}

// TestLeasedHotKeys: all keys become hot that are asked for often, whichever others are.
func TestLeasedHotKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLeased(t, newOutage(t), nil)
		for range 400 {
			time.Sleep(20 * time.Millisecond)
			for key := range 300 {
				take(t, s, of(fmt.Sprint(key), manyAMinute, 1))
			}
		}
		if got := s.Stats().Keys; got != 300 {
			t.Errorf("%d of 300 keys became hot", got)
		}
	})
}
