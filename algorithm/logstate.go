package algorithm

import (
	"encoding/binary"
	"slices"
	"sort"
)

// The state of the sliding-window log, named "log1". All integers are unsigned and big-endian.
//
//	records  12 bytes each, oldest first, strictly ascending stamps, at least one
//	  stamp   6  microseconds since base
//	  units   6  recorded and not given back
//	trailer  30 bytes
//	  slop    1  exponent e: the newest stamp is less than 2^e µs ahead of the clock that wrote it
//	  base    7  µs since the Unix epoch, plus 2^51
//	  window  6  Window of the last admission, in µs: the state has run out at newest + window
//	  head    4  number of records at the front that are dropped, though still there
//	  used    6  sum of the units from head on
//	  reach   6  stamp until which the time to live reaches, in µs since base
//
// What changes with an admission stands at the end, so that one write there can record it. A shift of all stamps is a change of base.
// Which records are dropped follows from the rest, newest - (2^e - 1) - window, so the physical
// state may hold more or fewer of them and mean the same.
const (
	recordSize  = 12
	trailerSize = 30

	baseBias    = 1 << 51
	maxExponent = 45
	max48       = 1<<48 - 1
)

// logState is a decoded state. Its methods change buf in place; encode makes it whole again.
type logState struct {
	buf      []byte // records, and room for what follows
	n        int    // records in buf
	head     int
	exponent uint8
	base     int64
	window   int64
	used     int64
	reach    int64 // since base; of use on servers only
}

// decodeLog reports false for a state that encode did not write. It reads only the trailer.
func decodeLog(state []byte) (g logState, ok bool) {
	size := len(state) - trailerSize
	if size < 0 {
		return logState{buf: state[:0]}, len(state) == 0
	}
	t := state[size:]
	first := binary.BigEndian.Uint64(t)
	g = logState{
		buf:      state,
		n:        size / recordSize,
		head:     int(binary.BigEndian.Uint32(t[14:])),
		exponent: uint8(first >> 56),
		base:     int64(first<<8>>8) - baseBias,
		window:   int64(binary.BigEndian.Uint64(t[8:]) >> 16),
		used:     int64(binary.BigEndian.Uint64(t[16:]) & max48),
		reach:    int64(binary.BigEndian.Uint64(t[22:]) & max48),
	}
	ok = size%recordSize == 0 && g.head < g.n && g.exponent <= maxExponent && g.base <= 3*baseBias &&
		g.window >= 1 && g.window <= maxWindow
	return g, ok
}

func (g *logState) stamp(i int) int64 {
	return g.base + int64(binary.BigEndian.Uint64(g.buf[i*recordSize:])>>16)
}

func (g *logState) units(i int) int64 {
	return int64(binary.BigEndian.Uint64(g.buf[i*recordSize+4:]) & max48)
}

func (g *logState) newest() int64 { return g.stamp(g.n - 1) }

func (g *logState) slop() int64 { return 1<<g.exponent - 1 }

// put writes record i.
func (g *logState) put(i int, stamp, units int64) {
	r := g.buf[i*recordSize : (i+1)*recordSize]
	off := uint64(stamp - g.base)
	binary.BigEndian.PutUint64(r, off<<16|uint64(units)>>32)
	binary.BigEndian.PutUint32(r[8:], uint32(units))
}

// after returns the index of the first record from head on whose stamp is later than edge, and the units
// from there on. The units are negative if the state is corrupt.
func (g *logState) after(edge int64) (first int, used int64) {
	first, used = g.head, g.used
	for first < g.n && g.stamp(first) <= edge {
		used -= g.units(first)
		first++
	}
	return first, used
}

// settle drops a log that has run out, and shifts one whose newest stamp is more than a window ahead of now.
func (g *logState) settle(now, window int64) (shifted bool) {
	if g.n == 0 {
		return false
	}
	ahead := g.newest() - now
	switch {
	case -ahead >= g.window:
		g.clear(now)
	case ahead > window:
		g.base -= ahead
		shifted = true
	}
	return shifted
}

// leaves returns the stamp of the record from first on with whose leaving need units, more than 0, have left. It reports false if
// there are not so many: the state is corrupt.
func (g *logState) leaves(first int, need int64) (stamp int64, ok bool) {
	for i := first; i < g.n; i++ {
		if need -= g.units(i); need <= 0 {
			return g.stamp(i), true
		}
	}
	return 0, false
}

// giveBack takes up to n units off the record at stamp, from index first on, and returns how many there were.
func (g *logState) giveBack(first int, stamp, n int64) int64 {
	i := first + sort.Search(g.n-first, func(i int) bool { return g.stamp(first+i) >= stamp })
	if i == g.n || g.stamp(i) != stamp {
		return 0
	}
	units := g.units(i)
	back := min(n, units, g.used)
	g.put(i, stamp, units-back)
	g.used -= back
	return back
}

// clear drops all records and keeps the array.
func (g *logState) clear(base int64) {
	*g = logState{buf: g.buf[:0], base: base}
}

// add appends a record, or adds to the newest if that has the stamp.
func (g *logState) add(stamp, units int64) {
	g.used += units
	if g.n > 0 && g.newest() == stamp {
		g.put(g.n-1, stamp, g.units(g.n-1)+units)
		return
	}
	g.grow()
	g.put(g.n, stamp, units)
	g.n++
}

// grow makes room for one more record and the trailer: in the array, by moving the records over those dropped, or in a new array.
func (g *logState) grow() {
	need := (g.n+1)*recordSize + trailerSize
	if need > cap(g.buf) {
		live := g.buf[g.head*recordSize : g.n*recordSize]
		need -= g.head * recordSize
		switch {
		case 4*need < cap(g.buf):
			g.buf = append(slices.Grow([]byte(nil), 2*need), live...)
		case g.head > g.n/16:
			copy(g.buf[:cap(g.buf)], live)
		default:
			g.buf = append(slices.Grow([]byte(nil), need+need/8), live...)
		}
		g.n -= g.head
		g.head = 0
	}
	g.buf = g.buf[:need]
}

// rebase moves base so that stamp has an offset of 48 bits: needed once in 8.9 years of a log that never ran out.
func (g *logState) rebase(stamp int64) {
	delta := g.stamp(g.head) - g.base
	if g.head == g.n {
		delta = stamp - g.base
	}
	old := *g
	g.base += delta
	for i := g.head; i < g.n; i++ {
		g.put(i, old.stamp(i), old.units(i))
	}
}

// encode returns the state as bytes, in the array of buf where that has room.
func (g *logState) encode() []byte {
	size := g.n * recordSize
	g.buf = slices.Grow(g.buf[:size], trailerSize)[:size+trailerSize]
	t := g.buf[size:]
	binary.BigEndian.PutUint64(t, uint64(g.exponent)<<56|uint64(g.base+baseBias))
	binary.BigEndian.PutUint64(t[8:], uint64(g.window)<<16|uint64(g.head)>>16)
	binary.BigEndian.PutUint64(t[16:], uint64(g.head)<<48|uint64(g.used))
	binary.BigEndian.PutUint64(t[22:], uint64(g.used)<<48|uint64(g.reach))
	return g.buf
}
