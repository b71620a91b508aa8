package memorystore

import (
	"sync/atomic"
	"time"
)

// cleanInterval is how long after its expiry a state may be deleted. It affects the memory in use,
// not decisions.
const cleanInterval = time.Second

// clean deletes expired states until the store is closed. It sleeps until a second after the next
// expiry, so that it deletes what expires in that second together; without states it has no timer.
// A clock of Options.Now may jump, so under one it looks each second.
func (s *Store) clean() {
	defer close(s.stopped)
	timer := time.NewTimer(cleanInterval)
	defer timer.Stop()
	for {
		var rings <-chan time.Time
		if pause, ok := s.setAlarm(); ok {
			timer.Reset(pause)
			rings = timer.C
		} else {
			timer.Stop()
		}
		select {
		case <-s.stop:
			return
		case <-s.alarm.earlier:
		case <-rings:
			s.sweep()
		}
		s.alarm.woken.Add(1)
	}
}

// alarm is when the cleaner sweeps next.
type alarm struct {
	at      atomic.Int64  // a stamp, or never; 0 if it looks each second
	earlier chan struct{} // has an element if at has become earlier
	woken   atomic.Int64  // how often the cleaner has been woken
}

func (a *alarm) init() { a.earlier = make(chan struct{}, 1) }

// expires tells the cleaner of an expiry. It does nothing if the cleaner is early enough.
func (a *alarm) expires(stamp int64) {
	stamp += cleanInterval.Microseconds()
	for {
		at := a.at.Load()
		if at <= stamp {
			return
		}
		if a.at.CompareAndSwap(at, stamp) {
			break
		}
	}
	select {
	case a.earlier <- struct{}{}:
	default:
	}
}

// setAlarm sets the alarm and returns the time until then. It reports false if nothing expires.
func (s *Store) setAlarm() (pause time.Duration, ok bool) {
	// First never, so that what is scheduled while this reads the expiries wakes the cleaner.
	s.alarm.at.Store(never)
	next := int64(never)
	for i := range s.shards {
		next = min(next, s.shards[i].nextExpiry.Load())
	}
	switch {
	case next == never:
		return 0, false
	case s.clock != nil:
		s.alarm.at.Store(0)
		return cleanInterval, true
	}
	next += cleanInterval.Microseconds()
	s.alarm.at.Store(next)
	return time.Duration(min(next-s.now(), never/1000)) * time.Microsecond, true
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
