package algorithm

import (
	"encoding/binary"
	"math/bits"
)

// holdTable is the slots of a state for holds: a hash table with open addressing and linear
// probing. The number of slots is a power of 2, and a few are free. The methods end with any bytes.
type holdTable []byte

const (
	entrySize  = 32
	leastSlots = 4
)

// hold is an entry of the table. instant is the time at which its units count when it is settled.
type hold struct {
	id                       uint64
	units, deadline, instant int64
}

// mostEntries returns how many of a number of slots may be in use: seven eighths, rounded down.
func mostEntries(slots int) int { return slots - (slots+7)/8 }

// slotsFor returns the number of slots of a new table for a number of entries: at most three
// quarters are in use, so that a table of 8 slots or more is not full at once.
func slotsFor(entries int) int {
	slots := leastSlots
	for slots/4*3 < entries {
		slots *= 2
	}
	return slots
}

func (t holdTable) slots() int { return len(t) / entrySize }

// slot returns the bytes of a slot.
func (t holdTable) slot(i int) []byte { return t[i*entrySize : (i+1)*entrySize] }

// id returns the ID in a slot, or 0 if it is free.
func (t holdTable) id(i int) uint64 { return binary.BigEndian.Uint64(t[i*entrySize:]) }

// deadline returns the deadline in a slot.
func (t holdTable) deadline(i int) int64 {
	return int64(binary.BigEndian.Uint64(t[i*entrySize+16:]))
}

// home returns the slot that an ID is hashed to. IDs are random, so a product is enough, which also
// spreads consecutive IDs.
func (t holdTable) home(id uint64) int {
	return int(id * 0x9e3779b97f4a7c15 >> (64 - bits.TrailingZeros(uint(t.slots()))))
}

// after returns the slot that follows i.
func (t holdTable) after(i int) int { return (i + 1) & (t.slots() - 1) }

// find returns the slot of an ID, or the free one where it belongs. It reports false as ok if there
// is neither.
func (t holdTable) find(id uint64) (i int, found, ok bool) {
	i = t.home(id)
	for range t.slots() {
		switch t.id(i) {
		case id:
			return i, true, true
		case 0:
			return i, false, true
		}
		i = t.after(i)
	}
	return 0, false, false
}

// get returns the hold in a slot.
func (t holdTable) get(i int) hold {
	b := t.slot(i)
	return hold{
		binary.BigEndian.Uint64(b), int64(binary.BigEndian.Uint64(b[8:])),
		int64(binary.BigEndian.Uint64(b[16:])), int64(binary.BigEndian.Uint64(b[24:])),
	}
}

// put puts a hold into a slot.
func (t holdTable) put(i int, h hold) {
	b := binary.BigEndian.AppendUint64(t.slot(i)[:0], h.id)
	for _, n := range []int64{h.units, h.deadline, h.instant} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
}

// remove frees a slot, and moves holds after it back, so that each is still found from its home.
func (t holdTable) remove(i int) {
	mask := t.slots() - 1
	j := i
	for range mask {
		j = t.after(j)
		if t.id(j) == 0 {
			break
		}
		if (j-t.home(t.id(j)))&mask >= (j-i)&mask {
			copy(t.slot(i), t.slot(j))
			i = j
		}
	}
	clear(t.slot(i))
}
