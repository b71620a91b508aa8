package memorystore

import (
	"context"
	"hash/maphash"
	"math/bits"
	"time"
	"unique"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/longkey"
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
}

// target is the state that a demand is decided on.
type target struct {
	hash uint64
	id   uint32 // in its shard; none if the key is new
}

// TakeAll decides several demands as one. Errors are those of Take and of [driver.CheckTakeAll].
func (s *Store) TakeAll(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) error {
	if err := driver.CheckTakeAll(ctx, ds, out); err != nil {
		return err
	}
	if s.closed.Load() {
		return driver.ErrClosed
	}
	ds = longkey.Demands(ds)
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

	defer t.release()
	t.find(targets, ds)
	if !t.reserve(targets, ds) {
		t.expire()
		t.find(targets, ds)
		if !t.reserve(targets, ds) {
			s.refused.Add(1)
			return driver.ErrCapacity
		}
	}
	if len(ds) > 1 || ds[0].Least > 0 {
		if admitted, err := t.peek(targets, ds, out); err != nil || !admitted {
			return err
		}
		ds = driver.Grant(ds, out)
	}
	return t.take(targets, ds, out)
}

// find finds the states of all keys.
func (t *takeAll) find(targets []target, ds []driver.Demand) {
	for i := range targets {
		at := &targets[i]
		sh, d := t.store.shard(at.hash), &ds[i]
		at.id = sh.find(at.hash, d.Key, d.Algorithm, sh.known(d.Algorithm))
	}
}

// reserve reserves room for the states of new keys, more than it has reserved before, and reports
// whether there is room for all. It expires no state of the locked shards, which find may have
// found.
func (t *takeAll) reserve(targets []target, ds []driver.Demand) bool {
	var needed int64
	for i := range targets {
		if targets[i].id == none && mayAdd(ds[i].Op) {
			needed++
		}
	}
	for ; t.reserved < needed; t.reserved++ {
		if !t.store.findRoom(nil, t.locked, t.now) {
			return false
		}
	}
	return true
}

// expire expires states in the locked shards.
func (t *takeAll) expire() {
	for set := t.locked; set != 0; set &= set - 1 {
		t.store.shards[bits.TrailingZeros64(set)].expireAll(t.now)
	}
}

// release returns the reserved room that no new state uses.
func (t *takeAll) release() {
	if t.reserved != 0 {
		t.store.keys.Add(-t.reserved)
	}
}

// peek evaluates each demand without applying it, and reports whether all are allowed.
func (t *takeAll) peek(
	targets []target, ds []driver.Demand, out []driver.Result,
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

func (t *takeAll) peekOne(at *target, d *driver.Demand, out *driver.Result) error {
	sh, exists := t.store.shard(at.hash), at.id != none
	var state []byte
	if exists {
		state = sh.entries.at(at.id).state
	}
	var next []byte
	var keep time.Duration
	if d.Op <= driver.OpPeek && d.Least == 0 {
		next, keep = decide(state, t.now, d, driver.OpPeek, out)
	} else {
		next, keep, *out = d.Peek(working(state, d.Algorithm), t.now)
	}
	switch {
	case keep < 0:
		return driver.ErrCorruptState
	case keep == 0 || !exists: // nothing to write
	case len(next) == 0:
		// The entry stays for now: the demand may be recorded on it.
		sh.empty(at.id, t.now)
	default:
		sh.store(at.id, next, t.now, keep)
	}
	return nil
}

// take applies all demands, which peek has allowed. The steps of algorithms that are not ours come
// first, on copies: if one of them panics or fails, nothing has been written.
func (t *takeAll) take(
	targets []target, ds []driver.Demand, out []driver.Result,
) error {
	var decided []write
	for i := range targets {
		if isOurs(ds[i].Algorithm) {
			continue
		}
		if decided == nil {
			decided = make([]write, len(targets))
		}
		if err := t.step(&targets[i], &ds[i], &out[i], &decided[i]); err != nil {
			return err
		}
	}
	for i := range targets {
		var w write
		if isOurs(ds[i].Algorithm) {
			if err := t.step(&targets[i], &ds[i], &out[i], &w); err != nil {
				return err
			}
		} else {
			w = decided[i]
		}
		t.write(&targets[i], &ds[i], w)
	}
	return nil
}

// write is what a step wants written.
type write struct {
	next    []byte
	keep    time.Duration            // 0: nothing
	history unique.Handle[stateName] // of a new state
}

// step runs the step of d and sets its result and what is to be written.
func (t *takeAll) step(
	at *target, d *driver.Demand, out *driver.Result, w *write,
) error {
	sh := t.store.shard(at.hash)
	var state []byte
	if at.id != none {
		state = sh.entries.at(at.id).state
	}
	if w.next, w.keep = decide(state, t.now, d, d.Op, out); w.keep < 0 {
		return driver.ErrCorruptState
	}
	if at.id == none && w.keep > 0 {
		w.history = sh.stateNameOf(d.Algorithm)
	}
	return nil
}

func (t *takeAll) write(at *target, d *driver.Demand, w write) {
	sh := t.store.shard(at.hash)
	switch {
	case w.keep == 0:
	case at.id != none:
		sh.store(at.id, w.next, t.now, w.keep)
	case len(w.next) == 0:
	case mayAdd(d.Op):
		t.reserved--
		sh.insert(at.hash, d.Key, w.history, w.next, expiry(t.now, w.keep))
	case t.store.findRoom(nil, t.locked, t.now):
		sh.insert(at.hash, d.Key, w.history, w.next, expiry(t.now, w.keep))
	}
}
