// Package lograte limits how often a line is logged of what strangers can cause.
package lograte

import (
	"cmp"
	"sync"
	"time"
)

// A Limit lets one line of a log pass in a time, and counts those that it suppresses. The zero
// Limit lets one pass a second. It is safe for concurrent use.
type Limit struct {
	Every time.Duration // 0: a second
	Burst int           // how many lines pass at once after a silence; 0: 1

	mu         sync.Mutex
	next       time.Time // when as many lines have passed as one in each time
	suppressed int
}

// Pass reports whether a line at now passes, and how many were suppressed before it.
func (l *Limit) Pass(now time.Time) (ok bool, suppressed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	every := cmp.Or(l.Every, time.Second)
	if l.next.Sub(now) > every*time.Duration(max(0, l.Burst-1)) {
		l.suppressed++
		return false, 0
	}
	suppressed, l.suppressed = l.suppressed, 0
	if l.next.Before(now) {
		l.next = now
	}
	l.next = l.next.Add(every)
	return true, suppressed
}
