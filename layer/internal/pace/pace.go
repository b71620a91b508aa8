// Package pace runs a function in the background now and then.
package pace

import (
	"math"
	"sync/atomic"
	"time"
)

// A Pacer starts a function at most once a pause and never twice at a time. It is safe for
// concurrent use. Create one with [New].
type Pacer struct {
	pause time.Duration
	start time.Time
	next  atomic.Int64 // earliest next start, in ns since start, or running
}

const running = math.MaxInt64

// New returns a Pacer that starts a function at once when it is asked for the first time.
func New(pause time.Duration) *Pacer {
	return &Pacer{pause: pause, start: time.Now()}
}

// Go runs f in a goroutine of its own, unless an earlier one still runs or began less than a pause
// ago.
func (p *Pacer) Go(f func()) {
	now, next := int64(time.Since(p.start)), p.next.Load()
	if now < next || !p.next.CompareAndSwap(next, running) {
		return
	}
	go func() {
		defer p.next.Store(now + int64(p.pause))
		f()
	}()
}

// Running reports whether a function is running.
func (p *Pacer) Running() bool { return p.next.Load() == running }
