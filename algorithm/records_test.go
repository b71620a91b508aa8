package algorithm

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// sparseRing returns the state of a log of n records in a ring with this number of slots. All
// records are empty and have the stamp now, except the oldest, which is half a minute older, and
// the newest, which has one unit. Pages of the array that a step does not touch take no memory.
func sparseRing(n, slots, head int, now int64) []byte {
	half := 30 * second
	g := logState{
		trailer: trailer{count: n, head: head, used: 1, flags: ringFlag | copies,
			window: 60 * second, base: now - half},
		buf: make([]byte, ringSize(slots/block)), newest: now, slots: slots,
	}
	g.writeBlocks()
	for i := 1; i < 9; i++ {
		g.record(i).put(half, 0)
	}
	g.record(n-1).put(half, 1)
	g.copyNewest(g.record(n - 1))
	return g.encode()
}

// TestMostRecords: a log of the largest size adds further units to its newest record, whose stamp
// moves forward. Units leave late and never early, and there is room again when records leave.
func TestMostRecords(t *testing.T) {
	large := SlidingLog(driver.Limit{Max: driver.MaxUnits, Window: time.Minute})
	small := SlidingLog(driver.Limit{Max: 10, Window: time.Minute})
	for _, tt := range []struct {
		name  string
		log   Log
		op    driver.Op
		slots int
		head  int
	}{
		{"take", large, driver.OpTake, 1 << 25, 0},
		{"take, around", large, driver.OpTake, 1 << 25, 1<<25 - 2},
		{"force", small, driver.OpForce, 9 << 22, 9<<22 - 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state := sparseRing(maxRecords-1, tt.slots, tt.head, epoch)
			size := len(state)
			step := func(now int64, d driver.Demand) (logState, driver.Result) {
				t.Helper()
				next, keep, res := tt.log.Step(state, now, d)
				g, ok := decodeLog(next)
				if keep < 0 || !ok || len(next) != size {
					t.Fatalf("keep %v, %d bytes of %d, decodes %v", keep, len(next), size, ok)
				}
				state = next
				return g, res
			}
			want := func(g logState, n int, newest, units, used int64) {
				t.Helper()
				last := g.record(g.count - 1)
				if g.count != n || g.newest != newest || g.base+last.stamp() != newest ||
					last.units() != units || g.used != used {
					t.Fatalf("%d records of %d units, the newest at %d of %d units, want %d, %d, "+
						"%d, %d",
						g.count, g.used, g.newest-epoch, last.units(), n, used, newest-epoch, units)
				}
			}
			d := driver.Demand{Op: tt.op, N: 2}
			g, _ := step(epoch+1, d)
			want(g, maxRecords, epoch+1, 2, 3)
			g, res := step(epoch+5, d)
			want(g, maxRecords, epoch+5, 4, 5)
			if !res.Allowed {
				t.Fatalf("%+v", res)
			}
			// The oldest has left: there is room for one more.
			g, _ = step(epoch+30*second, d)
			want(g, maxRecords, epoch+30*second, 2, 7)
			g, _ = step(epoch+30*second+7, d)
			want(g, maxRecords, epoch+30*second+7, 4, 9)
			if tt.log == small {
				// The units admitted at 1 µs and merged at 5 µs leave with the latter.
				_, res = step(epoch+30*second+10, driver.Demand{Op: driver.OpTake, N: 3})
				if want := 30*second - 5; res.Allowed || res.RetryAfter.Microseconds() != want {
					t.Fatalf("want to wait %d µs, got %+v", want, res)
				}
			}
		})
	}
}
