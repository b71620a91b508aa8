package scripts

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestFixedWindowLuaStepIsGoStep holds one form of the step against the other, the bytes included.
func TestFixedWindowLuaStepIsGoStep(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		r := rand.New(rand.NewPCG(7, 10))
		w := newTwin(t, tgt.Client(t), "fixed")
		now := time.Now().UnixMicro()
		var stamps []int64
		for i := range 2000 {
			window := time.Duration(1+r.IntN(3)) * time.Hour
			a := algorithm.FixedWindow(ratelimit.Limit{Name: "twin",
				Max: 1 + r.Int64N([]int64{5, ratelimit.MaxUnits}[r.IntN(2)]), Window: window,
			}).WithOffset(time.Duration(r.Int64N(int64(window))))
			d := ratelimit.Demand{Key: "k", Algorithm: a, Op: ratelimit.Op(r.IntN(5)),
				N: 1 + r.Int64N(a.Limit().Max)}
			switch r.IntN(20) {
			case 0:
				d.Op, d.N = ratelimit.OpForce, ratelimit.MaxUnits
			case 1, 2, 3:
				d.Op = ratelimit.OpTake
			}
			if len(stamps) > 0 {
				d.At = stamps[max(0, len(stamps)-1-r.IntN(3))]
			}
			now += randomTick(r, window.Microseconds())
			look := d
			look.Op, look.N = ratelimit.OpPeek, 1
			_, _, res := look.Step(bytes.Clone(w.state), now)
			if res.ResetAfter > 0 && res.ResetAfter < time.Minute {
				// The server, whose keys expire in real time, may have forgotten it.
				look.Op = ratelimit.OpReset
				w.step(t, now, look)
			}
			stamps = append(stamps, w.step(t, now, d).At)
			if i%7 == 0 {
				w.swap(t)
			}
		}
		w.compare(t)
	})
}
