package memorystore

// table finds entries by hash: open addressing with linear probing. A slot has 32 bits of the hash and the index of an entry, so
// neither finding nor growing touches entries whose hashes differ. A table that grows moves a few slots with each
// insertion, so that no decision waits for all of them.
type table struct {
	slots []uint64 // a power of two of them, or none
	used  int      // slots in use
	old   *table   // the smaller table that is being emptied; nil: none
	moved int      // slots of old that are empty for good
}

const (
	minSlots = 8
	// moveBatch is the number of steps that each insertion moves a growing table on. The old table is empty after an eighth of the insertions
	// that it takes to fill the new one.
	moveBatch = 16
)

// slot is what the table holds for an entry; a free slot is 0. The shard is chosen by other bits of the hash.
func slot(hash uint64, id uint32) uint64 { return hash<<32 | uint64(id+1) }

// home is the index at which the search for a slot begins.
func (t *table) home(slot uint64) int { return int(slot>>32) & (len(t.slots) - 1) }

func (t *table) len() int {
	if t.old != nil {
		return t.used + t.old.used
	}
	return t.used
}

func (t *table) insert(hash uint64, id uint32) {
	if t.old == nil && 4*(t.used+1) > 3*len(t.slots) {
		old := *t
		*t = table{slots: make([]uint64, max(minSlots, 2*len(old.slots))), old: &old}
	}
	t.add(slot(hash, id))
	t.move()
}

func (t *table) add(slot uint64) {
	i := t.home(slot)
	for t.slots[i] != 0 {
		i = (i + 1) & (len(t.slots) - 1)
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

// cut takes a slot out and moves those behind it up, so that each is still found from its home on. It reports whether the slot was there.
func (t *table) cut(slot uint64) bool {
	mask := len(t.slots) - 1
	i := t.home(slot)
	for ; t.slots[i] != slot; i = (i + 1) & mask {
		if t.slots[i] == 0 {
			return false
		}
	}
	for j := (i + 1) & mask; t.slots[j] != 0; j = (j + 1) & mask {
		if (j-t.home(t.slots[j]))&mask >= (j-i)&mask {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = 0
	t.used--
	return true
}
