package memorystore

import (
	"runtime"
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

// place finds room for a key that is not known. mine are the shards whose locks are held; own, if not nil, is the one of them from which states may be
// forgotten.
func (s *Store) place(own *shard, mine uint64, now int64, d ratelimit.Demand) (place, error) {
	if s.overflow != nil && s.overflow.live(now, d) {
		if d.Op == ratelimit.Reset {
			return nowhere, nil
		}
		s.overflow.demands.Add(1)
		return inOverflow, nil
	}
	if d.Op == ratelimit.GiveBack || d.Op == ratelimit.Reset {
		return nowhere, nil
	}
	if s.reserve() || s.makeRoom(own, mine, now) {
		return inShard, nil
	}
	if s.overflow != nil {
		s.overflow.demands.Add(1)
		return inOverflow, nil
	}
	s.refused.Add(1)
	return nowhere, ratelimit.ErrCapacity
}

// reserve counts one more state if there is room for it. It never counts too many for a moment: others would find no room.
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

// makeRoom forgets states that have run out until it has reserved room for one, and reports whether it has. What others free, others may take.
func (s *Store) makeRoom(own *shard, mine uint64, now int64) bool {
	if own != nil && own.forgetSome(now) > 0 && s.reserve() {
		return true
	}
	for range patience {
		found, busy := s.forgetElsewhere(mine, now)
		switch {
		case found && s.reserve():
			return true
		case found:
		case !busy:
			return s.reserve() // others may have freed more than they took
		default:
			runtime.Gosched()
		}
	}
	return false
}

// forgetElsewhere forgets states that have run out from a shard that is not mine, and reports whether it found any, and whether there was a shard that
// somebody else had locked: to wait for it would be a deadlock.
func (s *Store) forgetElsewhere(mine uint64, now int64) (found, busy bool) {
	for i := range s.shards {
		other := &s.shards[i]
		if mine&(1<<i) != 0 || other.due.Load() > now {
			continue
		}
		if !other.mu.TryLock() {
			busy = true
			continue
		}
		n := other.forgetSome(s.now())
		other.mu.Unlock()
		if n > 0 {
			return true, busy
		}
	}
	return false, busy
}

const (
	// cleanBatch is the most states looked at under one lock.
	cleanBatch = 256
	// patience is how often a demand without room looks for what has run out, while others who do so come first or hold the locks.
	patience = 1000
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
		for i := range s.shards {
			sh := &s.shards[i]
			for sh.due.Load() <= s.now() && !s.closed.Load() {
				sh.mu.Lock()
				sh.forget(s.now(), cleanBatch) // under the lock, before which a clock may have been set back
				sh.mu.Unlock()
			}
		}
		if s.overflow != nil {
			s.overflow.forget(s.now)
		}
	}
}

// expiry returns the stamp from which on a state may be forgotten.
func expiry(now int64, keep time.Duration) int64 {
	return now + int64((keep+time.Microsecond-1)/time.Microsecond)
}
