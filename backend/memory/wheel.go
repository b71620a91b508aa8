package memorystore

import (
	"math"
	"math/bits"
)

const (
	tickShift = 14 // a tick is 2^14 µs, about 16 ms
	slotBits  = 6
	numSlots  = 1 << slotBits
	numLevels = 7 // 2^42 ticks: beyond any stamp

	// headMark in link.prev marks the first entry of a list. The other bits are the index of the
	// list.
	headMark = 1 << 31

	never = math.MaxInt64 // beyond any stamp
)

// wheel holds entries in the order in which they may expire: a hierarchical timing wheel (Varghese
// and Lauck, 1987). Adding and removing cost the same for any number of entries. An entry in level
// l and slot s is checked when the l-th digit of the clock, in base 64, becomes s. Then it is
// dropped or moved to a lower level.
type wheel struct {
	now      uint64 // tick up to which all entries are checked
	occupied [numLevels]uint64
	heads    [numLevels * numSlots]uint32
}

// tickOf returns the first tick that begins at the stamp or later.
func tickOf(stamp int64) uint64 { return uint64(stamp+1<<tickShift-1) >> tickShift }

// stampOf returns the first stamp of a tick.
func stampOf(tick uint64) int64 { return int64(min(tick, never>>tickShift) << tickShift) }

func (w *wheel) init(now int64) {
	w.now = uint64(now) >> tickShift
	for i := range w.heads {
		w.heads[i] = none
	}
}

func (w *wheel) add(es *entries, id uint32, tick uint64) {
	level := 0
	if tick > w.now {
		level = (bits.Len64(tick^w.now) - 1) / slotBits
	} else {
		tick = w.now
	}
	slot := tick >> (slotBits * level) % numSlots
	list := uint32(level*numSlots) + uint32(slot)
	first := w.heads[list]
	es.at(id).link = link{headMark | list, first}
	if first != none {
		es.at(first).prev = id
	}
	w.heads[list] = id
	w.occupied[level] |= 1 << slot
}

func (w *wheel) remove(es *entries, id uint32) {
	l := es.at(id).link
	if l.next != none {
		es.at(l.next).prev = l.prev
	}
	if l.prev&headMark == 0 {
		es.at(l.prev).next = l.next
		return
	}
	list := l.prev &^ headMark
	w.heads[list] = l.next
	if l.next == none {
		w.occupied[list/numSlots] &^= 1 << (list % numSlots)
	}
}

// advance moves the wheel to now, removes the expired entries from it, calls drop for each and
// returns how many there were. It checks no more than most entries, and must be called again for
// the rest.
func (w *wheel) advance(es *entries, now int64, most int, drop func(id uint32)) (dropped int) {
	target := uint64(now) >> tickShift
	for w.now <= target {
		for level := numLevels - 1; level >= 0; level-- {
			if w.now%(1<<(slotBits*level)) != 0 {
				continue
			}
			list := level*numSlots + int(w.now>>(slotBits*level)%numSlots)
			for id := w.heads[list]; id != none; id = w.heads[list] {
				if most == 0 {
					return dropped
				}
				most--
				w.remove(es, id)
				if e := es.at(id); e.expires <= now {
					drop(id)
					dropped++
				} else {
					w.add(es, id, tickOf(e.expires))
				}
			}
		}
		next := w.next()
		if next > target {
			w.now = target
			break
		}
		w.now = next
	}
	return dropped
}

// next returns the tick at which entries are to be checked: the current one, a later one, or never.
func (w *wheel) next() uint64 {
	for level := range numLevels {
		if digit := w.now >> (slotBits * level) % numSlots; w.occupied[level]&(1<<digit) != 0 {
			return w.now // added since, or advance stopped in the middle of the list
		}
	}
	for level := range numLevels {
		digits := w.now >> (slotBits * level)
		digit := digits % numSlots
		if later := w.occupied[level] &^ (2<<digit - 1); later != 0 {
			return (digits - digit + uint64(bits.TrailingZeros64(later))) << (slotBits * level)
		}
	}
	return never
}
