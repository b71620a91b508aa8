package memorystore

import (
	"bytes"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
)

// overflow holds the states that unknown keys share when the store is full, one for each algorithm value.
// Its lock is taken after those of shards.
type overflow struct {
	mu   sync.Mutex
	logs map[ratelimit.Algorithm]*overflowLog
	n    atomic.Int32 // len(logs), to be read without the lock

	demands atomic.Int64 // that were decided here
}

type overflowLog struct {
	state   []byte
	expires int64
}

// live reports whether d's algorithm has a state that has not run out.
func (o *overflow) live(now int64, d ratelimit.Demand) bool {
	if o.n.Load() == 0 {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	log := o.logs[d.Algorithm]
	return log != nil && now < log.expires
}

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

// state returns the state that d is decided on. mu is held, as for store and takeAll.
func (o *overflow) state(d ratelimit.Demand) []byte {
	if log := o.logs[d.Algorithm]; log != nil {
		return log.state
	}
	return nil
}

func (o *overflow) store(d ratelimit.Demand, next []byte, now int64, keep time.Duration) {
	o.logs[d.Algorithm] = &overflowLog{next, expiry(now, keep)}
	o.n.Store(int32(len(o.logs)))
}

// takeAll takes those demands whose target is the overflow, several of which may share a state: on copies, which replace the states
// only when all are admitted. If one is refused, its Result is set and nothing else changes.
func (o *overflow) takeAll(targets []target, now int64, ds []ratelimit.Demand, out []ratelimit.Result) (admitted bool, err error) {
	type taken struct {
		d     ratelimit.Demand
		state []byte
		keep  time.Duration
	}
	states := make(map[ratelimit.Algorithm]*taken)
	results := slices.Clone(out)
	for i, t := range targets {
		if t.place != inOverflow {
			continue
		}
		d := ds[i]
		s := states[d.Algorithm]
		if s == nil {
			s = &taken{d: d, state: bytes.Clone(o.state(d))}
			states[d.Algorithm] = s
		}
		next, keep, res := d.Step(s.state, now)
		if keep < 0 {
			return false, ratelimit.ErrCorruptState
		}
		if !res.Allowed {
			out[i] = res
			return false, nil
		}
		if keep > 0 {
			s.state, s.keep = next, keep
		}
		results[i] = res
	}
	for _, s := range states {
		if s.keep > 0 {
			o.store(s.d, s.state, now, s.keep)
		}
	}
	copy(out, results)
	return true, nil
}

// forget drops the states that have run out.
func (o *overflow) forget(clock func() int64) {
	if o.n.Load() == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := clock()
	maps.DeleteFunc(o.logs, func(_ ratelimit.Algorithm, log *overflowLog) bool { return log.expires <= now })
	o.n.Store(int32(len(o.logs)))
}
