package algorithm

import (
	"encoding/binary"
	"slices"
	"sort"
)

// The state of the sliding-window log, named "log1". All integers are unsigned and big-endian.
//
//	record  12 bytes, in the order of strictly ascending stamps
//	  units   6  recorded and not given back
//	  stamp   6  microseconds since base
//	trailer 32 bytes
//	  place   7  number of records · 2^26 + slot of the oldest
//	  sum     7  units of these records · 16 + flags: copies that are used up, 0 to 4, and 8 for a ring
//	  past    7  exponent e · 2^45 + Window of the last admission in µs. The newest stamp is less than 2^e µs ahead of the clock that wrote it.
//	             The state has run out at newest + Window.
//	  base    7  µs since the Unix epoch, plus 2^51
//	  reach   4  stamp until which the time to live reaches, since base, in units of 2^16 µs
//
// Records stand in slots of 12 bytes from offset 0 on. There are three forms:
//
//	small  up to 10 records; trailer. The oldest record is in slot 0.
//	line   from 11 records on; trailer; copies. Slots before the oldest hold dropped records.
//	ring   from a few hundred records on: slots, 64 a block; index; number of blocks (4 bytes); a copy of the newest record; trailer; copies.
//	       The slot after the last is the first.
//
// So the newest record stands before the trailer in each of them: what an admission changes is in one place, and two in a ring, and a server
// reads it with the last 160 bytes, which are all of a small state. The copies are four records, the oldest first when they were made, from
// which a server sees what has left the window; those that are used up are without meaning. A block of the index has the form of a record: the units
// of its 64 records and the first stamp, of blocks that are followed by a record. With it a look passes what has left the window long ago, and finds
// for whom to wait, without reading every record. No form is ever moved as a whole while it is large: a ring only grows at its end, when
// it is about to begin again at slot 0 and its limit may need more slots, and a longer or a much shorter one is made now and then.
//
// A shift of all stamps is a change of base. Which records are dropped follows from the rest, newest - (2^e - 1) - Window, so the
// physical state may hold more or fewer of them and mean the same.
const (
	recordSize  = 12
	trailerSize = 32
	copies      = 4
	copiesSize  = copies * recordSize
	blocksSize  = 4 // the number of blocks
	lineEnd     = trailerSize + copiesSize
	ringEnd     = blocksSize + recordSize + lineEnd

	smallMax  = 10  // records of the small form
	lineMax   = 384 // slots of a line
	lineStart = 320 // most records of a line when it is made
	block     = 64  // records
	blockSize = (block + 1) * recordSize

	ringFlag = 8

	baseBias    = 1 << 51
	maxExponent = 45
	reachBits   = 16
	maxReach    = 1<<32 - 1
	max48       = 1<<48 - 1
	max53       = 1<<53 - 1
)

// logState is a decoded state. Its methods change buf in place.
type logState struct {
	buf      []byte
	front    int64 // stamp in slot 0, if any
	newest   int64 // stamp of the newest record, if any
	n        int   // records
	head     int   // slot of the oldest
	slots    int   // of a ring; 0 for the other forms
	exponent uint8
	flags    uint8 // as in the trailer
	base     int64
	window   int64
	used     int64
	reach    int64
}

// recordBytes is a record in its place: of an array, unlike of a slice, no access to a part is checked.
type recordBytes = [recordSize]byte

func stampIn(r *recordBytes) int64 { return int64(binary.BigEndian.Uint64(r[4:]) & max48) }

func unitsIn(r *recordBytes) int64 { return int64(binary.BigEndian.Uint64(r[:]) >> 16) }

func putRecord(r *recordBytes, stamp, units int64) {
	binary.BigEndian.PutUint64(r[:], uint64(units)<<16|uint64(stamp)>>32)
	binary.BigEndian.PutUint32(r[8:], uint32(stamp))
}

// isLarge reports whether a state of so many bytes is a line or a ring.
func isLarge(size int) bool { return size > smallMax*recordSize+trailerSize }

