package algorithm

import (
	"bytes"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// FuzzHeldState passes bytes to Step that it did not write, and then what it makes of them: it does
// not panic, comes to an end, returns no number out of range, and writes only if it says so.
func FuzzHeldState(f *testing.F) {
	limit := driver.Limit{Name: "units", Max: 100, Window: time.Minute}
	kinds := []Held{InFlight("calls", 100), Budget(SlidingLog(limit)), Budget(GCRA(limit))}
	for i, held := range kinds {
		var state []byte
		now := epoch
		for id := range uint64(9) {
			now += 2 * second
			d := driver.Demand{Algorithm: held, Op: driver.OpHold, ID: id + 1, N: 1}
			if i > 0 && id == 0 {
				d.Op, d.ID = driver.OpTake, 0
			}
			state, _, _ = d.Step(state, now)
			f.Add(bytes.Clone(state), uint8(i), now, uint8(id), id, int64(1))
		}
		for _, after := range []int64{59 * second, 70 * second, 25 * 3600 * second} {
			f.Add(bytes.Clone(state), uint8(i), now+after, uint8(5), uint64(5), int64(3))
		}
		// A table without a free slot, and one with less in it than it says.
		full := bytes.Clone(state)
		h := new(holds)
		h.decode(full)
		for at := range h.slots {
			h.table.put(at, hold{id: uint64(at + 1), units: 1, deadline: now + 1})
		}
		f.Add(full, uint8(i), now, uint8(4), uint64(99), int64(1))
		clear(h.table)
		f.Add(bytes.Clone(full), uint8(i), now+60*second, uint8(4), uint64(99), int64(1))
	}
	f.Fuzz(func(t *testing.T, state []byte, kind uint8, now int64, op uint8, id uint64, n int64) {
		held := kinds[int(kind)%len(kinds)]
		d := driver.Demand{Key: "k", Algorithm: held, N: n}
		d.Op = driver.Op(op) % (driver.OpSettle + 1)
		if d.Op >= driver.OpHold || d.Op == driver.OpPeek {
			d.ID = id
		}
		if driver.CheckTake(t.Context(), d) != nil {
			return
		}
		now &= 1<<52 - 1
		for range 5 {
			given := bytes.Clone(state)
			next, keep, res := d.Step(given, now)
			if keep < 0 {
				return
			}
			if res.Remaining < 0 || res.Remaining > 100 || res.RetryAfter < 0 ||
				res.ResetAfter < 0 {
				t.Fatalf("%+v", res)
			}
			if keep == 0 {
				if !bytes.Equal(given, state) {
					t.Fatal("the state changed without a write")
				}
				next = state
			}
			if len(next) > 4*len(state)+1000 {
				t.Fatalf("%d bytes became %d", len(state), len(next))
			}
			state, now, d.ID = next, now+second, d.ID*3
		}
	})
}
