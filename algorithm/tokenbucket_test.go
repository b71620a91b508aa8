package algorithm_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// TestTokenBucket: the bucket admits a burst, and then at its rate.
func TestTokenBucket(t *testing.T) {
	a := algorithm.TokenBucket("b", 3, 3)
	if a != algorithm.GCRA(driver.PerSecond("b", 3)) {
		t.Errorf("the bucket of 3 a second is %+v, not that of the limit", a)
	}
	s := &stepper{}
	const second = int64(1_000_000)
	for _, tt := range []struct {
		at               int64 // µs
		n                int64
		allowed          bool
		remaining        int64
		retry, untilFull time.Duration
	}{
		{second, 3, true, 0, 0, time.Second},
		{second, 1, false, 0, 333_334 * time.Microsecond, time.Second},
		{second, 3, false, 0, time.Second, time.Second},
		{second + 333_333, 1, false, 0, time.Microsecond, 666_667 * time.Microsecond},
		{second + 333_334, 1, true, 0, 0, 1_000_000 * time.Microsecond},
		{2*second + 333_334, 2, true, 1, 0, 666_667 * time.Microsecond},
	} {
		s.now = tt.at
		res := s.take(t, a, tt.n)
		if res.Allowed != tt.allowed || res.Remaining != tt.remaining ||
			res.RetryAfter != tt.retry || res.ResetAfter != tt.untilFull {
			t.Errorf("at %d, %d units: %+v, want %+v", tt.at, tt.n, res, tt)
		}
	}
}

// TestTokenBucketChanged: units that were missing are missing still when the rate or the burst
// changes, and come back at the new rate.
func TestTokenBucketChanged(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after driver.Algorithm
		forced, later int64 // units, µs
		remaining     int64
		retry, reset  time.Duration
	}{
		"slowed": {algorithm.TokenBucket("b", 100, 100), algorithm.TokenBucket("b", 0.1, 100),
			100, 0, 0, 10 * time.Second, 1000 * time.Second},
		"slowed, half refilled": {algorithm.TokenBucket("b", 100, 100),
			algorithm.TokenBucket("b", 0.1, 100), 100, 500_000, 50, 0, 500 * time.Second},
		"quickened": {algorithm.TokenBucket("b", 0.1, 100), algorithm.TokenBucket("b", 100, 100),
			100, 0, 0, 10 * time.Millisecond, time.Second},
		"a day to a minute": {algorithm.GCRA(driver.PerDay("b", 1000)),
			algorithm.GCRA(driver.PerMinute("b", 1000)),
			1000, 0, 0, 60 * time.Millisecond, time.Minute},
		"raised": {algorithm.GCRA(driver.PerMinute("b", 10)),
			algorithm.GCRA(driver.PerMinute("b", 1000)), 11, 0, 989, 0, 660 * time.Millisecond},
		"lowered": {algorithm.GCRA(driver.PerMinute("b", 100)),
			algorithm.GCRA(driver.PerMinute("b", 10)), 12, 0, 0, 18 * time.Second,
			72 * time.Second},
		// 0.2999993 units are missing, which come back in 99,999.77 µs.
		"a part of a unit": {algorithm.TokenBucket("b", 7, 1), algorithm.TokenBucket("b", 3, 1),
			1, 100_000, 0, 100 * time.Millisecond, 100 * time.Millisecond},
	} {
		s := &stepper{now: 1e15}
		s.step(t, tt.before, driver.Demand{Op: driver.OpForce, N: tt.forced})
		s.now += tt.later
		peek := driver.Demand{Op: driver.OpPeek, N: 1}
		got := s.step(t, tt.after, peek)
		if got.Remaining != tt.remaining || got.RetryAfter != tt.retry ||
			got.ResetAfter != tt.reset {
			t.Errorf("%s: %+v, want %+v", name, got, tt)
		}
		if !got.Allowed {
			s.wantExactRetry(t, tt.after, 1, got)
		}
		before := s.step(t, tt.before, peek)
		if got := s.step(t, tt.after, peek); got.Remaining != tt.remaining ||
			got.ResetAfter-tt.reset > 2*time.Microsecond {
			t.Errorf("%s, and back to %+v: %+v, want %+v", name, before, got, tt)
		}
	}
}

// TestTokenBucketChangedForAMoment: a key that was used up, and refused under a slow rate for a
// moment, waits no longer under the old rate than before.
func TestTokenBucketChangedForAMoment(t *testing.T) {
	fast, slow := algorithm.TokenBucket("b", 100, 100), algorithm.TokenBucket("b", 0.1, 100)
	s := &stepper{now: 1e15}
	s.take(t, fast, 100)
	for range 99 {
		if res := s.take(t, slow, 1); res.Allowed || res.RetryAfter != 10*time.Second {
			t.Fatalf("slowed: %+v, want a wait of 10s", res)
		}
	}
	if res := s.take(t, fast, 1); res.Allowed || res.RetryAfter != 10*time.Millisecond {
		t.Errorf("quickened: %+v, want a wait of 10ms", res)
	}
}