// ending returns the newest record, where it stands before the trailer, and the trailer of a state that has them.
func ending(state []byte) *[recordSize + trailerSize]byte {
	end := len(state)
	if isLarge(end) {
		end -= copiesSize
	}
	return (*[recordSize + trailerSize]byte)(state[end-trailerSize-recordSize:])
}

// decode sets g, which is zero, and reports false for a state that no admission wrote. It reads only the end and the first record.
func (g *logState) decode(state []byte) bool {
	g.buf = state
	size := len(state)
	if size < recordSize+trailerSize {
		return size == 0
	}
	t := ending(state)
	base := binary.BigEndian.Uint64(t[33:]) >> 8
	if base >= 4*baseBias {
		return false
	}
	g.base, g.reach = int64(base)-baseBias, int64(binary.BigEndian.Uint32(t[40:]))
	g.front, g.newest = g.base+stampIn((*recordBytes)(state)), g.base+stampIn((*recordBytes)(t[:]))
	past := binary.BigEndian.Uint64(t[26:]) >> 8
	g.window = int64(past)
	if past-1 >= uint64(maxWindow) { // not the Window alone
		e := past >> 45
		g.exponent, g.window = uint8(e), int64(past&(1<<45-1))
		if e > maxExponent || g.window == 0 || g.window > maxWindow {
			return false
		}
	}
	place := binary.BigEndian.Uint64(t[12:]) >> 8
	sum := binary.BigEndian.Uint64(t[19:]) >> 8
	if sum>>4 > max48 {
		return false
	}
	flags := uint8(sum & 15)
	g.used, g.flags = int64(sum>>4), flags
	n, head := int(place>>26), int(place&(1<<26-1))
	g.n, g.head = n, head
	switch {
	case !isLarge(size):
		return head == 0 && flags == 0 && n*recordSize == size-trailerSize
	case flags <= copies:
		return n > 0 && (head+n)*recordSize == size-lineEnd
	case flags < ringFlag || flags > ringFlag+copies || size < ringEnd:
		return false
	}
	blocks := int(binary.BigEndian.Uint32(state[size-ringEnd:]))
	g.slots = block * blocks
	return blocks*blockSize+ringEnd == size && head < g.slots && uint(n-1) < uint(g.slots)
}

// slot returns where record i is, counted from the oldest.
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

// entry returns what the index has about the block of a slot.
func (g *logState) entry(slot int) *recordBytes { return g.at(g.slots + slot/block) }

func (g *logState) slop() int64 { return 1<<g.exponent - 1 }

// seek goes on from record i while its stamp is at most edge and its units are fewer than need. It returns where it stops and the
// units it passed.
func (g *logState) seek(i int, edge, need int64) (at int, passed int64) {
	edge -= g.base
	for ; i < g.n; i++ {
		if slot := g.slot(i); g.slots > 0 && slot%block == 0 {
			for i+block < g.n && stampIn(g.record(i+block)) <= edge {
				units := unitsIn(g.entry(g.slot(i)))
				if passed+units >= need {
					break
				}
				i, passed = i+block, passed+units
			}
		}
		r := g.record(i)
		units := unitsIn(r)
		if stampIn(r) > edge || passed+units >= need {
			break
		}
		passed += units
	}
	return i, passed
}

// after returns the first record whose stamp is later than edge, and the units from there on. The units are negative if the state is corrupt.
func (g *logState) after(edge int64) (first int, used int64) {
	stamp := edge - g.base
	slot, slots, used := g.head, g.slots, g.used
	for ; first < g.n; first++ {
		r := g.at(slot)
		if stampIn(r) > stamp {
			break
		}
		if first == copies && slots > 0 { // there may be many more: by the index
			at, passed := g.seek(first, edge, max53)
			return at, used - passed
		}
		used -= unitsIn(r)
		if slot++; slot == slots {
			slot = 0
		}
	}
	return first, used
}

