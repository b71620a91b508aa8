package algorithm

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/truewindow/ratelimit/driver"
)

// The state of a Held. All integers are unsigned and big-endian, and times are in µs since the
// epoch. The times of holds run on the store's clock plus offset.
//
//	kind        1  0: nothing is held or remembered, and all but inner ends is missing
//	inner ends  8  when the state of the algorithm inside runs out, on the store's clock
//	floor       8  holds with a deadline up to here have timed out
//	last        8  the latest time at which holds were written
//	offset      8  grows when the store's clock is set back by more than the time-out
//	older       8  holds with a deadline up to here are forgotten
//	newer       8  those up to here are forgotten next
//	timed out   4  holds that timed out after newer
//	room        2  number of sums for which there is space
//	sums        2  number of sums
//	slots       4  number of slots, a power of 2
//	entries     4  number of slots with a hold
//	cursor      4  the slot at which the search for forgotten holds goes on
//	sum        20  deadline 8, units 8, holds 4: of all holds with this deadline, which ascend
//	space for sums up to room
//	slot       32  ID 8, units 8, deadline 8, instant 8: of a hold; or all 0
//	the state of the algorithm inside
//
// A hold is in the slot that its ID is hashed to, or in the next that was free. So a step reads and
// writes a few slots however many there are, and searches a few more for holds that are forgotten.
// A step moves all of them, and the state inside, if its hold or its sum finds no room, or if few
// of the slots have a hold.
//
// On a server the holds are a hash; see held.lua.
const (
	emptyHoldsSize = 9
	holdsSize      = emptyHoldsSize + 5*8 + 4 + 2 + 2 + 4 + 4 + 4
	sumSize        = 20
	leastRoom      = 2
	maxSums        = 1024
	// smallInner is the size up to which the state of the algorithm inside is moved, so that a key
	// without holds has no slots.
	smallInner = 4096
	// smallFront is the size up to which the bytes before that state stay when nothing is held.
	smallFront = 1024
	// searched is the number of slots that a step searches for forgotten holds. A step adds one
	// hold at most, so the search keeps ahead.
	searched = 16

	maxOpenHolds  = 1 << 16
	generation    = 1 << 15 // holds that time out until those before are forgotten
	maxHeldUnits  = 1 << 48
	rememberedFor = 24 * 60 * 60 * 1_000_000 // µs
)

// holds are the decoded holds of a state, and what a step changes of them.
type holds struct {
	innerEnds, floor, last, offset int64
	older, newer, timedOut         int64

	sums    []deadlineSum
	first   [20]deadlineSum // the array of sums, as long as that has room
	room    int
	slots   int
	entries int
	cursor  int
	table   holdTable // nil if there are no entries that count
	size    int       // bytes of the state before that of the algorithm inside

	now         int64 // the time, which never goes back
	clock       int64 // the store's clock plus offset, which may be before that
	units, open int64 // of sums
	own         hold  // that of the demand; zero if there is none, or if it is forgotten
	ownAt       int   // its slot, or the free one where it belongs
	ownEntry    bool  // whether table has an entry of the ID
	added       bool  // whether own is to be written
	write       bool
}

// deadlineSum is the sum of all holds with one deadline.
type deadlineSum struct{ deadline, units, count int64 }

// decode sets h, which is zero. It reports false for a state that no step wrote.
func (h *holds) decode(state []byte) bool {
	if len(state) == 0 {
		return true
	}
	h.size = emptyHoldsSize
	if len(state) < emptyHoldsSize || state[0] > 1 {
		return false
	}
	h.innerEnds = int64(binary.BigEndian.Uint64(state[1:]))
	if state[0] == 0 {
		return len(state) > emptyHoldsSize && uint64(h.innerEnds) <= max53
	}
	if len(state) < holdsSize {
		return false
	}
	all := uint64(h.innerEnds)
	rest := state[emptyHoldsSize:]
	for _, to := range []*int64{&h.floor, &h.last, &h.offset, &h.older, &h.newer} {
		*to = int64(binary.BigEndian.Uint64(rest))
		all |= uint64(*to)
		rest = rest[8:]
	}
	h.timedOut = int64(binary.BigEndian.Uint32(rest))
	h.room = int(binary.BigEndian.Uint16(rest[4:]))
	sums := int(binary.BigEndian.Uint16(rest[6:]))
	slots := int64(binary.BigEndian.Uint32(rest[8:]))
	entries := int64(binary.BigEndian.Uint32(rest[12:]))
	cursor := int64(binary.BigEndian.Uint32(rest[16:]))
	rest = rest[20:]
	if all > max53 || slots < leastSlots || slots&(slots-1) != 0 || cursor >= slots ||
		int64(len(rest)) < int64(h.room)*sumSize+slots*entrySize {
		return false
	}
	h.slots, h.entries, h.cursor = int(slots), int(entries), int(cursor)
	end := h.room*sumSize + h.slots*entrySize
	h.table, h.size = holdTable(rest[h.room*sumSize:end]), holdsSize+end
	if sums > min(h.room, maxSums) || entries > int64(mostEntries(h.slots)) {
		return false
	}
	h.sums = slices.Grow(h.first[:0], sums)
	before := h.floor
	for range sums {
		s := deadlineSum{
			int64(binary.BigEndian.Uint64(rest)), int64(binary.BigEndian.Uint64(rest[8:])),
			int64(binary.BigEndian.Uint32(rest[16:])),
		}
		if s.deadline <= before || s.deadline > max53 || s.count == 0 || s.units < s.count {
			return false
		}
		before = s.deadline
		h.sums = append(h.sums, s)
		h.units, h.open = h.units+s.units, h.open+s.count
		if h.units > 2*maxHeldUnits || h.units < 0 || h.open > entries {
			return false
		}
		rest = rest[sumSize:]
	}
	return true
}

