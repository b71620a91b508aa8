package ratelimit

import (
	"maps"
	"slices"
)

// WaitingKeys returns the keys that calls of l wait for.
func WaitingKeys(l *Limiter) (keys []string) {
	l.waiting.mu.Lock()
	defer l.waiting.mu.Unlock()
	if l.waiting.lone != "" {
		keys = append(keys, l.waiting.lone)
	}
	keys = slices.AppendSeq(keys, maps.Keys(l.waiting.byKey))
	return slices.AppendSeq(keys, maps.Keys(l.waiting.asleep))
}

// HeldHere returns the units of each key that reservations of this process hold.
func HeldHere(l *Limiter) map[string]int64 {
	l.waiting.mu.Lock()
	defer l.waiting.mu.Unlock()
	return maps.Clone(l.waiting.held)
}
