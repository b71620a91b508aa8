package scripts

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestStateFormat: Go and Lua continue each other's full logs of every size: Go fills a log, a
// server continues with its bytes, then Go with the server's, with equal results at every step.
func TestStateFormat(t *testing.T) {
	t.Parallel()
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		for _, limit := range []int64{1, 60, 1000, 100_000} {
			for _, resolution := range []time.Duration{time.Microsecond, 600 * time.Millisecond} {
				t.Run(fmt.Sprintf("%d at %v", limit, resolution), func(t *testing.T) {
					w := newTwin(t, tgt.Client(t), "format")
					perMinute := driver.PerMinute("minute", limit)
					log := algorithm.SlidingLog(perMinute).WithResolution(resolution)
					testHandOver(t, w, log)
				})
			}
		}
	})
}

const (
	handOvers        = 8
	stepsPerHandOver = 20
)

func testHandOver(t *testing.T, w *twin, log algorithm.Log) {
	limit, window := log.Limit().Max, log.Limit().Window.Microseconds()
	r := rand.New(rand.NewPCG(uint64(limit), uint64(log.Resolution())))
	now := time.Now().UnixMicro()

	var stamps []int64
	for used := int64(0); used < limit; { // in demands of 1 or 2 units, spread over a window
		d := driver.Demand{Key: "k", Algorithm: log, N: min(1+r.Int64N(3)/2, limit-used)}
		next, keep, res := d.Step(w.state, now)
		if keep <= 0 || !res.Allowed {
			t.Fatalf("a take was refused at %d of %d units, want the log filled", used, limit)
		}
		w.state, used = next, used+d.N
		stamps = append(stamps, newest(now, res))
		now += window / limit * 4 / 5
	}
	if err := w.client.Set(t.Context(), w.key, w.state, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}

	var admitted, refused, joined int
	for range handOvers {
		for range stepsPerHandOver {
			now += r.Int64N(window / 50)
			d := driver.Demand{Key: "k", Algorithm: log, N: 1 + r.Int64N(max(1, limit/20))}
			switch r.IntN(10) {
			case 0, 1, 2:
				d.Op, d.At = driver.OpForce,
					stamps[len(stamps)-1-r.IntN(min(len(stamps), int(limit)))]
			case 3:
				d.Op = driver.OpPeek
			case 4:
				d.Op = driver.OpForce
			}
			size := len(w.state)
			res := w.step(t, now, d)
			switch {
			case d.At > 0 && len(w.state) == size:
				joined++
			case d.Op == driver.OpPeek:
			case res.Allowed:
				stamps = append(stamps, newest(now, res))
				admitted++
			default:
				refused++
			}
		}
		w.swap(t)
	}
	if admitted == 0 || refused == 0 || joined == 0 {
		t.Errorf("admitted %d, refused %d, added to a record %d; want some of each: this test "+
			"proves nothing", admitted, refused, joined)
	}
}
