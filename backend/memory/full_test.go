package memorystore

import (
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// TestRoomAtOnce: a full store has room for a new key from the microsecond on in which a state has
// run out, not from the next tick of anything, in whatever shard that state is.
func TestRoomAtOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		c := newClock()
		c.advance(time.Duration(r.Int64N(int64(time.Hour))))
		s := open(t, &Options{MaxKeys: 2, Now: c.now})
		window := time.Duration(1+r.Int64N(100_000)) * time.Millisecond
		a := algorithm.GCRA(driver.Limit{Name: "l", Max: 1, Window: window})
		take := func(key string, all bool) error {
			ds := []driver.Demand{{Key: key, Algorithm: a, N: 1}}
			if all {
				return s.TakeAll(t.Context(), ds, make([]driver.Result, 1))
			}
			_, err := s.Take(t.Context(), ds[0])
			return err
		}
		for _, key := range []string{"first", "second"} {
			if err := take(key, false); err != nil {
				t.Fatal(err)
			}
			c.advance(time.Microsecond)
		}
		c.advance(window - 3*time.Microsecond) // first runs out in a microsecond
		other, all := "other"+strconv.Itoa(i), i%2 == 0
		if err := take(other, all); !errors.Is(err, driver.ErrCapacity) {
			t.Fatalf("window %v: %v before a state has run out, want ErrCapacity", window, err)
		}
		c.advance(time.Microsecond)
		if err := take(other, all); err != nil {
			t.Fatalf("window %v, together %v: %v when a state has run out", window, all, err)
		}
		if n := s.Stats().Keys; n != 2 {
			t.Fatalf("%d states, want 2", n)
		}
	}
}

// TestRoomInOwnShard: a group finds the room of a state that has run out in a shard that it has
// locked itself.
func TestRoomInOwnShard(t *testing.T) {
	c := newClock()
	s := open(t, &Options{MaxKeys: 2, Now: c.now})
	shardOf := func(key string) *shard { return s.shard(maphash.String(s.seed, key)) }
	twin := "twin"
	for i := 0; shardOf(twin) != shardOf("old"); i++ {
		twin = "twin" + strconv.Itoa(i)
	}
	must(t, s, demand(driver.OpTake, "old", 1), true)
	c.advance(30 * time.Second)
	must(t, s, demand(driver.OpTake, "known", 1), true)
	c.advance(30*time.Second + time.Microsecond)
	out := make([]driver.Result, 2)
	ds := []driver.Demand{demand(driver.OpTake, "known", 1),
		demand(driver.OpTake, twin, 1)}
	if err := s.TakeAll(t.Context(), ds, out); err != nil || !out[0].Allowed || !out[1].Allowed {
		t.Fatalf("%+v, %v", out, err)
	}
	if n := s.Stats().Keys; n != 2 {
		t.Errorf("%d states, want 2", n)
	}
}

// TestFullStoreKeepsKeysApart: on a full store a block, a force and the other operations change
// only the key that they name, and what a new key is told does not depend on other new keys.
func TestFullStoreKeepsKeysApart(t *testing.T) {
	c := newClock()
	s := open(t, &Options{MaxKeys: 2, Now: c.now})
	block := algorithm.Blocking("block", time.Hour)
	must(t, s, driver.Demand{Key: "bad", Algorithm: block, Op: driver.OpForce,
		N: algorithm.BlockFor(time.Hour)}, true)
	must(t, s, demand(driver.OpTake, "known", 1), true)
	full := func(d driver.Demand) {
		t.Helper()
		if res, err := s.Take(t.Context(), d); !errors.Is(err, driver.ErrCapacity) {
			t.Errorf("%v of a new key: %+v, %v, want ErrCapacity", d.Op, res, err)
		}
	}
	for i := range 1000 { // each algorithm value of the same history too
		d := demand(driver.OpTake, "new"+strconv.Itoa(i), 1)
		d.Algorithm = algorithm.SlidingLog(driver.PerMinute("minute", int64(i+1)))
		full(d)
		full(driver.Demand{Key: d.Key, Algorithm: block, Op: driver.OpForce, N: 1})
	}
	held := algorithm.Budget(algorithm.SlidingLog(driver.PerMinute("minute", 3)))
	hold := driver.Demand{Key: "new", Algorithm: held, Op: driver.OpHold, ID: 1, N: 1}
	full(hold)
	hold.Op = driver.OpSettle
	if res := must(t, s, hold, true); res.Units != 0 {
		t.Errorf("a settlement without a hold: %+v", res)
	}
	must(t, s, demand(driver.OpReset, "new", 0), true)
	if res := must(t, s, demand(driver.OpPeek, "known", 1), true); res.Remaining != 2 {
		t.Errorf("known: %+v, want 2 units", res)
	}
	must(t, s, driver.Demand{Key: "bad", Algorithm: block, N: 1}, false)
	must(t, s, driver.Demand{Key: "bad", Algorithm: block, Op: driver.OpReset}, true)
	must(t, s, demand(driver.OpTake, "new", 1), true) // the reset has made room
}
