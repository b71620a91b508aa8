package algorithm

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sort"

	"github.com/truewindow/ratelimit/driver"
)

// The state of a Held. All integers are unsigned and big-endian, and times are in µs since the
// epoch. The times of holds run on the store's clock plus offset.
//
//	kind        1  0: nothing is held or remembered, and all but inner ends is missing
//	inner ends  8  when the state of the algorithm inside runs out, on the store's clock
//	front       4  bytes before the state of the algorithm inside, a power of 2
//	floor       8  holds with a deadline up to here have timed out
//	last        8  the latest time at which holds were written
//	offset      8  grows when the store's clock is set back by more than the time-out
//	older       8  holds with a deadline up to here are forgotten
//	newer       8  those up to here are forgotten next
//	timed out   4  holds that timed out after newer
//	sums        2  number of the following
//	entries     4  number of the following
//	sum        20  deadline 8, units 8, holds 4: of all holds with this deadline, which ascend
//	entry      32  ID 8, units 8, deadline 8, instant 8: of a hold; the IDs ascend
//	space up to front
//	the state of the algorithm inside
//
// The space is there so that a hold does not move a large state of the algorithm inside.
//
// On a server the holds are a hash; see held.lua.
const (
	emptyHoldsSize = 9
	holdsSize      = emptyHoldsSize + 4 + 5*8 + 4 + 2 + 4
	sumSize        = 20
	entrySize      = 32
	leastFront     = 256
	// smallInner is the size up to which the state of the algorithm inside is moved, so that a key
	// without holds has no space.
	smallInner = 4096

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
	entries int
	table   []byte // the entries
	tableAt int    // where they begin
	size    int    // bytes of the state before that of the algorithm inside

	now         int64 // the time, which never goes back
	clock       int64 // the store's clock plus offset, which may be before that
	units, open int64 // of sums
	own         hold  // that of the demand; zero if there is none, or if it is forgotten
	ownAt       int   // its index in table, or where it belongs
	ownEntry    bool  // whether table has an entry of the ID
	added       bool  // whether own is to be written
	write       bool
	purge       bool // whether holds have timed out
}

// deadlineSum is the sum of all holds with one deadline.
type deadlineSum struct{ deadline, units, count int64 }

// hold is an entry of the table. instant is the time at which its units count when it is settled.
type hold struct {
	id                       uint64
	units, deadline, instant int64
}

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
	h.size = int(binary.BigEndian.Uint32(state[emptyHoldsSize:]))
	if h.size < leastFront || h.size > len(state) {
		return false
	}
	rest := state[emptyHoldsSize+4 : h.size]
	for _, to := range []*int64{&h.floor, &h.last, &h.offset, &h.older, &h.newer} {
		*to = int64(binary.BigEndian.Uint64(rest))
		all |= uint64(*to)
		rest = rest[8:]
	}
	h.timedOut = int64(binary.BigEndian.Uint32(rest))
	sums := int(binary.BigEndian.Uint16(rest[4:]))
	entries := int64(binary.BigEndian.Uint32(rest[6:]))
	rest = rest[10:]
	if all > max53 || int64(len(rest)) < int64(sums)*sumSize+entries*entrySize {
		return false
	}
	h.entries = int(entries)
	h.sums = h.first[:0]
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
		if h.units > 2*maxHeldUnits || h.units < 0 || h.open > int64(h.entries) {
			return false
		}
		rest = rest[sumSize:]
	}
	h.table, h.tableAt = rest[:h.entries*entrySize], h.size-len(rest)
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
		h.purge = true
	}
	h.sums = h.sums[out:]
}

// restart makes h that of an empty state if nothing is held or remembered, so that it does not
// matter whether a store has forgotten the state.
func (h *holds) restart(now int64) {
	if h.empty() {
		*h = holds{innerEnds: h.innerEnds, size: h.size, tableAt: holdsSize, clock: now,
			now: min(now, max53-1<<46)}
	}
}

