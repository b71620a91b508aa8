package memorystore

import (
	"runtime"

	"github.com/truewindow/ratelimit/driver"
)

// mayAdd reports whether an op needs room on a key without a state. The others have nothing to
// record there; if their step writes a state all the same, it is kept if there is room.
func mayAdd(op driver.Op) bool { return op <= driver.OpForce || op == driver.OpHold }

// findRoom reserves room for one more state, and reports whether it has. locked is the set of
// shards that the caller has locked. from, if not nil, is the one of them in which states may be
// expired.
func (s *Store) findRoom(from *shard, locked uint64, now int64) bool {
	return s.reserve() || s.makeRoom(from, locked, now)
}

// reserve counts one more state if there is room for it. It never counts too many, not even for a
// moment: other calls would then find no room.
func (s *Store) reserve() bool {
	for {
		n := s.keys.Load()
		if n >= s.maxKeys {
			return false
		}
		if s.keys.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// maxSearches bounds how often a demand without room searches for expired states while other calls
// take the room that it makes or hold the locks.
const maxSearches = 1000

// makeRoom expires states until it has reserved room for one, and reports whether it has. Another
// demand may take the room that this one makes.
func (s *Store) makeRoom(from *shard, locked uint64, now int64) bool {
	if from != nil && from.expireSome(now) > 0 && s.reserve() {
		return true
	}
	for range maxSearches {
		expired, busy := s.expireElsewhere(locked, now)
		switch {
		case expired && s.reserve():
			return true
		case expired:
		case !busy:
			return s.reserve() // others may have made more room than they took
		default:
			runtime.Gosched()
		}
	}
	return false
}

// expireElsewhere expires states in one shard that is not locked, and reports whether it found any.
// busy reports whether it skipped a shard that another goroutine has locked: waiting for it could
// deadlock.
func (s *Store) expireElsewhere(locked uint64, now int64) (expired, busy bool) {
	for i := range s.shards {
		other := &s.shards[i]
		if locked&(1<<i) != 0 || other.nextExpiry.Load() > now {
			continue
		}
		if !other.mu.TryLock() {
			busy = true
			continue
		}
		if s.expireLocked(other) {
			return true, busy
		}
	}
	return false, busy
}

// expireLocked expires states of a shard, unlocks it and reports whether there were any.
func (s *Store) expireLocked(sh *shard) bool {
	defer sh.mu.Unlock()
	return sh.expireSome(s.now()) > 0
}
