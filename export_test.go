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
	for key, k := range l.waiting.held {
		if k.asleep.Len() > 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// HeldHere returns the units of each key that reservations of this process hold.
func HeldHere(l *Limiter) map[string]int64 {
	l.waiting.mu.Lock()
	defer l.waiting.mu.Unlock()
	held := make(map[string]int64)
	for key, k := range l.waiting.held {
		if k.units > 0 {
			held[key] = k.units
		}
	}
	return held
}