// advance sets the time of h, and times holds out. The time never goes back: it waits until the
// store's clock has caught up, or goes on at once if that was set back by more than the time-out.
func (h *holds) advance(now, timeout int64) {
	if back := h.last - h.offset - now; back > timeout {
		h.offset, h.write = h.offset+back, true
	}
	h.clock = now + h.offset
	h.now = min(max(h.clock, h.last), max53-1<<46) // so that no deadline is larger than max53
	out := 0
	for ; out < len(h.sums) && h.sums[out].deadline <= h.now; out++ {
		s := h.sums[out]
		h.floor, h.units, h.open = s.deadline, h.units-s.units, h.open-s.count
		if h.timedOut += s.count; h.timedOut >= generation {
			h.older, h.newer, h.timedOut = h.newer, h.floor, 0
		}
	}
	h.sums = h.sums[out:]
}

// restart makes h that of an empty state if nothing is held or remembered, so that it does not
// matter whether a store has forgotten the state.
func (h *holds) restart(now int64) {
	if h.empty() {
		*h = h.none()
		h.clock, h.now = now, min(now, max53-1<<46)
	}
}

// none returns h without holds.
func (h *holds) none() holds {
	return holds{innerEnds: h.innerEnds, size: h.size, room: h.room, slots: h.slots}
}

// find sets own to the hold of an ID. It reports false if own, the table and the sums do not agree.
func (h *holds) find(id uint64) (ok bool) {
	if id == 0 || h.table == nil {
		return true
	}
	if h.ownAt, h.ownEntry, ok = h.table.find(id); !h.ownEntry {
		return ok
	}
	own := h.table.get(h.ownAt)
	if own.units < 1 || own.units > driver.MaxUnits || uint64(own.deadline|own.instant) > max53 {
		return false
	}
	if own.deadline > h.forgotten() {
		h.own = own
	}
	if !h.isOpen(h.own) {
		return int64(h.entries) > h.open
	}
	at, ok := h.sumOf(own.deadline)
	return ok && h.sums[at].units-own.units >= h.sums[at].count-1
}

// forgotten returns the latest deadline of holds that are forgotten.
func (h *holds) forgotten() int64 { return max(h.older, h.now-rememberedFor) }

// isOpen reports whether own has not timed out.
func (h *holds) isOpen(own hold) bool { return own.id != 0 && own.deadline > h.floor }

// sumOf returns the index of the sum of a deadline, or where it belongs.
func (h *holds) sumOf(deadline int64) (at int, ok bool) {
	return slices.BinarySearchFunc(h.sums, deadline, func(s deadlineSum, deadline int64) int {
		return cmp.Compare(s.deadline, deadline)
	})
}

// remove removes own.
func (h *holds) remove() {
	if h.isOpen(h.own) {
		at, _ := h.sumOf(h.own.deadline)
		s := &h.sums[at]
		s.units, s.count = s.units-h.own.units, s.count-1
		h.units, h.open = h.units-h.own.units, h.open-1
		if s.count == 0 {
			h.sums = slices.Delete(h.sums, at, at+1)
		}
	}
	h.write = h.write || h.own.id != 0
	h.own = hold{}
}

// put makes own the hold of the demand.
func (h *holds) put(own hold) {
	at, ok := h.sumOf(own.deadline)
	if !ok {
		h.sums = slices.Insert(h.sums, at, deadlineSum{deadline: own.deadline})
	}
	h.sums[at].units += own.units
	h.sums[at].count++
	h.units, h.open = h.units+own.units, h.open+1
	h.own, h.added, h.write = own, true, true
}

// lastDeadline returns the last deadline of holds that have not timed out, or 0.
func (h *holds) lastDeadline() int64 {
	if len(h.sums) == 0 {
		return 0
	}
	return h.sums[len(h.sums)-1].deadline
}

