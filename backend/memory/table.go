package memorystore

// table finds entries by hash: open addressing with linear probing. A slot has 32 bits of the hash
// and the index of an entry, so neither finding nor growing touches entries whose hashes differ. A
// table that grows moves a few slots with each insertion, so that no decision waits for all of
// them.
type table struct {
	slots []uint64
	used  int    // slots in use
	old   *table // the smaller table that is being emptied; nil: none
	moved int    // slots of old that have been emptied, from the first on
}

const (
	minSlots = 8
	// moveBatch is the number of slots of the old table that each insertion moves or passes over.
	// The old table is empty after a seventh of the insertions that it takes to fill the new one.
	moveBatch = 64
)

// slot is what the table holds for an entry; a free slot is 0. Other bits of the hash choose the
// shard.
func slot(hash uint64, id uint32) uint64 { return hash<<32 | uint64(id+1) }

// home is the index at which the search for a slot begins: its 32 bits of hash, read as a fraction
// of 2^32, times the number of slots, which need not be a power of two.
func (t *table) home(slot uint64) int { return int(slot >> 32 * uint64(len(t.slots)) >> 32) }

// after is the index that follows i.
func (t *table) after(i int) int {
	if i++; i == len(t.slots) {
		return 0
	}
	return i
}

// distance returns how many slots there are from one slot to another.
func (t *table) distance(from, to int) int {
	if to < from {
		to += len(t.slots)
	}
	return to - from
}

func (t *table) len() int {
	if t.old != nil {
		return t.used + t.old.used
	}
	return t.used
}

func (t *table) insert(hash uint64, id uint32) {
	// It grows by a quarter: one that doubles wastes more memory and fits a cache less often.
	if t.old == nil && 5*(t.used+1) > 4*len(t.slots) {
		old := *t
		size := max(minSlots, len(old.slots)+len(old.slots)/4)
		*t = table{slots: make([]uint64, size), old: &old}
	}
	t.add(slot(hash, id))
	t.move()
}

func (t *table) add(slot uint64) {
	i := t.home(slot)
	for t.slots[i] != 0 {
		i = t.after(i)
	}
	t.slots[i] = slot
	t.used++
}

// move takes a few slots from the old table.
func (t *table) move() {
	for range moveBatch {
		if t.old == nil {
			return
		}
		if t.old.used == 0 {
			t.old = nil
			return
		}
		if s := t.old.slots[t.moved]; s != 0 {
			t.old.cut(s)
			t.add(s)
		} else {
			t.moved++
		}
	}
}

func (t *table) remove(hash uint64, id uint32) {
	if s := slot(hash, id); !t.cut(s) {
		t.old.cut(s)
	}
}

// cut removes a slot and moves those after it forward, so that each is still found from its home.
// It reports whether the slot was there.
func (t *table) cut(slot uint64) bool {
	i := t.home(slot)
	for ; t.slots[i] != slot; i = t.after(i) {
		if t.slots[i] == 0 {
			return false
		}
	}
	for j := t.after(i); t.slots[j] != 0; j = t.after(j) {
		if t.distance(t.home(t.slots[j]), j) >= t.distance(i, j) {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = 0
	t.used--
	return true
}
