package algorithm

const keepSize = 512 // bytes of the largest array that an expired log keeps

// clear removes all records.
func (g *logState) clear() {
	buf := g.buf[:0]
	if cap(buf) > keepSize {
		buf = nil // the log may never be so large again
	}
	*g = logState{buf: buf}
}

// shift moves all stamps back.
func (g *logState) shift(back int64) {
	g.base -= back
	g.front -= back
	g.newest -= back
}

// giveBack takes up to n units off the record at a stamp, from first on, and returns how many.
// limit is Max.
func (g *logState) giveBack(first int, stamp, n, limit int64) int64 {
	i, ok := g.find(first, stamp)
	if !ok {
		return 0
	}
	r := g.record(i)
	units := r.units()
	back := min(n, units, g.used)
	r.put(r.stamp(), units-back)
	g.used -= back
	if i < copies && isLarge(len(g.buf)) {
		g.flags = g.flags&ringFlag | copies // all are stale
	}
	if slot := g.slot(i); g.slots > 0 {
		if i == g.count-1 {
			g.copyNewest(r)
		} else if i-slot%block+block < g.count {
			e := g.entry(slot)
			e.put(e.stamp(), e.units()-back)
		}
	}
	if back > 0 && back == units {
		g.empty(i, limit)
	}
	return back
}

// empty counts record i as empty, and rewrites the log when there are too many of these.
func (g *logState) empty(i int, limit int64) {
	g.empties = true
	if i == g.count-1 || !isLarge(len(g.buf)) {
		return
	}
	g.emptied++
	switch {
	case g.mustCompact(g.count):
		newest := *g.record(g.count - 1)
		stay := g.rewrite(g.head, g.count-1, limit)
		g.head, g.count = 0, stay+1
		*g.at(stay) = newest
		if g.slots > 0 {
			g.copyNewest(&newest)
		}
		g.empties = newest.units() == 0
	case g.slots > 0:
		g.sweep()
		g.writeGap()
	}
}

// mustCompact reports whether a line, or a ring of few records, is rewritten without its empty
// records. A ring of more than lineMax records is swept instead.
func (g *logState) mustCompact(records int) bool {
	return (g.slots == 0 || records <= lineMax) && (g.sweeping || g.crowded(records))
}

// add drops the oldest records and adds one with these units. stamp is not before the newest
// record. If it is the same, or if the log has maxRecords, the new record is merged with the
// newest, whose units may then expire late, never early. A newest record that is empty is replaced.
// limit is Max.
func (g *logState) add(drop int, stamp, units, limit int64) {
	if g.count == 0 {
		g.base = stamp
	}
	stay := g.count - drop
	merge := g.count > 0 && (g.newest == stamp || stay >= maxRecords)
	g.newest = stamp
	g.setExpiry()
	rewrite := g.expiry > maxExpiry
	if g.empties {
		var filter bool
		merge, filter = g.planEmpties(drop, merge)
		rewrite = rewrite || filter
	}
	if merge {
		newest, _ := ending(g.buf)
		units += newest.units()
		if drop == 0 && !rewrite {
			g.replaceNewest(newest, units)
			return
		}
		stay-- // the new record replaces the newest
	}
	limit = min(limit, maxRecords)
	from := g.slot(drop)
	end := from + stay
	large := isLarge(len(g.buf))
	switch total := stay + 1; {
	case rewrite || large != (total > smallMax):
		stay = g.rewrite(from, stay, limit)
		from, end = 0, stay
	case !large:
		g.moveToFront(from, end)
		from, end = 0, stay
		g.resize(smallSize(total))
	case g.slots == 0 && lineHasRoom(from, end):
		g.flags = copies
		g.resize(lineSize(end + 1))
	case g.ringHasRoom(end, stay):
		g.flags = ringFlag | copies
		if end%block == 0 && !merge {
			g.completeBlock(end, stay, limit)
		}
		if end >= g.slots {
			end -= g.slots
		}
	default:
		stay = g.rewrite(from, stay, limit)
		from, end = 0, stay
	}
	g.head, g.count = from, stay+1
	g.empties = g.empties || units == 0
	r := g.at(end)
	r.put(stamp-g.base, units)
	if g.slots > 0 {
		g.copyNewest(r)
		g.sweepAfterAdd()
	}
}

