package scripts

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestBlockLuaStepIsGoStep: the Lua step and the Go step give the same results and write the same
// bytes.
func TestBlockLuaStepIsGoStep(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		r := rand.New(rand.NewPCG(6, 9))
		w := newTwin(t, tgt.Client(t), "block")
		now := time.Now().UnixMicro()
		for i := range 1000 {
			b := algorithm.Blocking("twin", time.Duration(1+r.IntN(3))*time.Hour)
			d := driver.Demand{
				Key: "k", Algorithm: b, Op: driver.Op(r.IntN(4)), N: 1 + r.Int64N(b.Limit().Max),
				At: now,
			}
			if r.IntN(20) == 0 {
				d.Op, d.N = driver.OpForce, driver.MaxUnits
			}
			now += randomTick(r, b.Limit().Window.Microseconds())
			look := d
			look.Op, look.N = driver.OpPeek, 1
			if _, _, res := look.Step(bytes.Clone(w.state), now); res.ResetAfter > 0 &&
				res.ResetAfter < time.Minute {
				// else the server, whose keys expire in real time, drops the state during the test
				now += res.ResetAfter.Microseconds()
			}
			w.step(t, now, d)
			if i%7 == 0 {
				w.swap(t)
			}
		}
		w.compare(t)
	})
}
