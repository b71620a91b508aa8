package memorystore

import "time"

// cleanInterval is the time between two sweeps. It affects the memory in use, not decisions.
const cleanInterval = time.Second

// clean sweeps until the store is closed.
func (s *Store) clean() {
	defer close(s.stopped)
	ticker := time.NewTicker(cleanInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		s.sweep()
	}
}

// sweep removes all expired states. It locks only shards that may have some.
func (s *Store) sweep() {
	for i := range s.shards {
		sh := &s.shards[i]
		for sh.nextExpiry.Load() <= s.now() && !s.closed.Load() {
			sh.mu.Lock()
			sh.expire(s.now(), expireBatch) // the clock may have been set back before the lock
			sh.mu.Unlock()
		}
	}
}
