package memorystore

import (
	"math"
	"unique"
)

const (
	// chunkSize is the number of entries allocated at a time: with the allocator's header they fill
	// 4 KiB. Their indices begin at multiples of chunkStride.
	chunkSize   = 63
	chunkStride = 64

	none = math.MaxUint32 // no entry
)

// entries are the states of a shard. An entry is named by its index, so that neither the table nor
// the wheel has pointers for the garbage collector to follow.
type entries struct {
	chunks []*[chunkSize]entry
	free   uint32 // first of the entries not in use, linked by next
	used   uint32 // indices ever used
}

// entry is a state. It fills a cache line.
type entry struct {
	key     string
	history unique.Handle[stateName]
	state   []byte
	expires int64 // stamp from which on it may be removed
	link
}

// link connects an entry to the others in its list: that of a wheel's slot, or of the free entries.
type link struct{ prev, next uint32 }

// stateName is the part of a state's identity besides the key.
type stateName struct{ limit, algorithm string }

// reset removes all entries and returns their memory.
func (es *entries) reset() { *es = entries{free: none} }

func (es *entries) at(id uint32) *entry {
	return &es.chunks[id/chunkStride][id%chunkStride]
}

// add returns the index of an unused entry.
func (es *entries) add() uint32 {
	id := es.free
	if id != none {
		es.free = es.at(id).next
		return id
	}
	if es.used%chunkStride == chunkSize {
		es.used++
	}
	if es.used%chunkStride == 0 {
		es.chunks = append(es.chunks, new([chunkSize]entry))
	}
	id = es.used
	es.used++
	return id
}

// remove clears an entry and returns it to the unused ones.
func (es *entries) remove(id uint32) {
	*es.at(id) = entry{link: link{next: es.free}}
	es.free = id
}
