package layer

import (
	"math"
	"sync/atomic"
	"time"
)

// pacer starts a function in the background: at most once a pause, and never twice at a time.
type pacer struct {
	pause time.Duration
	start time.Time
	next  atomic.Int64 // earliest next start, in ns since start, or running
}

const running = math.MaxInt64

func newPacer(pause time.Duration) *pacer {
	return &pacer{pause: pause, start: time.Now()}
}

// run runs f in a goroutine of its own, unless an earlier one still runs or began less than a pause
// ago.
func (p *pacer) run(f func()) {
	now, next := int64(time.Since(p.start)), p.next.Load()
	if now < next || !p.next.CompareAndSwap(next, running) {
		return
	}
	go func() {
		defer p.next.Store(now + int64(p.pause))
		f()
	}()
}
