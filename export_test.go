package ratelimit

// WaitingKeys returns the keys that calls of l wait for.
func WaitingKeys(l *Limiter) (keys []string) {
	l.waiting.mu.Lock()
	defer l.waiting.mu.Unlock()
	if l.waiting.lone != "" {
		keys = append(keys, l.waiting.lone)
	}
	for key := range l.waiting.byKey {
		keys = append(keys, key)
	}
	return keys
}
