package memorystore

import (
	"bytes"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
)

// overflow holds the states that new keys share when the store is full, one for each algorithm
// value. Its lock is taken after those of shards.
type overflow struct {
	mu     sync.Mutex
	states map[ratelimit.Algorithm]overflowState
	n      atomic.Int32 // len(states), read without the lock

	demands atomic.Int64 // decided on these states
}

type overflowState struct {
	state   []byte
	expires int64
}

// live reports whether d's algorithm has a state that has not expired.
func (o *overflow) live(now int64, d ratelimit.Demand) bool {
	if o.n.Load() == 0 {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	shared, ok := o.states[d.Algorithm]
	return ok && now < shared.expires
}

// take decides a demand of a new key.
func (o *overflow) take(now int64, d ratelimit.Demand) (ratelimit.Result, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	next, keep, res := d.Step(o.state(d), now)
	if keep < 0 {
		return ratelimit.Result{}, ratelimit.ErrCorruptState
	}
	if keep > 0 {
		o.store(d, next, now, keep)
	}
	return res, nil
}

// state returns the state that d is decided on. mu is held, as for store and tentative.
func (o *overflow) state(d ratelimit.Demand) []byte { return o.states[d.Algorithm].state }

func (o *overflow) store(d ratelimit.Demand, next []byte, now int64, keep time.Duration) {
	o.states[d.Algorithm] = overflowState{next, expiry(now, keep)}
	o.n.Store(int32(len(o.states)))
}

// tentative are steps on copies of overflow states. A TakeAll may have several demands on one of
// them, so each demand is decided on the state that the one before has left, and only commit
// writes.
type tentative struct {
	overflow *overflow
	now      int64
	states   map[ratelimit.Algorithm]*tentativeState
}

type tentativeState struct {
	demand ratelimit.Demand // one of those decided on it
	state  []byte
	keep   time.Duration // 0: nothing was written
}

func (o *overflow) tentative(now int64) tentative {
	return tentative{o, now, make(map[ratelimit.Algorithm]*tentativeState)}
}

func (t tentative) step(d ratelimit.Demand) (ratelimit.Result, error) {
	s := t.states[d.Algorithm]
	if s == nil {
		s = &tentativeState{demand: d, state: bytes.Clone(t.overflow.state(d))}
		t.states[d.Algorithm] = s
	}
	next, keep, res := d.Step(s.state, t.now)
	if keep < 0 {
		return ratelimit.Result{}, ratelimit.ErrCorruptState
	}
	if keep > 0 {
		s.state, s.keep = next, keep
	}
	return res, nil
}

func (t tentative) commit() {
	for _, s := range t.states {
		if s.keep > 0 {
			t.overflow.store(s.demand, s.state, t.now, s.keep)
		}
	}
}

// expire removes the states that have expired.
func (o *overflow) expire(clock func() int64) {
	if o.n.Load() == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := clock()
	maps.DeleteFunc(o.states, func(_ ratelimit.Algorithm, shared overflowState) bool {
		return shared.expires <= now
	})
	o.n.Store(int32(len(o.states)))
}
