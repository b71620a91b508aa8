package memorystore

import (
	"bytes"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

const (
	numShards  = 64
	shardShift = 64 - 6 // the top bits of a hash choose the shard
)

// shard holds the states of the keys with certain hashes.
type shard struct {
	mu      sync.Mutex
	last    described
	table   table
	entries entries
	seed    maphash.Seed
	keys    *atomic.Int64 // Store.keys, which counts each entry
	alarm   *alarm
	wheel   wheel // has each entry

	nextExpiry atomic.Int64 // no state expires before this stamp; read without the lock

	others [3]described // algorithms before last, replaced in turn
	turn   int

	// With this padding a shard fills an odd number of cache lines, so that the locks of the shards
	// do not compete for the same cache sets.
	_ [112]byte
}

// described is an algorithm with what its methods return, which never changes. The next demand with
// an equal algorithm needs no calls.
type described struct {
	algorithm driver.Algorithm
	max       int64
	history   unique.Handle[stateName]
}

func (sh *shard) init(seed maphash.Seed, keys *atomic.Int64, alarm *alarm, now int64) {
	sh.seed, sh.keys, sh.alarm = seed, keys, alarm
	sh.wheel.init(now)
	sh.reset()
}

// reset returns the memory of a shard without entries.
func (sh *shard) reset() {
	sh.table = table{}
	sh.entries.reset()
	sh.nextExpiry.Store(never)
}

// known returns what the shard remembers of an algorithm, or nil.
func (sh *shard) known(a driver.Algorithm) *described {
	if a == sh.last.algorithm {
		return &sh.last
	}
	for i := range sh.others {
		if a == sh.others[i].algorithm {
			return &sh.others[i]
		}
	}
	return nil
}

// remember makes k, an algorithm that is not known, the last one.
func (sh *shard) remember(k described) {
	sh.others[sh.turn] = sh.last
	sh.turn = (sh.turn + 1) % len(sh.others)
	sh.last = k
}

// find returns the entry of a key's state, or none. known is sh.known(a).
func (sh *shard) find(
	hash uint64, key string, a driver.Algorithm, known *described,
) uint32 {
	for t := &sh.table; t != nil; t = t.old {
		if len(t.slots) == 0 {
			break
		}
		for i := t.home(hash << 32); t.slots[i] != 0; i = t.after(i) {
			s := t.slots[i]
			if uint32(s>>32) != uint32(hash) {
				continue
			}
			id := uint32(s) - 1
			e := sh.entries.at(id)
			if e.key != key {
				continue
			}
			if known != nil && e.history == known.history || known == nil && sh.sameHistory(e, a) {
				return id
			}
		}
	}
	return none
}

// sameHistory reports whether e is of a's history. If so, it remembers a, which is not known.
func (sh *shard) sameHistory(e *entry, a driver.Algorithm) bool {
	limit := a.Limit()
	if h := e.history.Value(); h.limit != limit.Name || h.algorithm != a.Name() {
		return false
	}
	sh.remember(described{a, limit.Max, e.history})
	return true
}

// stateNameOf returns the stateName of an algorithm, and remembers the algorithm.
func (sh *shard) stateNameOf(a driver.Algorithm) unique.Handle[stateName] {
	known := sh.known(a)
	if known == nil {
		limit := a.Limit()
		sh.remember(described{a, limit.Max, unique.Make(stateName{limit.Name, a.Name()})})
		known = &sh.last
	}
	return known.history
}

// step runs d on the state of an entry.
func (sh *shard) step(id uint32, now int64, d *driver.Demand, out *driver.Result) error {
	next, keep := decide(sh.entries.at(id).state, now, d, d.Op, out)
	if keep > 0 {
		sh.store(id, next, now, keep)
	} else if keep < 0 {
		return driver.ErrCorruptState
	}
	return nil
}

// A fieldStepper is an algorithm with a form of Step that copies neither the demand nor the result.
type fieldStepper interface {
	Decide(state []byte, now int64, op driver.Op, n, at int64) (
		next []byte, keep time.Duration, allowed bool,
		remaining int64, retryAfter, resetAfter time.Duration)
}

// fieldStepperOf returns a if it is a fieldStepper of this module, else nil. A type that embeds one
// of them has its Decide too, and perhaps another Step.
func fieldStepperOf(a driver.Algorithm) fieldStepper {
	switch a := a.(type) {
	case algorithm.Log:
		return a
	case algorithm.Bucket:
		return a
	case algorithm.Fixed:
		return a
	case algorithm.Counter:
		return a
	}
	return nil
}

// isOurs reports whether a is an algorithm of this module. Their steps do not panic.
func isOurs(a driver.Algorithm) bool {
	if fieldStepperOf(a) != nil {
		return true
	}
	switch a := a.(type) {
	case algorithm.Block:
		return true
	case algorithm.Held:
		return a.InFlight() || isOurs(a.Inside())
	}
	return false
}

// working returns state for a step of a. An algorithm that is not ours gets a copy: if it panics,
// the state is as it was.
func working(state []byte, a driver.Algorithm) []byte {
	if isOurs(a) {
		return state
	}
	return bytes.Clone(state)
}

// decide runs d on a state, with op instead of its own, and writes the result to out.
func decide(
	state []byte, now int64, d *driver.Demand, op driver.Op, out *driver.Result,
) (next []byte, keep time.Duration) {
	a := fieldStepperOf(d.Algorithm)
	if a == nil {
		other := *d
		other.Op = op
		next, keep, *out = other.Step(working(state, d.Algorithm), now)
		return next, keep
	}
	next, keep, out.Allowed, out.Remaining, out.RetryAfter, out.ResetAfter =
		a.Decide(state, now, op, d.N, d.At)
	out.Source, out.Limit = driver.SourceStore, d.Algorithm.Limit()
	out.Units = driver.Taken(op, d.N, out.Allowed)
	return next, keep
}

// store writes what a step returned.
func (sh *shard) store(id uint32, next []byte, now int64, keep time.Duration) {
	e := sh.entries.at(id)
	if len(next) == 0 {
		sh.wheel.remove(&sh.entries, id)
		sh.drop(id)
		return
	}
	e.state = next
	before := e.expires
	e.expires = expiry(now, keep)
	if e.expires < before {
		sh.wheel.remove(&sh.entries, id)
		sh.schedule(id)
	}
}

// empty empties the state of an entry, which may be removed from now on.
func (sh *shard) empty(id uint32, now int64) {
	e := sh.entries.at(id)
	e.state, e.expires = nil, now
	sh.wheel.remove(&sh.entries, id)
	sh.schedule(id)
}

// insert adds an entry for a key that find has not found. Store.keys counts it already.
func (sh *shard) insert(
	hash uint64, key string, h unique.Handle[stateName], state []byte, expires int64,
) {
	id := sh.entries.add()
	*sh.entries.at(id) = entry{
		key:     strings.Clone(key), // the caller's may be a part of something large
		history: h,
		state:   state,
		expires: expires,
	}
	sh.table.insert(hash, id)
	sh.schedule(id)
}

// drop removes an entry that is not in the wheel.
func (sh *shard) drop(id uint32) {
	sh.table.remove(maphash.String(sh.seed, sh.entries.at(id).key), id)
	sh.entries.remove(id)
	sh.keys.Add(-1)
}

// schedule puts an entry into the wheel, which checks it at its present expiry. If the expiry moves
// to a later time, the entry stays where it is until then.
func (sh *shard) schedule(id uint32) {
	expires := sh.entries.at(id).expires
	sh.wheel.add(&sh.entries, id, expires)
	if expires < sh.nextExpiry.Load() {
		sh.nextExpiry.Store(expires)
		sh.alarm.expires(expires)
	}
}

// expire drops expired entries and returns how many. It checks no more than most.
func (sh *shard) expire(now int64, most int) int {
	n := sh.wheel.advance(&sh.entries, now, most, sh.drop)
	if sh.table.len() == 0 {
		sh.reset()
	} else {
		sh.nextExpiry.Store(sh.wheel.next())
	}
	return n
}

// expireSome drops some expired entries, if there are any, and returns how many.
func (sh *shard) expireSome(now int64) (n int) {
	for n == 0 && sh.nextExpiry.Load() <= now {
		n = sh.expire(now, expireBatch)
	}
	return n
}

// expireAll drops all expired entries.
func (sh *shard) expireAll(now int64) {
	for sh.nextExpiry.Load() <= now {
		sh.expire(now, expireBatch)
	}
}

// expireBatch is the largest number of entries that the cleaner, and a demand without room, check
// under one lock.
const expireBatch = 256

// expiry returns the stamp from which on a state may be removed.
func expiry(now int64, keep time.Duration) int64 {
	return now + int64((keep+time.Microsecond-1)/time.Microsecond)
}
