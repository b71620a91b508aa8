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

	// chunkSize is the number of entries allocated at a time.
	chunkSize = 64

	none  = math.MaxUint32 // no entry
	never = math.MaxInt64  // no stamp
)

// shard holds the states of the keys with certain hashes. An entry is named by its index, so that neither the table nor the
// queue has pointers for the garbage collector to follow.
type shard struct {
	mu     sync.Mutex
	seed   maphash.Seed
	keys   *atomic.Int64     // of the store: each entry is counted there
	table  map[uint64]uint32 // hash to the first entry of its chain
	chunks []*[chunkSize]entry
	free   uint32 // first of the entries not in use, chained
	used   uint32 // entries ever used
	queue  wheel

	due atomic.Int64 // no state runs out before this stamp; to be read without the lock
	_   [64]byte     // keeps neighbours' locks off this cache line
}

// entry is a state. Entries of one hash are chained: several limits of one key, and collisions.
type entry struct {
	key     string
	history unique.Handle[history]
	state   []byte
	expires int64  // stamp from which on it may be forgotten
	chain   uint32 // next entry of the same hash, or next free one
	link
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
	sh.table, sh.chunks = make(map[uint64]uint32), nil
	sh.free, sh.used = none, 0
	sh.due.Store(never)
}

func (sh *shard) entry(id uint32) *entry {
	return &sh.chunks[id/chunkSize][id%chunkSize]
}

// find returns the entry of d's state, or none.
func (sh *shard) find(hash uint64, d *ratelimit.Demand) uint32 {
	id, ok := sh.table[hash]
	if !ok {
		return none
	}
	limit, algorithm := d.Algorithm.Limit().Name, d.Algorithm.Name()
	for ; id != none; id = sh.entry(id).chain {
		e := sh.entry(id)
		if h := e.history.Value(); e.key == d.Key && h.limit == limit && h.algorithm == algorithm {
			return id
		}
	}
	return none
}

// step runs d on an entry.
func (sh *shard) step(id uint32, now int64, d ratelimit.Demand) (ratelimit.Result, error) {
	next, keep, res := d.Step(sh.entry(id).state, now)
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
	if len(sh.table) == 0 {
		sh.reset()
	} else {
		sh.due.Store(stampOf(sh.queue.next()))
	}
	return n
}

// drop takes an entry that is not in the queue out of the table and of Store.keys.
func (sh *shard) drop(id uint32) {
	e := sh.entry(id)
	hash := maphash.String(sh.seed, e.key)
	if first := sh.table[hash]; first != id {
		for sh.entry(first).chain != id {
			first = sh.entry(first).chain
		}
		sh.entry(first).chain = e.chain
	} else if e.chain != none {
		sh.table[hash] = e.chain
	} else {
		delete(sh.table, hash)
	}
	*e = entry{chain: sh.free}
	sh.free = id
	sh.keys.Add(-1)
}

// insert adds an entry for a key that find does not know. Store.keys counts it already.
func (sh *shard) insert(hash uint64, d ratelimit.Demand, state []byte, expires int64) {
	id := sh.free
	if id != none {
		sh.free = sh.entry(id).chain
	} else {
		id = sh.used
		if id%chunkSize == 0 {
			sh.chunks = append(sh.chunks, new([chunkSize]entry))
		}
		sh.used++
	}
	first, ok := sh.table[hash]
	if !ok {
		first = none
	}
	*sh.entry(id) = entry{
		key:     strings.Clone(d.Key), // the caller's may be a part of something large
		history: unique.Make(history{d.Algorithm.Limit().Name, d.Algorithm.Name()}),
		state:   state,
		expires: expires,
		chain:   first,
	}
	sh.table[hash] = id
	sh.enqueue(id)
}
