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

// TestLuaForcesAsGo: in histories with forces at any instant and a clock that steps, the Lua step
// and the Go step write the same bytes, in each form of a log.
func TestLuaForcesAsGo(t *testing.T) {
	t.Parallel()
	const minute = int64(time.Minute / time.Microsecond)
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		for _, limit := range []int64{3, 40, 300, 2000} {
			for i, resolution := range []time.Duration{0, 7 * time.Microsecond, time.Second} {
				t.Run(fmt.Sprintf("%d at %v", limit, resolution), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(i), uint64(limit)))
					w := newTwin(t, tgt.Client(t), fmt.Sprintf("force:%d", r.Uint64()))
					log := algorithm.SlidingLog(driver.PerMinute("minute", limit)).
						WithResolution(resolution)
					now, joined := time.Now().UnixMicro(), 0
					for i := range 3000 {
						now += r.Int64N(2 * minute / limit)
						jump := r.IntN(400)
						switch jump {
						case 0, 1, 2:
							now += r.Int64N(minute)
						case 3:
							now -= r.Int64N(minute + minute/4)
						}
						d := driver.Demand{Key: "k", Algorithm: log, N: 1}
						switch r.IntN(8) {
						case 0, 1:
							d.Op, d.N = driver.OpForce, 1+r.Int64N(3)
							d.At = now + minute/10 - r.Int64N(minute*3/2)
							if r.IntN(3) == 0 {
								d.At = now - r.Int64N(2*minute/limit)
							}
						case 2:
							d.Op, d.N = driver.OpPeek, 1+r.Int64N(limit)
						}
						size := len(w.state)
						w.step(t, now, d)
						if d.At > 0 && len(w.state) == size {
							joined++
						}
						if i%16 == 0 || d.At > 0 && i%4 == 0 || jump < 4 {
							w.compareBytes(t)
						}
						if i%500 == 0 {
							w.swap(t)
						}
					}
					w.compareBytes(t)
					if joined < 200 {
						t.Errorf("%d forces kept the length, want 200 or more: this test proves "+
							"nothing", joined)
					}
				})
			}
		}
	})
}

// TestLuaForceCapsUnits: units beyond the largest sum are not added.
func TestLuaForceCapsUnits(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		w := newTwin(t, tgt.Client(t), "cap")
		log := algorithm.SlidingLog(driver.PerMinute("minute", 1000))
		now := time.Now().UnixMicro()
		for i := range int64(500) {
			d := driver.Demand{Key: "k", Algorithm: log, N: 1}
			if i > 200 {
				d.Op, d.N, d.At = driver.OpForce, driver.MaxUnits, now+i%200
			}
			w.step(t, now+min(i, 200), d)
		}
		w.compareBytes(t)
	})
}
