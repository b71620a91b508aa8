package algorithm

import (
	"encoding/binary"
	"slices"
)

// blocks returns how many blocks n records need.
func blocks(n int64) int { return int((n + block - 1) / block) }

// newSlots returns the slots of a new ring of n records: an eighth more than n, but no more than
// the limit can need if n is within the limit.
func newSlots(n, limit int64) int {
	slots := min(block*blocks(n+n/8), maxSlots)
	if n <= limit {
		slots = min(slots, block*blocks(limit))
	}
	return slots
}

// ringHasRoom reports whether a ring, with this number of records before slot end, has room for one
// more. At the end of a block, a ring with more than eight slots for each record counts as full, so
// it is rewritten.
func (g *logState) ringHasRoom(end, records int) bool {
	return records < g.slots && (end%block != 0 || 8*records >= g.slots)
}

// copyNewest writes the copy of the newest record, which is before the trailer.
func (g *logState) copyNewest(r *recordBytes) {
	newest, _ := ending(g.buf)
	*newest = *r
}

// completeBlock adds the full block before slot end to the index. A ring that ends there grows if
// more than half of its slots stay in use and the limit may need more.
func (g *logState) completeBlock(end, stay int, limit int64) {
	g.writeEntry((end - block) % g.slots)
	if end == g.slots && int64(g.slots) < limit && 2*stay > g.slots {
		g.lengthen(limit)
	}
}

// writeEntry writes the index entry of the block that begins at a slot.
func (g *logState) writeEntry(slot int) {
	units := int64(0)
	for i := range block {
		units += g.at(slot + i).units()
	}
	g.entry(slot).put(g.at(slot).stamp(), units)
}

// writeIndex writes the index of a new ring with this number of records, and the number of blocks.
// It clears everything else after the records.
func (g *logState) writeIndex(records int) {
	clear(g.buf[records*recordSize:])
	for slot := 0; slot+block <= records; slot += block {
		g.writeEntry(slot)
	}
	g.writeBlocks()
}

// writeBlocks writes the number of blocks.
func (g *logState) writeBlocks() {
	end := g.buf[len(g.buf)-ringEnd:]
	binary.BigEndian.PutUint32(end, uint32(g.slots/block))
}

// lengthen adds slots at the end of a ring, an eighth of them, and no more than the limit needs.
func (g *logState) lengthen(limit int64) {
	index := slices.Clone(g.buf[g.slots*recordSize : g.slots/block*blockSize])
	g.slots += min(block*blocks(int64(g.slots/8)), block*blocks(limit)-g.slots)
	g.resize(ringSize(g.slots / block))
	end := g.slots*recordSize + copy(g.buf[g.slots*recordSize:], index)
	clear(g.buf[end:])
	g.writeBlocks()
}