// find sets own to the hold of an ID. It reports false if own and the sums do not agree.
func (h *holds) find(id uint64) bool {
	if id == 0 {
		return true
	}
	h.ownAt = sort.Search(h.entries, func(i int) bool {
		return binary.BigEndian.Uint64(h.table[i*entrySize:]) >= id
	})
	if h.ownAt == h.entries || binary.BigEndian.Uint64(h.table[h.ownAt*entrySize:]) != id {
		return true
	}
	h.ownEntry = true
	b := h.table[h.ownAt*entrySize:]
	own := hold{
		id, int64(binary.BigEndian.Uint64(b[8:])), int64(binary.BigEndian.Uint64(b[16:])),
		int64(binary.BigEndian.Uint64(b[24:])),
	}
	if own.units < 1 || own.units > driver.MaxUnits || uint64(own.deadline|own.instant) > max53 {
		return false
	}
	if own.deadline <= h.forgotten() {
		return true
	}
	h.own = own
	if !h.isOpen(own) {
		return true
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
		return int(s.deadline - deadline)
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

// deadline returns when a hold times out that is placed now for a number of microseconds: up to an
// eighth later, so that all holds of one length have at most 17 deadlines.
func deadline(now, length int64) int64 {
	unit := roundedTo(length)
	return (now + length + unit - 1) / unit * unit
}

// roundedTo returns the number to whose multiples deadlines of a length are rounded up.
func roundedTo(length int64) int64 { return 1 << max(0, bits.Len64(uint64(length))-4) }

// encode returns the state with the changed holds. state has those before the change, and the state
// of the algorithm inside.
func (h *holds) encode(state []byte) []byte {
	empty := h.empty()
	if !h.write && !empty { // only the state of the algorithm inside has changed
		copy(state, h.kind(1))
		return state
	}
	h.last = max(h.last, h.now)
	if empty && len(state)-h.size <= smallInner {
		return slices.Replace(state, 0, h.size, h.kind(0)...)
	}
	head := holdsSize + len(h.sums)*sumSize
	used := h.tableAt + len(h.table)
	if need := max(head, h.tableAt) + len(h.table) + entrySize; need > h.size {
		front := frontFor(need)
		state = slices.Insert(state, h.size, make([]byte, front-h.size)...)
		h.size = front
	}
	front := state[:h.size]
	own := h.tableAt + h.ownAt*entrySize
	switch {
	case h.added && h.ownEntry:
		h.own.put(front[own:own])
	case h.added:
		copy(front[own+entrySize:], front[own:used])
		h.own.put(front[own:own])
		used += entrySize
	case h.ownEntry && h.own.id == 0:
		used = own + copy(front[own:], front[own+entrySize:used])
	}
	switch {
	case empty:
		*h = holds{innerEnds: h.innerEnds, size: h.size}
		head, used = holdsSize, h.tableAt
	case h.purge:
		used = h.forget(front[:used])
	}
	h.entries = (used - h.tableAt) / entrySize
	if head != h.tableAt { // the table may be megabytes
		used = head + copy(front[head:], front[h.tableAt:used])
	}
	if most := frontFor(used + entrySize); 4*most <= h.size {
		state = slices.Delete(state, most, h.size)
		h.size = most
	}
	h.head(state[:0])
	return state
}

// frontFor returns the front for a number of bytes.
func frontFor(n int) int { return max(leastFront, 1<<bits.Len(uint(n-1))) }

// forget deletes the entries of holds that are forgotten, and returns the length of front without
// them.
func (h *holds) forget(front []byte) int {
	to, forgotten := h.tableAt, h.forgotten()
	for at := to; at < len(front); at += entrySize {
		if int64(binary.BigEndian.Uint64(front[at+16:])) > forgotten {
			to += copy(front[to:], front[at:at+entrySize])
		}
	}
	return to
}

// kind returns the fields of all states.
func (h *holds) kind(kind byte) []byte {
	return binary.BigEndian.AppendUint64([]byte{kind}, uint64(h.innerEnds))
}

// head appends the bytes before the table to b.
func (h *holds) head(b []byte) {
	b = append(b, h.kind(1)...)
	b = binary.BigEndian.AppendUint32(b, uint32(h.size))
	for _, n := range []int64{h.floor, h.last, h.offset, h.older, h.newer} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	b = binary.BigEndian.AppendUint32(b, uint32(h.timedOut))
	b = binary.BigEndian.AppendUint16(b, uint16(len(h.sums)))
	b = binary.BigEndian.AppendUint32(b, uint32(h.entries))
	for _, s := range h.sums {
		b = binary.BigEndian.AppendUint64(b, uint64(s.deadline))
		b = binary.BigEndian.AppendUint64(b, uint64(s.units))
		b = binary.BigEndian.AppendUint32(b, uint32(s.count))
	}
}

// put appends own to b.
func (own hold) put(b []byte) {
	b = binary.BigEndian.AppendUint64(b, own.id)
	for _, n := range []int64{own.units, own.deadline, own.instant} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
}