// TestTokenBucketDebt: whatever is forced or settled, a bucket is full again after its debt at the
// latest, so no RetryAfter is longer. A larger debt in a state is read as the bucket's own, from
// when it was written, and the state stays as it is.
func TestTokenBucketDebt(t *testing.T) {
	const longest = 1 << 50 * time.Microsecond
	limit := driver.Limit{Name: "b", Max: 10_000, Window: time.Minute}
	for _, debt := range []time.Duration{time.Minute, time.Hour, 0} {
		most := debt
		if debt == 0 {
			most = longest
		}
		a := algorithm.GCRA(limit).WithDebt(debt)
		if a.Debt() != most || a.Name() != "bucket1" || a.Validate() != nil {
			t.Errorf("WithDebt(%v) returned %v of %v, %v", debt, a.Debt(), a.Name(), a.Validate())
		}
		s := &stepper{now: 1e15}
		s.take(t, a, 7)
		s.now++ // the bucket lacks a part of a unit
		for n := int64(1); n < driver.MaxUnits; n *= 2 {
			res := s.step(t, a, driver.Demand{Op: driver.OpForce, N: n})
			if n >= 1<<39 && debt > 0 && res.ResetAfter != most || res.ResetAfter > most {
				t.Errorf("debt %v, %d units forced: %+v", debt, n, res)
			}
			if res := s.take(t, a, limit.Max); !res.Allowed && res.RetryAfter > most {
				t.Errorf("debt %v, %d units forced, refused for %v", debt, n, res.RetryAfter)
			}
		}
	}

	s, unbound := &stepper{now: 1e15}, algorithm.GCRA(limit)
	before := s.step(t, unbound, driver.Demand{Op: driver.OpForce, N: driver.MaxUnits})
	bound := unbound.WithDebt(time.Hour)
	for _, passed := range []time.Duration{0, time.Minute, 58 * time.Minute} {
		s.now += passed.Microseconds()
		want := time.Hour - time.Duration(s.now-1e15)*time.Microsecond
		got := s.step(t, bound, driver.Demand{Op: driver.OpPeek, N: limit.Max})
		if got.Allowed || got.ResetAfter != want || got.RetryAfter != want {
			t.Errorf("%v after it was written: %+v, want a RetryAfter of %v", passed, got, want)
		}
		if got := s.take(t, unbound, 1).ResetAfter; before.ResetAfter-got > time.Hour {
			t.Errorf("another debt has changed the state: ResetAfter %v", got)
		}
	}
	s.now += time.Minute.Microseconds()
	s.take(t, bound, 1) // admitted, and written with the smaller debt
	if got := s.take(t, unbound, 1).ResetAfter; got > time.Minute {
		t.Errorf("ResetAfter %v after a write with a debt of an hour", got)
	}
	slow := algorithm.GCRA(driver.Limit{Name: "b", Max: 1, Window: time.Minute})
	s = &stepper{now: 1e15}
	s.step(t, slow, driver.Demand{Op: driver.OpForce, N: driver.MaxUnits})
	if got := s.take(t, bound, 1); got.Allowed || got.ResetAfter != time.Hour {
		t.Errorf("ResetAfter %v under a faster limit, want the debt, 1h", got)
	}

	for debt, ok := range map[time.Duration]bool{
		time.Minute: true, longest: true, time.Hour + time.Microsecond: true,
		time.Minute - time.Microsecond: false, longest + time.Microsecond: false,
		time.Hour + 1: false, -time.Hour: false,
	} {
		for _, a := range []driver.Algorithm{bound.WithDebt(debt),
			algorithm.Budget(bound.WithDebt(debt))} {
			if err := a.Validate(); (err == nil) != ok || err != nil &&
				!errors.Is(err, driver.ErrInvalid) {
				t.Errorf("debt %v: %v, want an error: %t", debt, err, !ok)
			}
		}
	}
	if algorithm.GCRA(limit) != algorithm.GCRA(limit).WithDebt(0) ||
		algorithm.GCRA(limit) != bound.WithDebt(longest) {
		t.Error("buckets with the default debt differ")
	}
}

