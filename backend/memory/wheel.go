package memorystore

import (
	"math"
	"math/bits"
)

const (
	slotBits  = 6
	numSlots  = 1 << slotBits
	numLevels = 9 // 2^54 µs: beyond any stamp

	// headMark in link.prev marks the first entry of a list. The other bits are the index of the
	// list.
	headMark = 1 << 31

	never = math.MaxInt64 // beyond any stamp
)

// wheel holds entries in the order in which they may expire: a hierarchical timing wheel (Varghese
// and Lauck, 1987). Adding and removing cost the same for any number of entries. An entry in level
// l and slot s is checked when the l-th digit of the clock, in base 64, becomes s. Then it is
// dropped or moved to a lower level, so it is dropped to the microsecond.
type wheel struct {
	now      int64 // stamp up to which all entries are checked
	occupied [numLevels]uint64
	heads    [numLevels * numSlots]uint32
}

func (w *wheel) init(now int64) {
	w.now = now
	for i := range w.heads {
		w.heads[i] = none
	}
}

func (w *wheel) add(es *entries, id uint32, stamp int64) {
	level := 0
	if stamp > w.now {
		level = (bits.Len64(uint64(stamp^w.now)) - 1) / slotBits
	} else {
		stamp = w.now
	}
	slot := stamp >> (slotBits * level) % numSlots
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
	for w.now <= now {
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
					w.add(es, id, e.expires)
				}
			}
		}
		next := w.next()
		if next > now {
			w.now = now
			break
		}
		w.now = next
	}
	return dropped
}

// next returns the stamp at which entries are to be checked: now, a later one, or never.
func (w *wheel) next() int64 {
	for level := range numLevels {
		if digit := w.now >> (slotBits * level) % numSlots; w.occupied[level]&(1<<digit) != 0 {
			return w.now // added since, or advance stopped in the middle of the list
		}
	}
	for level := range numLevels {
		digits := w.now >> (slotBits * level)
		digit := digits % numSlots
		if later := w.occupied[level] &^ (2<<digit - 1); later != 0 {
			return (digits - digit + int64(bits.TrailingZeros64(later))) << (slotBits * level)
		}
	}
	return never
}
