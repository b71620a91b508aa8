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

// addTo adds n units to record i, or fewer if the sum would exceed 48 bits, and returns how many.
func (g *logState) addTo(i int, n int64) (added int64) {
	added = min(n, max48-g.used)
	g.used += added
	r := g.record(i)
	r.addUnits(added)
	if i < copies && isLarge(len(g.buf)) {
		g.flags = g.flags&ringFlag | copies // all are stale
	}
	if slot := g.slot(i); g.slots > 0 {
		if i == g.count-1 {
			g.copyNewest(r)
		} else if i-slot%block+block < g.count {
			g.entry(slot).addUnits(added)
		}
	}
	return added
}

// add drops the oldest records and adds one with these units. stamp is not before the newest
// record. If it is the same, or if the log has maxRecords, the new record is merged with the
// newest, whose units may then expire late, never early. limit is Max.
func (g *logState) add(drop int, stamp, units, limit int64) {
	if g.count == 0 {
		g.base = stamp
	}
	stay := g.count - drop
	merge := g.count > 0 && (g.newest == stamp || stay >= maxRecords)
	g.newest = stamp
	g.setExpiry()
	rewrite := g.expiry > maxExpiry
	if merge {
		newest, _ := ending(g.buf)
		units += newest.units()
		if drop == 0 && !rewrite {
			newest.put(g.newest-g.base, units)
			if g.slots > 0 {
				g.record(g.count-1).put(g.newest-g.base, units)
			}
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
		g.rewrite(from, stay, limit)
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
		g.rewrite(from, stay, limit)
		from, end = 0, stay
	}
	g.head, g.count = from, stay+1
	g.at(end).put(stamp-g.base, units)
	if g.slots > 0 {
		newest, _ := ending(g.buf)
		newest.put(stamp-g.base, units)
	}
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
// expiry is too large, it moves base.
func (g *logState) rewrite(from, stay int, limit int64) {
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
