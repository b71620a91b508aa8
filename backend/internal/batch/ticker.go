package batch

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ticksPerTimeout is the resolution of timeouts. One timer for all is cheaper than one for each.
const ticksPerTimeout = 16

// ticker counts time for all queues with one timer, while any of them waits.
type ticker struct {
	tick atomic.Int64 // number of ticks so far

	mu      sync.Mutex // locked after the mutex of a queue, never before
	watched []ticked
	timer   *time.Timer
	next    time.Time // tick
	length  time.Duration
}

// ticked is what a ticker calls, a queue.
type ticked interface {
	// onTick is called at tick now; the call before it was at tick previous. It reports whether it
	// has to be called again.
	onTick(now, previous int64) bool
}

// watch calls onTick of each of qs at each tick, until it returns false. length is the time between
// two ticks.
func (t *ticker) watch(length time.Duration, qs ...ticked) {
	t.mu.Lock()
	defer t.mu.Unlock()
	start := len(t.watched) == 0
	t.watched = append(t.watched, qs...)
	if !start || len(qs) == 0 {
		return
	}
	now := time.Now()
	t.length = length
	if !t.next.After(now) { // the ticker was idle
		t.next = now.Add(length)
	}
	if wait := t.next.Sub(now); t.timer == nil {
		t.timer = time.AfterFunc(wait, t.onTimer)
	} else {
		t.timer.Reset(wait)
	}
}

// onTimer counts the ticks that are due: a timer is always a little late, and on a busy machine by
// more than a tick.
func (t *ticker) onTimer() {
	t.mu.Lock()
	length, watched := t.length, t.watched
	t.watched = nil
	due := 1 + max(0, time.Since(t.next)/length)
	t.next = t.next.Add(due * length)
	t.mu.Unlock()
	now := t.tick.Add(int64(due))
	t.watch(length, slices.DeleteFunc(watched, func(q ticked) bool {
		return !q.onTick(now, now-int64(due))
	})...)
}
