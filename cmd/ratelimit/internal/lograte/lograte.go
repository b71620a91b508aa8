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

	mu         sync.Mutex
	next       time.Time
	suppressed int
}

// Pass reports whether a line at now passes, and how many were suppressed before it.
func (l *Limit) Pass(now time.Time) (ok bool, suppressed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		l.suppressed++
		return false, 0
	}
	suppressed, l.suppressed = l.suppressed, 0
	l.next = now.Add(cmp.Or(l.Every, time.Second))
	return true, suppressed
}
