package memorystore

import (
	"context"
	"hash/maphash"
	"math/bits"
	"slices"
	"time"

	"github.com/truewindow/ratelimit"
)

// takeAll is a TakeAll under way. With the shards of all its keys locked, it
//
//   - finds the state of each key,
//   - reserves room for the states of new keys, or fails,
//   - peeks: evaluates each demand without applying it, and ends here if one is refused,
//   - takes: applies all demands,
//   - and releases the reserved room that no new state uses.
//
// The demands, their targets and the results are arguments of the steps, not fields: the compiler
// would put fields on the heap.
type takeAll struct {
	store    *Store
	now      int64
	locked   uint64 // set of shards
	reserved int64  // states counted in Store.keys that do not exist yet
	shared   bool   // some demands are decided on overflow states
}

// target is the state that a demand is decided on.
type target struct {
	hash uint64
	id   uint32 // in its shard; none if the key is new
	room room   // of a new key
}

// TakeAll decides several demands as one. Errors are those of Take and of [ratelimit.CheckTakeAll].
func (s *Store) TakeAll(
	ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result,
) error {
	if err := ratelimit.CheckTakeAll(ctx, ds, out); err != nil {
		return err
	}
	if s.closed.Load() {
		return ratelimit.ErrClosed
	}
	ds = shortened(ds)
	var few [8]target
	targets := few[:0]
	t := takeAll{store: s}
	for i := range ds {
		var hash uint64
		if i > 0 && ds[i].Key == ds[i-1].Key { // the limits of a limiter
			hash = targets[i-1].hash
		} else {
			hash = maphash.String(s.seed, ds[i].Key)
		}
		targets = append(targets, target{hash: hash})
		t.locked |= setOf(hash)
	}
	s.lock(t.locked)
	defer s.unlock(t.locked)
	t.now = s.now()

	t.find(targets, ds)
	defer t.release()
	if err := t.reserve(targets, ds); err != nil {
		return err
	}
	if t.shared {
		s.overflow.mu.Lock()
		defer s.overflow.mu.Unlock()
	}
	if admitted, err := t.peek(targets, ds, out); err != nil || !admitted {
		return err
	}
	return t.take(targets, ds, out)
}

// find finds the states of all keys. If there is no room for those of new keys, it expires states
// in the locked shards. The later steps may not: they could remove a state that was found.
func (t *takeAll) find(targets []target, ds []ratelimit.Demand) {
	unknown := t.findStates(targets, ds)
	if unknown == 0 || t.store.keys.Load()+unknown <= t.store.maxKeys {
		return
	}
	for set := t.locked; set != 0; set &= set - 1 {
		t.store.shards[bits.TrailingZeros64(set)].expireAll(t.now)
	}
	t.findStates(targets, ds)
}

// findStates finds the states of all keys and returns how many keys have none.
func (t *takeAll) findStates(targets []target, ds []ratelimit.Demand) (unknown int64) {
	for i := range targets {
		at := &targets[i]
		sh, d := t.store.shard(at.hash), &ds[i]
		if at.id = sh.find(at.hash, d.Key, d.Algorithm, sh.known(d.Algorithm)); at.id == none {
			unknown++
		}
	}
	return unknown
}

// reserve finds room for the states of new keys.
func (t *takeAll) reserve(targets []target, ds []ratelimit.Demand) (err error) {
	for i := range targets {
		at := &targets[i]
		if at.id != none {
			continue
		}
		if at.room, err = t.store.findRoom(nil, t.locked, t.now, ds[i]); err != nil {
			return err
		}
		switch at.room {
		case ownRoom:
			t.reserved++
		case sharedRoom:
			t.shared = true
		}
	}
	return nil
}

// release returns the reserved room that no new state uses.
func (t *takeAll) release() {
	if t.reserved != 0 {
		t.store.keys.Add(-t.reserved)
	}
}

// peek evaluates each demand without applying it, and reports whether all are allowed.
func (t *takeAll) peek(
	targets []target, ds []ratelimit.Demand, out []ratelimit.Result,
) (allowed bool, err error) {
	allowed = true
	for i := range targets {
		if err = t.peekOne(&targets[i], &ds[i], &out[i]); err != nil {
			return false, err
		}
		allowed = allowed && out[i].Allowed
	}
	return allowed, nil
}

func (t *takeAll) peekOne(at *target, d *ratelimit.Demand, out *ratelimit.Result) error {
	sh, overflow := t.store.shard(at.hash), t.store.overflow
	exists, shared := at.id != none, at.room == sharedRoom
	var state []byte
	if exists {
		state = sh.entries.at(at.id).state
	} else if shared {
		state = overflow.state(*d)
	}
	var next []byte
	var keep time.Duration
	if d.Op <= ratelimit.OpPeek {
		next, keep = decide(state, t.now, d, ratelimit.OpPeek, out)
	} else {
		next, keep, *out = d.Peek(state, t.now)
	}
	switch {
	case keep < 0:
		return ratelimit.ErrCorruptState
	case keep == 0: // nothing to write
	case exists && len(next) == 0:
		// The entry stays until it expires: the demand may be recorded on it.
		sh.entries.at(at.id).state = nil
	case exists:
		sh.store(at.id, next, t.now, keep)
	case shared:
		overflow.store(*d, next, t.now, keep)
	}
	return nil
}

// take applies all demands, which peek has allowed.
func (t *takeAll) take(
	targets []target, ds []ratelimit.Demand, out []ratelimit.Result,
) error {
	if t.shared {
		if admitted, err := t.takeShared(targets, ds, out); err != nil || !admitted {
			return err
		}
	}
	for i := range targets {
		if err := t.takeOne(&targets[i], &ds[i], &out[i]); err != nil {
			return err
		}
	}
	return nil
}

// takeShared applies the demands on overflow states. Several of them may share a state, so a demand
// may be refused although its peek was allowed. Then its Result is set, and nothing else changes.
func (t *takeAll) takeShared(
	targets []target, ds []ratelimit.Demand, out []ratelimit.Result,
) (admitted bool, err error) {
	steps := t.store.overflow.tentative(t.now)
	results := slices.Clone(out)
	for i := range targets {
		if targets[i].room != sharedRoom {
			continue
		}
		res, err := steps.step(ds[i])
		if err != nil {
			return false, err
		}
		if !res.Allowed {
			out[i] = res
			return false, nil
		}
		results[i] = res
	}
	steps.commit()
	copy(out, results)
	return true, nil
}

// takeOne applies a demand, unless takeShared has applied it.
func (t *takeAll) takeOne(at *target, d *ratelimit.Demand, out *ratelimit.Result) error {
	sh := t.store.shard(at.hash)
	switch {
	case at.id != none:
		return sh.step(at.id, t.now, d, out)
	case at.room == sharedRoom:
		return nil
	}
	next, keep, res := d.Step(nil, t.now)
	*out = res
	if keep > 0 && len(next) > 0 {
		sh.insert(at.hash, *d, next, expiry(t.now, keep))
		t.reserved--
	}
	return nil
}