// settle drops a log that has run out, and shifts one whose newest stamp is more than a window ahead of now.
func (g *logState) settle(now, window int64) (shifted bool) {
	if g.n == 0 {
		return false
	}
	ahead := g.newest - now
	switch {
	case -ahead >= g.window:
		*g = logState{buf: g.buf[:0]}
	case ahead > window:
		g.base -= ahead
		g.front -= ahead
		g.newest = now
		shifted = true
	}
	return shifted
}

// leaves returns the stamp of the record from first on with whose leaving need units, more than 0, have left. It reports false if
// there are not so many: the state is corrupt.
func (g *logState) leaves(first int, need int64) (stamp int64, ok bool) {
	if first < g.n {
		if r := g.record(first); unitsIn(r) >= need {
			return g.base + stampIn(r), true
		}
	}
	i, _ := g.seek(first, g.newest, need)
	if i == g.n {
		return 0, false
	}
	return g.base + stampIn(g.record(i)), true
}

// giveBack takes up to n units off the record at stamp, from first on, and returns how many there were.
func (g *logState) giveBack(first int, stamp, n int64) int64 {
	stamp -= g.base
	i := first + sort.Search(g.n-first, func(i int) bool { return stampIn(g.record(first+i)) >= stamp })
	if i == g.n || stampIn(g.record(i)) != stamp {
		return 0
	}
	r := g.record(i)
	units := unitsIn(r)
	back := min(n, units, g.used)
	putRecord(r, stamp, units-back)
	g.used -= back
	if i < copies && isLarge(len(g.buf)) {
		g.flags = g.flags&ringFlag | copies
	}
	if slot := g.slot(i); g.slots > 0 {
		if i == g.n-1 {
			putRecord((*recordBytes)(ending(g.buf)[:]), stamp, units-back)
		} else if i-slot%block+block < g.n {
			e := g.entry(slot)
			putRecord(e, stampIn(e), unitsIn(e)-back)
		}
	}
	return back
}

// putTrailer writes all but the records.
func (g *logState) putTrailer() []byte {
	t := (*[trailerSize]byte)(ending(g.buf)[recordSize:])
	place := uint64(g.n)<<26 | uint64(g.head)
	sum := uint64(g.used)<<4 | uint64(g.flags)
	past := uint64(g.exponent)<<45 | uint64(g.window)
	base := uint64(g.base + baseBias)
	binary.BigEndian.PutUint64(t[:], place<<8|sum>>48)
	binary.BigEndian.PutUint64(t[8:], sum<<16|past>>40)
	binary.BigEndian.PutUint64(t[16:], past<<24|base>>32)
	binary.BigEndian.PutUint64(t[24:], base<<32|uint64(uint32(g.reach)))
	return g.buf
}

// add drops the first records and puts units at stamp, which is not before the newest. max is the limit. The trailer is left to putTrailer.
func (g *logState) add(drop int, stamp, units, max int64) {
	g.reach = (stamp + g.window - g.base) >> reachBits
	stay := g.n - drop // of which a merge replaces the last
	merge := g.n > 0 && g.newest == stamp
	if merge {
		r := (*recordBytes)(ending(g.buf)[:])
		units += unitsIn(r)
		if drop == 0 && g.reach <= maxReach {
			putRecord(r, stamp-g.base, units)
			if g.slots > 0 {
				*g.record(g.n - 1) = *r
			}
			return
		}
		stay--
	}
	from, large := g.slot(drop), isLarge(len(g.buf))
	end, total := from+stay, stay+1
	g.newest = stamp
	switch {
	case g.reach > maxReach || large != (total > smallMax):
		g.rewrite(from, stay, stamp, max)
		from, end = 0, stay
	case !large:
		if drop > 0 {
			copy(g.buf, g.buf[from*recordSize:end*recordSize])
			from, end = 0, stay
		}
		g.resize(total*recordSize + trailerSize)
	case g.slots == 0 && end < lineMax && 16*(from-12) <= end:
		g.flags = copies
		g.resize((end+1)*recordSize + lineEnd)
	case stay < g.slots && (end%block != 0 || 8*stay >= g.slots):
		g.flags = ringFlag | copies
		if !merge && end%block == 0 {
			g.completeBlock((end - block) % g.slots)
			if end == g.slots && int64(g.slots) < max && 2*stay > g.slots {
				g.lengthen(max)
			}
		}
		if end >= g.slots {
			end -= g.slots
		}
	default:
		g.rewrite(from, stay, stamp, max)
		from, end = 0, stay
	}
	g.head, g.n = from, total
	r := g.at(end)
	putRecord(r, stamp-g.base, units)
	if g.slots > 0 {
		*(*recordBytes)(ending(g.buf)[:]) = *r
	}
}