// planEmpties reports how a record is added to a log that may have empty ones: whether it replaces
// the newest record, and whether the log is rewritten without empty records. It also ends a sweep
// whose gap is dropped.
func (g *logState) planEmpties(drop int, merge bool) (replace, filter bool) {
	newest, _ := ending(g.buf)
	stay := g.count - drop
	replace = merge || stay > 0 && newest.units() == 0
	total := stay + 1
	if replace {
		total--
	}
	filter = !isLarge(len(g.buf)) || g.mustCompact(total)
	if g.sweeping && drop > g.gapRecord() {
		g.sweeping, g.gapAt, g.gap = false, 0, 0
	}
	g.empties = filter || g.emptied > 0
	return replace, filter
}

// replaceNewest sets the stamp and the units of the newest record. newest is the record before the
// trailer.
func (g *logState) replaceNewest(newest *recordBytes, units int64) {
	g.empties = g.empties || units == 0
	newest.put(g.newest-g.base, units)
	if g.slots > 0 {
		*g.record(g.count - 1) = *newest
		g.sweepAfterAdd()
	}
}

// sweepAfterAdd sweeps a ring that may have empty records, unless the newest record begins a block:
// the Lua step completes the block before it in that call.
func (g *logState) sweepAfterAdd() {
	if !g.empties {
		return
	}
	if g.slot(g.count-1)%block > 0 {
		g.sweep()
	}
	g.writeGap()
}

// lineHasRoom reports whether a line with records in slots from to end has room for one more. It
// bounds the number of slots of dropped records, which cost memory.
func lineHasRoom(from, end int) bool { return end < lineMax && 16*(from-12) <= end }

// moveToFront moves the records in slots from to end to slot 0.
func (g *logState) moveToFront(from, end int) {
	if from > 0 {
		copy(g.buf, g.buf[from*recordSize:end*recordSize])
	}
}

// setExpiry computes the expiry from the newest record.
func (g *logState) setExpiry() { g.expiry = (g.newest + g.window - g.base) >> expiryBits }

// rewrite makes a new state of stay records, from slot from on, with room for one more. If the
// expiry is too large, it moves base. It leaves out empty records, and returns how many records it
// keeps.
func (g *logState) rewrite(from, stay int, limit int64) (kept int) {
	if g.empties {
		stay = g.compact(from, stay)
		g.empties, g.emptied = false, 0
		g.sweeping, g.gapAt, g.gap = false, 0, 0
	}
	old, slots := g.buf, g.slots
	g.head, g.count = 0, stay+1
	size := g.setForm(limit)
	// The records of a ring may wrap around, so they cannot be copied within one array.
	if slots > 0 || size > cap(old) || 4*size < cap(old) {
		g.buf = nil
	}
	g.resize(size)
	if end := from + stay; slots > 0 && end > slots {
		copied := copy(g.buf, old[from*recordSize:slots*recordSize])
		copy(g.buf[copied:], old[:(end-slots)*recordSize])
	} else {
		copy(g.buf, old[from*recordSize:end*recordSize])
	}
	if g.expiry > maxExpiry {
		g.moveBase(stay)
	}
	if g.slots > 0 {
		g.writeIndex(stay)
	}
	return stay
}

// compact moves those of stay records, from slot from on, that are not empty to consecutive slots,
// and returns their number.
func (g *logState) compact(from, stay int) (kept int) {
	to, slot := from, from
	for range stay {
		if r := g.at(slot); r.units() > 0 {
			*g.at(to) = *r
			kept++
			if to++; to == g.slots {
				to = 0
			}
		}
		if slot++; slot == g.slots {
			slot = 0
		}
	}
	return kept
}

// setForm sets the form for a new state of g.count records, and returns its size.
func (g *logState) setForm(limit int64) (size int) {
	g.slots = 0
	switch {
	case g.count <= smallMax:
		g.flags = 0
		return smallSize(g.count)
	case g.count <= lineStart:
		g.flags = copies
		return lineSize(g.count)
	}
	g.flags = ringFlag | copies
	g.slots = newSlots(int64(g.count), limit)
	return ringSize(g.slots / block)
}

// moveBase moves base to the stamp of the first of these records, or of the newest record if there
// are none.
func (g *logState) moveBase(records int) {
	delta := g.newest - g.base
	if records > 0 {
		delta = g.at(0).stamp()
	}
	for i := range records {
		r := g.at(i)
		r.put(r.stamp()-delta, r.units())
	}
	g.base += delta
	g.setExpiry()
}