// TestTokenBucketDebtOfOther: what was spent is not forgiven by a demand under a limit with a
// smaller debt, such as another rate of the same limit for some requests.
func TestTokenBucketDebtOfOther(t *testing.T) {
	day := 24 * time.Hour
	large := algorithm.GCRA(driver.PerDay("b", 1000)).WithDebt(day)
	small := algorithm.GCRA(driver.PerDay("b", 10)).WithDebt(day)
	s := &stepper{now: 1e15}
	s.take(t, large, 1000)
	for range 3 {
		for _, op := range []driver.Op{driver.OpTake, driver.OpPeek} {
			res := s.step(t, small, driver.Demand{Op: op, N: 1})
			if res.Allowed || res.RetryAfter > day || res.ResetAfter != day {
				t.Errorf("%v under the small limit: %+v", op, res)
			}
		}
		if res := s.take(t, large, 1); res.Allowed || res.Remaining != 0 {
			t.Errorf("a unit is free after a demand under the small limit: %+v", res)
		}
	}
	s.now += (12 * time.Hour).Microseconds()
	s.step(t, small, driver.Demand{Op: driver.OpForce, N: 100})
	if res := s.take(t, large, 401); res.Allowed || res.Remaining != 400 {
		t.Errorf("500 units and 100 forced are missing: %+v", res)
	}
	s.step(t, small, driver.Demand{Op: driver.OpForce, N: driver.MaxUnits})
	if res := s.take(t, large, 1000); res.RetryAfter != day {
		t.Errorf("after the largest charge: %+v, want a RetryAfter of a day", res)
	}
	s.now += (day - 14*time.Minute).Microseconds() // 9.7 units are missing
	if res := s.take(t, small, 1); res.Allowed || res.RetryAfter > 3*time.Hour {
		t.Errorf("when the debt of the small limit is enough: %+v", res)
	}
}

// TestTokenBucketCorrupt: a state with a number that no step writes is corrupt; one at the bounds
// is not.
func TestTokenBucketCorrupt(t *testing.T) {
	const year = 31_622_400_000_000 // the longest Window in µs
	for name, tt := range map[string]struct {
		state [5]uint64 // units missing, the part, Max, Window, time
		ok    bool
	}{
		"empty":                   {[5]uint64{0, 0, 10, 1000, 1e15}, true},
		"full":                    {[5]uint64{10, 999, 10, 1000, 1e15}, true},
		"the longest debt":        {[5]uint64{1 << 43, 0, 1 << 10, 1 << 17, 1e15}, true},
		"a longer debt":           {[5]uint64{1 << 43, 1, 1 << 10, 1 << 17, 1e15}, false},
		"a longer debt of units":  {[5]uint64{1<<43 + 1, 0, 1 << 10, 1 << 17, 1e15}, false},
		"the most units":          {[5]uint64{1 << 52, 0, 1 << 40, 1000, 1e15}, true},
		"more units":              {[5]uint64{1 << 52, 1, 1 << 40, 1000, 1e15}, false},
		"negative units":          {[5]uint64{1 << 63, 0, 1 << 40, 1000, 1e15}, false},
		"a part of a whole":       {[5]uint64{1, 1000, 10, 1000, 1e15}, false},
		"a negative part":         {[5]uint64{1, 1 << 63, 10, 1000, 1e15}, false},
		"no Max":                  {[5]uint64{0, 0, 0, 1000, 1e15}, false},
		"the largest Max":         {[5]uint64{0, 0, 1 << 40, 1000, 1e15}, true},
		"a larger Max":            {[5]uint64{0, 0, 1<<40 + 1, 1000, 1e15}, false},
		"a negative Max":          {[5]uint64{0, 0, 1 << 63, 1000, 1e15}, false},
		"a shorter Window":        {[5]uint64{0, 0, 10, 999, 1e15}, false},
		"the longest Window":      {[5]uint64{0, 0, 10, year, 1e15}, true},
		"a longer Window":         {[5]uint64{0, 0, 10, year + 1, 1e15}, false},
		"the last time":           {[5]uint64{0, 0, 10, 1000, 1<<52 - 1}, true},
		"a time after the last":   {[5]uint64{0, 0, 10, 1000, 1 << 52}, false},
		"a time before the first": {[5]uint64{0, 0, 10, 1000, 1 << 63}, false},
	} {
		var state []byte
		for _, n := range tt.state {
			state = binary.BigEndian.AppendUint64(state, n)
		}
		peek := driver.Demand{Op: driver.OpPeek, N: 1, Algorithm: algorithm.TokenBucket("b", 3, 3)}
		if _, keep, _ := peek.Step(state, 1e15); keep >= 0 != tt.ok {
			t.Errorf("%s: keep %v, want that the state is corrupt: %t", name, keep, !tt.ok)
		}
		for _, wrong := range [][]byte{state[:39], append(state, 0), make([]byte, 32)} {
			if _, keep, _ := peek.Step(wrong, 1e15); keep >= 0 {
				t.Errorf("%s: %d bytes are a state", name, len(wrong))
			}
		}
	}
}
