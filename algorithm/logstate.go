package algorithm

import (
	"encoding/binary"
	"slices"
)

// logState is a decoded state. Its methods change buf in place.
type logState struct {
	trailer
	buf    []byte
	front  int64 // stamp in slot 0, if any
	newest int64 // stamp of the newest record, if any
	slots  int   // of a ring; 0 in the other forms
}

// decode sets g, which is zero. It reads the newest record, the trailer and slot 0, and reports
// false for a state that no admission wrote.
func (g *logState) decode(state []byte) bool {
	g.buf = state
	size := len(state)
	if size < recordSize+trailerSize {
		return size == 0
	}
	newest, t := ending(state)
	g.base, g.expiry = t.base(), t.expiry()
	g.front, g.newest = g.base+(*recordBytes)(state).stamp(), g.base+newest.stamp()
	g.exponent, g.window = t.span()
	g.used, g.flags = t.sum()
	g.count, g.head = t.place()
	if !g.valid() || g.count > maxSlots {
		return false
	}
	switch {
	case !isLarge(size):
		return g.head == 0 && g.flags == 0 && smallSize(g.count) == size
	case g.flags <= copies:
		return g.count > 0 && lineSize(g.head+g.count) == size
	case g.flags < ringFlag || g.flags > ringFlag+copies || size < ringEnd:
		return false
	}
	blocks := binary.BigEndian.Uint32(state[size-ringEnd:])
	if blocks > maxSlots/block {
		return false
	}
	g.slots = block * int(blocks)
	return ringSize(int(blocks)) == size && g.head < g.slots && uint(g.count-1) < uint(g.slots)
}

// encode writes the trailer. The records are in buf already.
func (g *logState) encode() []byte {
	g.put(g.buf)
	return g.buf
}

// slot returns the slot of record i, counted from the oldest.
func (g *logState) slot(i int) int {
	i += g.head
	if g.slots > 0 && i >= g.slots {
		i -= g.slots
	}
	return i
}

// at returns the record in a slot.
func (g *logState) at(slot int) *recordBytes { return (*recordBytes)(g.buf[slot*recordSize:]) }

// record returns record i, counted from the oldest.
func (g *logState) record(i int) *recordBytes { return g.at(g.slot(i)) }

// entry returns the entry of a slot's block in the index.
func (g *logState) entry(slot int) *recordBytes { return g.at(g.slots + slot/block) }

// resize sets the length of buf, in the same array if that has room.
func (g *logState) resize(size int) {
	if size > cap(g.buf) {
		g.grow(size)
	}
	g.buf = g.buf[:size]
}

// grow moves buf to an array with room for size bytes and some more; slices.Grow rounds that up to
// a size of the allocator.
func (g *logState) grow(size int) {
	more := size / 16
	if size < 512 {
		more = 3 * size / 8
	}
	g.buf = append(slices.Grow([]byte(nil), size+more), g.buf...)
}
