package memorystore

import (
	"time"

	"github.com/truewindow/ratelimit"
)

// place says where a key without a state is decided.
type place uint8

const (
	nowhere    place = iota // on an empty state that is not kept
	inShard                 // in a state of its own, for which there is a reservation in Store.keys
	inOverflow              // in the state that unknown keys share
)

// place finds room for a key that sh, which is locked, does not know.
func (s *Store) place(sh *shard, now int64, d ratelimit.Demand) (place, error) {
	if s.overflow != nil && s.overflow.live(now, d) {
		if d.Op == ratelimit.Reset {
			return nowhere, nil
		}
		return inOverflow, nil
	}
	if d.Op == ratelimit.GiveBack || d.Op == ratelimit.Reset {
		return nowhere, nil
	}
	if s.reserve() || s.makeRoom(sh, now) && s.reserve() {
		return inShard, nil
	}
	if s.overflow != nil {
		return inOverflow, nil
	}
	return nowhere, ratelimit.ErrCapacity
}

// reserve counts one more state if there is room for it.
func (s *Store) reserve() bool {
	if s.keys.Add(1) <= s.maxKeys {
		return true
	}
	s.keys.Add(-1)
	return false
}

// makeRoom forgets states that have run out, from sh, which is locked, or from another shard that is not, and reports whether it
// found any.
func (s *Store) makeRoom(sh *shard, now int64) bool {
	if sh.due.Load() <= now && sh.forget(now, cleanBatch) > 0 {
		return true
	}
	for i := range s.shards {
		other := &s.shards[i]
		if other == sh || other.due.Load() > now || !other.mu.TryLock() {
			continue
		}
		n := other.forget(now, cleanBatch)
		other.mu.Unlock()
		if n > 0 {
			return true
		}
	}
	return false
}

const (
	// cleanBatch is the most states looked at under one lock.
	cleanBatch = 256
	// cleanInterval is how often the cleaner looks. It matters for memory only.
	cleanInterval = time.Second
)

// clean forgets what has run out until the store is closed. It touches only shards where something may have.
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
		now := s.now()
		for i := range s.shards {
			sh := &s.shards[i]
			for sh.due.Load() <= now && !s.closed.Load() {
				sh.mu.Lock()
				sh.forget(now, cleanBatch)
				sh.mu.Unlock()
			}
		}
		if s.overflow != nil {
			s.overflow.forget(now)
		}
	}
}

// expiry returns the stamp from which on a state may be forgotten.
func expiry(now int64, keep time.Duration) int64 {
	return now + int64((keep+time.Microsecond-1)/time.Microsecond)
}
