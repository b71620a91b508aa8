package denycache

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/truewindow/ratelimit/backend/internal/batch"
	"github.com/truewindow/ratelimit/driver"
)

// The most that an entry takes besides its keys: for itself, its refusal and its share of the index
// by demands, and for each of its demands. TestCacheMemory measures it.
const (
	entryBytes  = 185
	memberBytes = 265
)

// entry is what is cached of demands that are decided together. Entries of the same demands may
// differ in N only.
type entry struct {
	hash    uint64 // of the keys
	members []member
	refusal atomic.Pointer[refusal] // nil if none has come yet

	// The mutex of its demandShard guards these.
	next       *entry // with the same hash
	rechecking bool   // a recheck is in flight
}

// member is one demand of an entry.
type member struct {
	key       string // as CopyKey returns it
	storedKey string
	algorithm driver.Algorithm
}

// newEntry returns an entry for a recheck of g.
func newEntry(hash uint64, g *batch.Group) *entry {
	e := &entry{hash: hash, members: make([]member, len(g.Demands)), rechecking: true}
	for i := range e.members {
		e.members[i] = member{g.Demands[i].Key, g.Keys[i], g.Demands[i].Algorithm}
	}
	return e
}

func (e *entry) size() int64 {
	n := entryBytes + len(e.members)*memberBytes
	for i := range e.members {
		n += len(e.members[i].key) + len(e.members[i].storedKey)
	}
	return int64(n)
}

// isOf reports whether e is the entry of ds.
func (e *entry) isOf(ds []driver.Demand) bool {
	if len(e.members) != len(ds) {
		return false
	}
	for i := range ds {
		m := &e.members[i]
		if m.key != ds[i].Key || m.algorithm != ds[i].Algorithm {
			return false
		}
	}
	return true
}

// index finds entries by their demands and by each of their stored keys.
type index struct {
	seed    maphash.Seed
	usage   usage
	demands [shards]demandShard
	states  [shards]stateShard
}

const shards = 64

type demandShard struct {
	mu      sync.RWMutex
	entries map[uint64]*entry // by hash; the first of those that share it
	hits    atomic.Int64
	_       [64]byte // shards do not share a cache line
}

type stateShard struct {
	mu      sync.Mutex
	entries map[string][]*entry
	freeing map[string]int // demands in flight that may free units
}

func (x *index) init(maxEntries, maxBytes int64) {
	x.seed = maphash.MakeSeed()
	x.usage.maxEntries, x.usage.maxBytes = maxEntries, maxBytes
	for i := range shards {
		x.demands[i].entries = make(map[uint64]*entry)
		x.states[i].entries = make(map[string][]*entry)
		x.states[i].freeing = make(map[string]int)
	}
}

// hash returns a hash of the keys of ds, which no caller can predict.
func (x *index) hash(ds []driver.Demand) (hash uint64) {
	var key uint64
	for i := range ds {
		if i == 0 || ds[i].Key != ds[i-1].Key {
			key = maphash.String(x.seed, ds[i].Key)
		}
		hash = hash*0x9e3779b97f4a7c15 + key
	}
	return hash
}

func (x *index) byDemands(hash uint64) *demandShard { return &x.demands[hash%shards] }

func (x *index) byState(storedKey string) *stateShard {
	return &x.states[maphash.String(x.seed, storedKey)%shards]
}

// find returns the entry of ds, or nil. s is locked.
func (s *demandShard) find(hash uint64, ds []driver.Demand) *entry {
	e := s.entries[hash]
	for e != nil && !e.isOf(ds) {
		e = e.next
	}
	return e
}

// unlink removes e from s, which is locked, and reports whether it was there.
func (s *demandShard) unlink(e *entry) bool {
	first := s.entries[e.hash]
	if first == e {
		if e.next == nil {
			delete(s.entries, e.hash)
		} else {
			s.entries[e.hash] = e.next
		}
		return true
	}
	for ; first != nil; first = first.next {
		if first.next == e {
			first.next = e.next
			return true
		}
	}
	return false
}

// add adds e, which is counted already, and reports whether units of one of its states may be freed
// meanwhile. shard is locked.
func (x *index) add(shard *demandShard, e *entry) (freeing bool) {
	e.next = shard.entries[e.hash]
	shard.entries[e.hash] = e
	for i := range e.members {
		key := e.members[i].storedKey
		states := x.byState(key)
		states.mu.Lock()
		states.entries[key] = append(states.entries[key], e)
		freeing = freeing || states.freeing[key] > 0
		states.mu.Unlock()
	}
	return freeing
}

// remove removes e from both indexes, if it is there. shard is locked.
func (x *index) remove(shard *demandShard, e *entry) {
	e.refusal.Store(removed)
	if !shard.unlink(e) {
		return
	}
	x.usage.subtract(e.size())
	for i := range e.members {
		key := e.members[i].storedKey
		states := x.byState(key)
		states.mu.Lock()
		states.remove(key, e)
		states.mu.Unlock()
	}
}

// remove removes e from the entries of a state. s is locked.
func (s *stateShard) remove(storedKey string, e *entry) {
	entries := s.entries[storedKey]
	i := slices.Index(entries, e)
	switch {
	case i < 0:
	case len(entries) == 1:
		delete(s.entries, storedKey)
	default:
		s.entries[storedKey] = slices.Delete(entries, i, i+1)
	}
}

// removeState removes all entries of a state, and adds delta to the number of demands in flight
// that may free units of it.
func (x *index) removeState(storedKey string, delta int) {
	states := x.byState(storedKey)
	states.mu.Lock()
	if delta != 0 {
		if states.freeing[storedKey] += delta; states.freeing[storedKey] == 0 {
			delete(states.freeing, storedKey)
		}
	}
	entries := states.entries[storedKey]
	delete(states.entries, storedKey)
	markRemoved(entries)
	states.mu.Unlock()
	x.removeMarked(entries)
}

// removeAll removes all entries.
func (x *index) removeAll() {
	for i := range x.states {
		states := &x.states[i]
		states.mu.Lock()
		all := states.entries
		states.entries = make(map[string][]*entry)
		for _, entries := range all {
			markRemoved(entries)
		}
		states.mu.Unlock()
		for _, entries := range all {
			x.removeMarked(entries)
		}
	}
}

// markRemoved marks entries so that their refusals are not returned any more.
func markRemoved(entries []*entry) {
	for _, e := range entries {
		e.refusal.Store(removed)
	}
}

func (x *index) removeMarked(entries []*entry) {
	for _, e := range entries {
		shard := x.byDemands(e.hash)
		shard.mu.Lock()
		x.remove(shard, e)
		shard.mu.Unlock()
	}
}

func (x *index) hits() (n int64) {
	for i := range x.demands {
		n += x.demands[i].hits.Load()
	}
	return n
}