// empty reports whether nothing is held or remembered, as far as the sums and floor show.
func (h *holds) empty() bool { return len(h.sums) == 0 && h.floor <= h.forgotten() }

// ends returns when nothing is remembered any more.
func (h *holds) ends() int64 { return max(h.floor, h.lastDeadline()) + rememberedFor }

// roundedTo returns the number to whose multiples deadlines of a length are rounded up: by up to an
// eighth, so that all holds of one length have at most 17 deadlines.
func roundedTo(length int64) int64 { return 1 << max(0, bits.Len64(uint64(length))-4) }

// encode returns the state with the changed holds. state has those before the change, and the state
// of the algorithm inside.
func (h *holds) encode(state []byte) []byte {
	empty := h.empty()
	if !h.write && !empty { // only the state of the algorithm inside has changed
		copy(state, h.kind(1))
		return state
	}
	if empty && len(state)-h.size <= smallInner {
		return slices.Replace(state, 0, h.size, h.kind(0)...)
	}
	h.last = max(h.last, h.now)
	if empty {
		*h = h.none()
	}
	entries := h.entries
	removed := h.ownEntry && h.own.id == 0
	switch {
	case h.added && !h.ownEntry:
		entries++
	case removed:
		entries--
	}
	if h.table == nil || len(h.sums) > h.room || entries > mostEntries(h.slots) ||
		h.size > smallFront && h.slots > leastSlots && 8*entries < h.slots {
		state = h.rebuild(state)
	} else {
		h.entries, h.table = entries, holdTable(state[h.size-len(h.table):h.size])
		switch {
		case h.added:
			h.table.put(h.ownAt, h.own)
		case removed:
			h.table.remove(h.ownAt)
		}
		h.forget()
	}
	h.head(state[:0])
	return state
}

// rebuild makes a table of the entries that are not forgotten, and own, and returns the state with
// it.
func (h *holds) rebuild(state []byte) []byte {
	old, next := h.table, []byte(nil)
	switch {
	case old != nil:
		old = holdTable(state[h.size-len(old) : h.size])
		h.slots = 0
	case h.size > smallFront:
		next, h.room, h.slots = state[:0], 0, 0
	default: // the state inside stays where it is
		next = state[:0]
	}
	forgotten := h.forgotten()
	stays := func(i int) bool {
		return old.id(i) != 0 && old.deadline(i) > forgotten && (!h.ownEntry || i != h.ownAt)
	}
	h.entries, h.cursor = 0, 0
	if h.own.id != 0 {
		h.entries++
	}
	for i := range old.slots() {
		if stays(i) {
			h.entries++
		}
	}
	h.slots = max(h.slots, slotsFor(h.entries))
	for h.room = max(h.room, leastRoom); h.room < len(h.sums); {
		h.room *= 2
	}
	inside, size := state[h.size:], holdsSize+h.room*sumSize+h.slots*entrySize
	next = slices.Grow(next, size+len(inside))[:size+len(inside)]
	copy(next[size:], inside)
	clear(next[:size])
	h.size, h.table = size, holdTable(next[size-h.slots*entrySize:size])
	for i := range old.slots() {
		if stays(i) {
			at, _, _ := h.table.find(old.id(i))
			copy(h.table.slot(at), old.slot(i))
		}
	}
	if h.own.id != 0 {
		h.ownAt, _, _ = h.table.find(h.own.id)
		h.table.put(h.ownAt, h.own)
	}
	return next
}

// forget removes some of the holds that are forgotten.
func (h *holds) forget() {
	forgotten := h.forgotten()
	for range searched {
		switch i := h.cursor; {
		case int64(h.entries) <= h.open: // nothing is remembered
			return
		case h.table.id(i) != 0 && h.table.deadline(i) <= forgotten:
			h.table.remove(i)
			h.entries--
		default:
			h.cursor = h.table.after(i)
		}
	}
}

// kind returns the fields of all states.
func (h *holds) kind(kind byte) []byte {
	return binary.BigEndian.AppendUint64([]byte{kind}, uint64(h.innerEnds))
}

// head appends the bytes before the table to b.
func (h *holds) head(b []byte) {
	b = append(b, h.kind(1)...)
	for _, n := range []int64{h.floor, h.last, h.offset, h.older, h.newer} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	b = binary.BigEndian.AppendUint32(b, uint32(h.timedOut))
	b = binary.BigEndian.AppendUint16(b, uint16(h.room))
	b = binary.BigEndian.AppendUint16(b, uint16(len(h.sums)))
	for _, n := range []int{h.slots, h.entries, h.cursor} {
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	for _, s := range h.sums {
		b = binary.BigEndian.AppendUint64(b, uint64(s.deadline))
		b = binary.BigEndian.AppendUint64(b, uint64(s.units))
		b = binary.BigEndian.AppendUint32(b, uint32(s.count))
	}
}
