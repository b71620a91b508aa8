package algorithm

import "encoding/binary"

// A sweep removes the empty records of a large ring. Each call that writes while the flag is set
// sweeps some blocks. From the block of the newest record to the oldest record, the sweep moves the
// records that have units up over a gap, which grows with each empty record. The slots of the gap
// are zeros, that is, empty records whose stamps are in no order, and count as records. When the
// sweep reaches the oldest record, the gap is before that record and is dropped.

// writeGap writes emptied and the fields of the gap.
func (g *logState) writeGap() {
	end := g.buf[len(g.buf)-ringEnd:]
	at := 0
	if g.sweeping {
		at = g.gapAt + 1
	}
	binary.BigEndian.PutUint32(end, uint32(g.emptied))
	binary.BigEndian.PutUint32(end[emptiedSize:], uint32(at))
	binary.BigEndian.PutUint32(end[emptiedSize+gapSize/2:], uint32(g.gap))
}

// sweep moves the records of some blocks, so that about 16 calls move all. It begins when there may
// be too many empty records. It leaves the newest block, so the empty records of that block are
// counted again.
func (g *logState) sweep() {
	if !g.sweeping {
		if !g.crowded(g.count) {
			return
		}
		newest := g.slot(g.count - 1)
		g.sweeping, g.gapAt, g.gap, g.emptied = true, newest-newest%block, 0, block
	}
	end := g.gapRecord()
	from := max(0, end-block*blocks(int64(g.count/16)))
	to := end + g.gap
	top := to
	for i := end - 1; i >= from; i-- {
		if r := g.record(i); r.units() > 0 {
			to--
			*g.record(to) = *r
		}
	}
	if from < copies {
		g.flags = ringFlag | copies
	}
	if from == 0 {
		g.writeEntries(to, top)
		g.head, g.count = g.slot(to), g.count-to
		g.sweeping, g.gapAt, g.gap = false, 0, 0
		return
	}
	for i := from; i < min(to, end); i++ {
		*g.record(i) = recordBytes{}
	}
	g.gapAt, g.gap = g.slot(from), to-from
	for i := from; i < min(to, end); i += block {
		g.writeEntry(g.slot(i))
	}
	if to < top {
		g.writeEntries(to-g.slot(to)%block, top)
	}
}

// crowded reports whether too many of this number of records may be empty.
func (g *logState) crowded(records int) bool { return 4*g.emptied > int64(records)+128 }

// writeEntries writes the index entries of the blocks that begin among records from to end.
func (g *logState) writeEntries(from, end int) {
	if r := g.slot(from) % block; r > 0 {
		from += block - r
	}
	for i := from; i < end; i += block {
		g.writeEntry(g.slot(i))
	}
}