// resize gives buf a length, in the same array if that has the room.
func (g *logState) resize(n int) {
	if n > cap(g.buf) {
		g.move(n)
	}
	g.buf = g.buf[:n]
}

// move puts buf into an array with room for n bytes and some more.
func (g *logState) move(n int) {
	more := n / 8
	if n < 512 {
		more = 3 * n / 8
	}
	g.buf = append(make([]byte, 0, n+more), g.buf...)
}

// blocks returns how many blocks n records need.
func blocks(n int64) int { return int((n + block - 1) / block) }

// completeBlock puts the block that begins in a slot into the index.
func (g *logState) completeBlock(slot int) {
	units := int64(0)
	for i := range block {
		units += unitsIn(g.at(slot + i))
	}
	putRecord(g.entry(slot), stampIn(g.at(slot)), units)
}

// lengthen gives a ring more slots at its end.
func (g *logState) lengthen(max int64) {
	index := slices.Clone(g.buf[g.slots*recordSize : g.slots/block*blockSize])
	g.slots += min(block*blocks(int64(g.slots/8)), block*blocks(max)-g.slots)
	g.resize(g.slots/block*blockSize + ringEnd)
	clear(g.buf[copy(g.buf[g.slots*recordSize:], index)+g.slots*recordSize:])
	binary.BigEndian.PutUint32(g.buf[len(g.buf)-ringEnd:], uint32(g.slots/block))
}

// rewrite makes a state of stay records from a slot on, with room for one more, in the form for that many. It moves
// base where reach would become too large.
func (g *logState) rewrite(from, stay int, stamp, max int64) {
	size := (stay + 1) * recordSize
	old, slots := g.buf, g.slots
	g.slots, g.flags = 0, 0
	switch total := stay + 1; {
	case total <= smallMax:
		size += trailerSize
	case total <= lineStart:
		size += lineEnd
		g.flags = copies
	default:
		g.flags = ringFlag | copies
		g.slots = block * blocks(int64(total)+int64(total)/8)
		if int64(total) <= max {
			g.slots = min(g.slots, block*blocks(max))
		}
		size = g.slots/block*blockSize + ringEnd
	}
	if slots > 0 || size > cap(old) || 4*size < cap(old) {
		g.buf = nil
		g.resize(size)
	}
	g.buf = g.buf[:size]
	if part := slots - from; slots > 0 && stay > part {
		copy(g.buf, old[from*recordSize:slots*recordSize])
		copy(g.buf[part*recordSize:], old[:(stay-part)*recordSize])
	} else {
		copy(g.buf, old[from*recordSize:(from+stay)*recordSize])
	}
	if g.reach > maxReach {
		delta := stamp - g.base
		if stay > 0 {
			delta = stampIn(g.at(0))
		}
		for i := range stay {
			r := g.at(i)
			putRecord(r, stampIn(r)-delta, unitsIn(r))
		}
		g.base += delta
		g.reach = (stamp + g.window - g.base) >> reachBits
	}
	if g.slots > 0 {
		clear(g.buf[stay*recordSize:])
		for slot := 0; slot+block <= stay; slot += block {
			g.completeBlock(slot)
		}
		binary.BigEndian.PutUint32(g.buf[len(g.buf)-ringEnd:], uint32(g.slots/block))
	}
}
