package scripts

import (
	"fmt"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/driver"
)

// guardDeadlines are refusals under a limit of 10,000 in 16 minutes beside holds with many
// deadlines in these 16 minutes, and the ranges that they read. Without holds, a refusal of one
// unit reads 1 range, and one of some hundred units 4.
var guardDeadlines = []struct {
	what    string
	records int
	over    time.Duration // from the first record to the last, which is a second old
	held    int64         // units of each hold
	n       int64         // units of the demand
	ranges  int
}{
	{"the log is free after all deadlines", 10_000, time.Second, 1, 1, 2},
	{"the log is free before the first deadline", 10_000, 15 * time.Minute, 1, 1, 8},
	{"the log always has room", 1_000, time.Second, 150, 1, 5},
	{"the log and the deadlines free units in turn", 6_000, 15 * time.Minute, 100, 4_000, 12},
}

// TestGuardDeadlines bounds what a refusal reads of a log beside holds with many deadlines.
func TestGuardDeadlines(t *testing.T) {
	const window, longest = 16 * time.Minute, 14 * time.Minute
	budget := algorithm.Budget(algorithm.SlidingLog(
		driver.Limit{Name: "budget", Max: 10_000, Window: window}))
	eachGuarded(t, func(t *testing.T, g *guarded) {
		read := g.reads(t)
		for i, tt := range guardDeadlines {
			key := fmt.Sprintf("{guard}%d", i)
			now := time.Now().UnixMicro()
			pipe := newPipeline(g.client)
			add := func(now int64, d driver.Demand) {
				d.Key, d.Algorithm = "k", budget
				var call lua.Run
				call.Begin(now)
				if err := call.Add([]string{key}, []driver.Demand{d}); err != nil {
					t.Fatal(err)
				}
				pipe.run(t, &call)
			}
			first := now - (tt.over + time.Second).Microseconds()
			hold := func(now, n int64) { // n is 0 to renew
				id := uint64(0)
				for length := 4 * time.Second; length < longest; length += length / 12 {
					id++
					add(now, driver.Demand{Op: driver.OpHold, N: n, ID: id,
						HoldTimeout: length.Truncate(time.Microsecond)})
				}
			}
			hold(first, tt.held)
			for r := range tt.records {
				at := first + tt.over.Microseconds()*int64(r)/int64(tt.records)
				add(at, driver.Demand{Op: driver.OpForce, N: 1})
			}
			hold(now-time.Second.Microseconds(), 0)
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
			head := g.control.HGet(t.Context(), key+":h", "").Val()
			deadlines := len(head)/18 - 1
			read()
			d := driver.Demand{Key: "k", Algorithm: budget, N: tt.n}
			res, err := decideHeld(t, g.client, now, []string{key}, d)
			if err != nil || res[0].Allowed {
				t.Fatalf("%s: %+v, %v; want a refusal", tt.what, res, err)
			}
			ranges, bytes := read()
			t.Logf("%s: %d deadlines, %d ranges with %d bytes", tt.what, deadlines, ranges, bytes)
			if deadlines < 50 || ranges > tt.ranges {
				t.Errorf("%s: %d deadlines, %d ranges; want at least 50 and at most %d",
					tt.what, deadlines, ranges, tt.ranges)
			}
		}
	})
}
