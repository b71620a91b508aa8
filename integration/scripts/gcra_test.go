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

// TestTokenBucketLuaStepIsGoStep holds one form of the step against the other, the bytes included,
// with limits whose products exceed what a double holds.
func TestTokenBucketLuaStepIsGoStep(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		r := rand.New(rand.NewPCG(8, 11))
		w := newTwin(t, tgt.Client(t), "bucket")
		now := time.Now().UnixMicro()
		var stamps []int64
		var a algorithm.Bucket
		for i := range 3000 {
			if i%5 == 0 {
				more := time.Duration(r.Int64N(int64(365*24*time.Hour) >> r.IntN(20)))
				a = algorithm.TokenBucket(ratelimit.Limit{Name: "twin",
					Max: 1 + r.Int64N(1<<r.IntN(41)), Window: time.Hour + more})
			}
			d := ratelimit.Demand{Key: "k", Algorithm: a, Op: ratelimit.Op(r.IntN(5)),
				N: 1 + r.Int64N(a.Limit().Max)}
			switch r.IntN(20) {
			case 0:
				d.Op, d.N = ratelimit.OpForce, 1+r.Int64N(ratelimit.MaxUnits)
			case 1, 2, 3, 4, 5:
				d.Op = ratelimit.OpTake
			}
			if len(stamps) > 0 {
				d.At = stamps[max(0, len(stamps)-1-r.IntN(3))]
			}
			now = min(now+randomTick(r, a.Limit().Window.Microseconds()), 4e15)
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
