package memorystore

import (
	"encoding/binary"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// forgetful counts units and keeps the time of the last. When the clock is before that, any step
// deletes the state, a peek too.
type forgetful struct{ driver.Algorithm }

func (forgetful) Name() string { return "forgetful" }

func (a forgetful) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	limit, used := a.Limit(), int64(0)
	res := driver.Result{Limit: limit}
	keep := time.Duration(0)
	if len(state) > 0 {
		used = int64(state[8])
		if now < int64(binary.BigEndian.Uint64(state)) {
			state, used, keep = nil, 0, time.Microsecond
		}
	}
	if res.Allowed = used+d.N <= limit.Max; res.Allowed && d.Op == driver.OpTake {
		used += d.N
		state = append(binary.BigEndian.AppendUint64(nil, uint64(now)), byte(used))
		keep = limit.Window
	}
	res.Remaining = limit.Max - used
	return state, keep, res
}

// TestTakeAllPeekDeletes: if a peek deletes a state, as it may after the clock has stepped back,
// the TakeAll can still record its demand.
func TestTakeAllPeekDeletes(t *testing.T) {
	var now atomic.Int64
	now.Store(1_800_000_000_000_000)
	s := open(t, &Options{Now: now.Load})
	a := forgetful{algorithm.SlidingLog(driver.PerMinute("minute", 3))}
	take := func(want []int64, keys ...string) {
		t.Helper()
		var ds []driver.Demand
		for _, key := range keys {
			ds = append(ds, driver.Demand{Key: key, Algorithm: a, N: 1})
		}
		out := make([]driver.Result, len(ds))
		if err := s.TakeAll(t.Context(), ds, out); err != nil {
			t.Fatal(err)
		}
		for i := range out {
			if !out[i].Allowed || out[i].Remaining != want[i] {
				t.Errorf("%s: %+v, want %d remaining", keys[i], out[i], want[i])
			}
		}
	}
	for i := range 100 { // in all shards
		old, fresh := "old"+strconv.Itoa(i), "new"+strconv.Itoa(i)
		take([]int64{2}, old)
		now.Add(-time.Hour.Microseconds())
		take([]int64{2, 2}, old, fresh)
		take([]int64{1, 1}, fresh, old)
		if s.Stats().Keys != 2*i+2 {
			t.Fatalf("%d states after %d keys", s.Stats().Keys, 2*i+2)
		}
	}
}
