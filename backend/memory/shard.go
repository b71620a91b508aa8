package memorystore

import (
	"hash/maphash"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/truewindow/ratelimit"
)

const (
	numShards  = 64
	shardShift = 64 - 6 // the shard is the top bits of the hash

	// chunkSize is the number of entries allocated at a time: with the allocator's header they fill 4 KiB. Their indices begin at
	// multiples of chunkStride.
	chunkSize   = 63
	chunkStride = 64

	none  = math.MaxUint32 // no entry
	never = math.MaxInt64  // no stamp
)

// shard holds the states of the keys with certain hashes. An entry is named by its index, so that neither the table nor the
// queue has pointers for the garbage collector to follow.
type shard struct {
	mu     sync.Mutex
	last   known
	table  table
	chunks []*[chunkSize]entry
	free   uint32 // first of the entries not in use, linked by next
	used   uint32 // indices ever used
	seed   maphash.Seed
	keys   *atomic.Int64 // of the store: each entry is counted there
	queue  wheel

	due atomic.Int64 // no state runs out before this stamp; to be read without the lock
	_   [112]byte    // makes up whole lines of the cache, an odd number, so that the locks do not compete for a place there
}

// entry is a state, in a line of the cache.
type entry struct {
	key     string
	history unique.Handle[history]
	state   []byte
	expires int64 // stamp from which on it may be forgotten
	link
}

// known is an algorithm and what it says of itself, which never changes, so that the next demand under it need not ask again.
type known struct {
	algorithm ratelimit.Algorithm
	max       int64
	history   unique.Handle[history]
}

// history is what, beside the key, tells two states apart.
type history struct{ limit, algorithm string }

func (s *Store) shard(hash uint64) *shard { return &s.shards[hash>>shardShift] }

func (sh *shard) init(seed maphash.Seed, keys *atomic.Int64, now int64) {
	sh.seed, sh.keys = seed, keys
	sh.queue.init(now)
	sh.reset()
}

// reset returns the memory of a shard without entries.
func (sh *shard) reset() {
	sh.table, sh.chunks = table{}, nil
	sh.free, sh.used = none, 0
	sh.due.Store(never)
}

func (sh *shard) entry(id uint32) *entry {
	return &sh.chunks[id/chunkStride][id%chunkStride]
}

// find returns the entry of d's state, or none. known says that d's algorithm is that of sh.last.
func (sh *shard) find(hash uint64, d *ratelimit.Demand, known bool) uint32 {
	for t := &sh.table; t != nil; t = t.old {
		mask := uint64(len(t.slots) - 1)
		if len(t.slots) == 0 {
			break
		}
		for i := uint64(uint32(hash)) & mask; t.slots[i] != 0; i = (i + 1) & mask {
			if s := t.slots[i]; uint32(s>>32) == uint32(hash) {
				id := uint32(s) - 1
				if e := sh.entry(id); e.key == d.Key && (known && e.history == sh.last.history || !known && sh.learn(e, d)) {
					return id
				}
			}
		}
	}
	return none
}

// learn reports whether e is of d's history, and if so remembers d's algorithm.
func (sh *shard) learn(e *entry, d *ratelimit.Demand) bool {
	limit := d.Algorithm.Limit()
	if h := e.history.Value(); h.limit != limit.Name || h.algorithm != d.Algorithm.Name() {
		return false
	}
	sh.last = known{d.Algorithm, limit.Max, e.history}
	return true
}

// step runs d on an entry.
func (sh *shard) step(id uint32, now int64, d *ratelimit.Demand) (ratelimit.Result, error) {
	e := sh.entry(id)
	next, keep, res := d.Algorithm.Step(e.state, now, *d)
	if keep > 0 {
		sh.store(id, next, now, keep)
	} else if keep < 0 {
		return ratelimit.Result{}, ratelimit.ErrCorruptState
	}
	return res, nil
}

// store keeps what a step returned.
func (sh *shard) store(id uint32, next []byte, now int64, keep time.Duration) {
	e := sh.entry(id)
	if len(next) == 0 {
		sh.queue.remove(sh, id)
		sh.drop(id)
		return
	}
	e.state = next
	before := e.expires
	e.expires = expiry(now, keep)
	if e.expires < before {
		sh.queue.remove(sh, id)
		sh.enqueue(id)
	}
}

// enqueue has the entry looked at when it runs out. Later, while it lives on, it stays where it is in the queue until then.
func (sh *shard) enqueue(id uint32) {
	tick := tickOf(sh.entry(id).expires)
	sh.queue.add(sh, id, tick)
	sh.due.Store(min(sh.due.Load(), stampOf(tick)))
}

// forget drops entries that have run out, looking at no more than most, and returns how many.
func (sh *shard) forget(now int64, most int) int {
	n := sh.queue.advance(sh, now, most)
	if sh.table.len() == 0 {
		sh.reset()
	} else {
		sh.due.Store(stampOf(sh.queue.next()))
	}
	return n
}

// forgetSome drops entries that have run out, if there are any, and returns how many.
func (sh *shard) forgetSome(now int64) (n int) {
	for n == 0 && sh.due.Load() <= now {
		n = sh.forget(now, cleanBatch)
	}
	return n
}

// drop takes an entry that is not in the queue out of the table and of Store.keys.
func (sh *shard) drop(id uint32) {
	e := sh.entry(id)
	sh.table.remove(maphash.String(sh.seed, e.key), id)
	*e = entry{link: link{next: sh.free}}
	sh.free = id
	sh.keys.Add(-1)
}

// insert adds an entry for a key that find does not know. Store.keys counts it already.
func (sh *shard) insert(hash uint64, d ratelimit.Demand, state []byte, expires int64) {
	id := sh.free
	if id != none {
		sh.free = sh.entry(id).next
	} else {
		if sh.used%chunkStride == chunkSize {
			sh.used++
		}
		if sh.used%chunkStride == 0 {
			sh.chunks = append(sh.chunks, new([chunkSize]entry))
		}
		id = sh.used
		sh.used++
	}
	if d.Algorithm != sh.last.algorithm {
		limit := d.Algorithm.Limit()
		sh.last = known{d.Algorithm, limit.Max, unique.Make(history{limit.Name, d.Algorithm.Name()})}
	}
	*sh.entry(id) = entry{
		key:     strings.Clone(d.Key), // the caller's may be a part of something large
		history: sh.last.history,
		state:   state,
		expires: expires,
	}
	sh.table.insert(hash, id)
	sh.enqueue(id)
}
