package algorithm_test

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// TestHeldBound: a key has at most 65,536 holds, also if renewals would bring back others. What is
// not brought back can be settled.
func TestHeldBound(t *testing.T) {
	const most = 65_536
	limit := driver.Limit{Name: "tokens", Max: 1 << 30, Window: time.Minute}
	a, now := algorithm.Budget(algorithm.SlidingLog(limit)), int64(1_800_000_000_000_000)
	var state []byte
	do := func(op driver.Op, id uint64, n int64) driver.Result {
		next, keep, res := driver.Demand{Algorithm: a, Op: op, ID: id, N: n}.Step(state, now)
		if keep > 0 {
			state = next
		}
		return res
	}
	place := func(from uint64) {
		for id := from; id < from+most; id++ {
			if !do(driver.OpHold, id, 1).Allowed {
				t.Fatalf("hold %d is refused", id)
			}
		}
	}
	place(1)
	if res := do(driver.OpHold, most+1, 1); res.Allowed || res.RetryAfter < time.Minute {
		t.Errorf("one more: %+v", res)
	}
	now += 2 * time.Minute.Microseconds()
	place(most + 1)
	if res := do(driver.OpHold, 1, 0); !res.Allowed || res.Units != 0 {
		t.Errorf("a renewal of what has timed out: %+v", res)
	}
	if res := do(driver.OpSettle, 1, 1); res.Units != 1 {
		t.Errorf("a late settlement: %+v", res)
	}
	do(driver.OpSettle, most+1, 0)
	if res := do(driver.OpHold, 2, 0); res.Units != 1 {
		t.Errorf("a renewal when there is room: %+v", res)
	}
}

// TestDeadlinesFarApart: holds whose deadlines are more than 2^31 µs apart are found, placed and
// settled, whatever the size of an int.
func TestDeadlinesFarApart(t *testing.T) {
	a, now := algorithm.InFlight("calls", 5).WithTimeout(time.Hour), int64(1_800_000_000_000_000)
	var state []byte
	do := func(op driver.Op, id uint64, n, units int64) {
		next, keep, res := driver.Demand{Algorithm: a, Op: op, ID: id, N: n}.Step(state, now)
		if keep > 0 {
			state = next
		}
		if keep < 0 || !res.Allowed || res.Units != units {
			t.Errorf("%v of %d by %d: keep %v, %+v", op, n, id, keep, res)
		}
	}
	for id := range uint64(5) {
		do(driver.OpHold, id+1, 1, 1)
		now += (40 * time.Minute).Microseconds()
		do(driver.OpHold, id+1, 0, 1)
	}
	for id := range uint64(5) {
		do(driver.OpSettle, id+1, 0, 0)
	}
}
