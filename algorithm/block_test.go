package algorithm_test

import (
	"errors"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

// TestBlock: a key is refused until its block ends, and not one microsecond longer.
func TestBlock(t *testing.T) {
	now := time.Now().UnixMicro()
	store, err := memorystore.New(&memorystore.Options{Now: func() int64 { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	l, err := ratelimit.New(store, algorithm.Blocking("blocked", time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	block := func(d time.Duration) {
		t.Helper()
		if res, err := l.Force(t.Context(), "k", algorithm.BlockFor(d)); err != nil ||
			!res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	want := func(left time.Duration) {
		t.Helper()
		for range 2 { // a take records nothing
			res, err := l.AllowN(t.Context(), "k", 1000)
			if err != nil || res.Allowed != (left == 0) || res.RetryAfter != left ||
				res.ResetAfter != left {
				t.Fatalf("%+v, %v; want %v left", res, err, left)
			}
		}
	}
	advance := func(d time.Duration) { now += d.Microseconds() }
	want(0)
	block(time.Second)
	want(time.Second)
	advance(400 * time.Millisecond)
	block(100 * time.Millisecond) // ends sooner, so it changes nothing
	want(600 * time.Millisecond)
	block(time.Minute)
	advance(time.Minute - time.Microsecond)
	want(time.Microsecond)
	advance(time.Microsecond)
	want(0)
	block(9 * time.Hour) // longer than the longest
	want(time.Hour)
	if err := l.Reset(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	want(0)
	block(time.Hour)
	advance(-24 * time.Hour) // the clock steps back
	want(time.Hour)
}

// TestBlockShortened: if the longest time is reduced, the next call, even a peek, shortens the
// block: it then ends the new longest time after that call.
func TestBlockShortened(t *testing.T) {
	const begin = int64(1_800_000_000_000_000)
	day, hour := algorithm.Blocking("b", 24*time.Hour), algorithm.Blocking("b", time.Hour)
	force := driver.Demand{Op: driver.OpForce, N: algorithm.BlockFor(24 * time.Hour)}
	peek := driver.Demand{Op: driver.OpPeek, N: 1}
	state, _, _ := day.Step(nil, begin, force)
	state, keep, res := hour.Step(state, begin, peek)
	if keep != time.Hour || res.Allowed || res.RetryAfter != time.Hour {
		t.Errorf("keep %v, %+v; want an hour", keep, res)
	}
	later := begin + (time.Hour - time.Microsecond).Microseconds()
	if _, keep, res := hour.Step(state, later, peek); keep != 0 ||
		res.RetryAfter != time.Microsecond {
		t.Errorf("keep %v, %+v; want 1µs left, and nothing to write", keep, res)
	}
}

// TestBlockValidate: a block has a name and a longest time.
func TestBlockValidate(t *testing.T) {
	for _, b := range []algorithm.Block{
		{}, algorithm.Blocking("", time.Hour), algorithm.Blocking("b", 0),
		algorithm.Blocking("b", -time.Hour),
		algorithm.Blocking("b", 1000*24*time.Hour),
	} {
		if _, err := ratelimit.New(stubStore{}, b); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%v: %v", b, err)
		}
	}
	if n := algorithm.BlockFor(1500 * time.Microsecond); n != 2 {
		t.Errorf("BlockFor rounds 1.5 ms to %d", n)
	}
}

type stubStore struct{ driver.Store }

// TestBlockSuite: blocks beside logs pass the suite.
func TestBlockSuite(t *testing.T) {
	blocking := func(l driver.Limit) driver.Algorithm {
		return algorithm.Blocking(l.Name, l.Window)
	}
	runSuite(t, []func(driver.Limit) driver.Algorithm{blocking}, map[string]string{
		"window":                  "a Block counts nothing",
		"clock/back-up-to-window": "a Block counts nothing",
		"algorithm/values":        "the Max of a Block follows from its Window",
	})
}

// FuzzBlock: whatever the state, Step does not panic, and its times are within the longest time.
func FuzzBlock(f *testing.F) {
	f.Add([]byte{}, int64(1), int64(5), uint8(2))
	f.Add([]byte{0, 6, 0, 0, 0, 0, 0, 0}, int64(1_800_000_000_000_000), int64(5), uint8(0))
	f.Fuzz(func(t *testing.T, state []byte, now, n int64, op uint8) {
		now &= 1<<52 - 1
		d := driver.Demand{Op: driver.Op(op % 4), N: 1 + n&(driver.MaxUnits-1)}
		b := algorithm.Blocking("b", time.Hour)
		next, keep, res := b.Step(state, now, d)
		if keep < 0 {
			return
		}
		if res.RetryAfter < 0 || res.RetryAfter > time.Hour ||
			res.Allowed != (res.RetryAfter == 0) {
			t.Errorf("%+v", res)
		}
		if keep > 0 && len(next) > 0 {
			peek := driver.Demand{Op: driver.OpPeek, N: 1}
			if _, again, res := b.Step(next, now, peek); again != 0 || res.Allowed {
				t.Errorf("Step does not read what it has written: %v, %+v", again, res)
			}
		}
	})
}
