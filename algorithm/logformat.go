package algorithm

import "encoding/binary"

// The state of the sliding-window log, named "log3". All integers are unsigned and big-endian.
//
//	record   12 bytes, in strictly ascending order of stamps
//	  units    6
//	  stamp    6  µs since base
//	trailer  32 bytes
//	  place    7  count · 2^26 + head: number of records, slot of the oldest
//	  sum      7  used · 32 + flags: units of these records; stale copies, plus 8 in a ring
//	  span     7  exponent · 2^45 + window: the newest stamp is less than 2^exponent µs ahead of
//	              the clock that wrote it; Window of the last admission in µs
//	  base     7  µs since the Unix epoch, plus 2^51
//	  expiry   4  when the key expires on a server, in units of 2^16 µs since base
//
// Records are in slots of 12 bytes, from offset 0 on. There are three forms:
//
//	small  up to 10 records; trailer. The oldest record is in slot 0.
//	line   from 11 records on; trailer; copies. Slots before the oldest hold dropped records.
//	ring   from a few hundred records on: slots, 64 a block; index; number of blocks (4 bytes); a
//	       copy of the newest record; trailer; copies. Slot 0 follows the last slot.
//
// So the newest record is before the trailer in each form. An admission changes one range of bytes,
// or two in a ring. A server reads the last 160 bytes of a state, which are all bytes of a small
// state.
//
// The copies are the four records that were the oldest when the copies were made. From them a
// server sees what has expired. A copy is stale when its record has been dropped. When units are
// added to one of the four oldest records, all copies are stale.
//
// An entry of a ring's index has the form of a record: the units of the 64 records of a block, and
// the stamp of the first. A block has an entry when a record follows it. With the index a step
// skips many expired records, and finds the record to wait for, without reading each record.
//
// A large state is not moved as a whole when it grows. A ring grows only at its end, when the next
// record would go to slot 0 and the limit may need more slots. A ring that is full or much too long
// is rewritten, which is rare.
//
// To shift all stamps, base is changed. Which records count follows from the trailer: those after
// newest - (2^exponent - 1) - window. So two states that differ only in records that do not count
// mean the same.
const (
	recordSize  = 12
	trailerSize = 32
	copies      = 4
	copiesSize  = copies * recordSize
	blocksSize  = 4 // the number of blocks
	lineEnd     = trailerSize + copiesSize
	ringEnd     = blocksSize + recordSize + lineEnd

	maxRecords = 1 << 25            // 409 MB with their index
	maxSlots   = maxRecords / 8 * 9 // of a ring: 460 MB, and a server takes 512 MB

	smallMax  = 10                       // records of the small form
	lineMax   = 384                      // slots of a line
	lineStart = 320                      // records of a new line, at most
	block     = 64                       // records
	blockSize = (block + 1) * recordSize // with its entry

	ringFlag    = 8
	baseBias    = 1 << 51
	maxExponent = 45
	expiryBits  = 16
	maxExpiry   = 1<<32 - 1
	max48       = 1<<48 - 1
	max53       = 1<<53 - 1
)

func smallSize(records int) int { return records*recordSize + trailerSize }

func lineSize(slots int) int { return slots*recordSize + lineEnd }

func ringSize(blocks int) int { return blocks*blockSize + ringEnd }

// isLarge reports whether a state of size bytes is a line or a ring.
func isLarge(size int) bool { return size > smallMax*recordSize+trailerSize }

// ending returns the newest record and the trailer of a state that is not empty.
func ending(state []byte) (newest *recordBytes, trailer *trailerBytes) {
	end := len(state)
	if isLarge(end) {
		end -= copiesSize
	}
	both := (*[recordSize + trailerSize]byte)(state[end-trailerSize-recordSize:])
	return (*recordBytes)(both[:recordSize]), (*trailerBytes)(both[recordSize:])
}

// recordBytes is a record. Unlike a slice, an array needs no bounds checks.
type recordBytes [recordSize]byte

func (r *recordBytes) stamp() int64 { return int64(binary.BigEndian.Uint64(r[4:]) & max48) }

func (r *recordBytes) units() int64 { return int64(binary.BigEndian.Uint64(r[:]) >> 16) }

func (r *recordBytes) put(stamp, units int64) {
	binary.BigEndian.PutUint64(r[:], uint64(units)<<16|uint64(stamp)>>32)
	binary.BigEndian.PutUint32(r[8:], uint32(stamp))
}

func (r *recordBytes) addUnits(n int64) { r.put(r.stamp(), min(r.units()+n, max48)) }

// trailer is the decoded trailer of a state.
type trailer struct {
	count    int    // number of records
	head     int    // slot of the oldest record
	used     int64  // units of all records
	flags    uint8  // number of stale copies, plus ringFlag in a ring
	exponent uint16 // the newest stamp is less than 2^exponent µs ahead of the clock that wrote it
	window   int64  // Window of the last admission in µs
	base     int64  // µs since the Unix epoch at which stamps begin
	expiry   int64  // when the key expires on a server, in units of 2^16 µs since base
}

// valid reports whether an admission may have written t.
func (t *trailer) valid() bool {
	return t.used <= max48 && t.exponent <= maxExponent && t.base < 3*baseBias &&
		0 < t.window && t.window <= maxWindow
}

// slop is how far the newest stamp may be ahead of the clock that wrote it.
func (t *trailer) slop() int64 { return 1<<t.exponent - 1 }

// put encodes t in a state.
func (t *trailer) put(state []byte) {
	_, b := ending(state)
	place := uint64(t.count)<<26 | uint64(t.head)
	sum := uint64(t.used)<<5 | uint64(t.flags)
	span := uint64(t.exponent)<<45 | uint64(t.window)
	base := uint64(t.base + baseBias)
	binary.BigEndian.PutUint64(b[:], place<<8|sum>>48)
	binary.BigEndian.PutUint64(b[8:], sum<<16|span>>40)
	binary.BigEndian.PutUint64(b[16:], span<<24|base>>32)
	binary.BigEndian.PutUint64(b[24:], base<<32|uint64(uint32(t.expiry)))
}

// trailerBytes is an encoded trailer.
type trailerBytes [trailerSize]byte

func (b *trailerBytes) place() (count, head int) {
	place := binary.BigEndian.Uint64(b[:]) >> 8
	return int(place >> 26), int(place & (1<<26 - 1))
}

func (b *trailerBytes) sum() (used int64, flags uint8) {
	sum := binary.BigEndian.Uint64(b[7:]) >> 8
	return int64(sum >> 5), uint8(sum & 31)
}

func (b *trailerBytes) span() (exponent uint16, window int64) {
	span := binary.BigEndian.Uint64(b[14:]) >> 8
	return uint16(span >> 45), int64(span & (1<<45 - 1))
}

func (b *trailerBytes) base() int64 { return int64(binary.BigEndian.Uint64(b[21:])>>8) - baseBias }

func (b *trailerBytes) expiry() int64 { return int64(binary.BigEndian.Uint32(b[28:])) }
