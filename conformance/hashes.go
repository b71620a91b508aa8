package conformance

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"hash/crc32"
	"hash/crc64"
	"math/bits"
	"strconv"
	"strings"
	"sync"
)

// A hash32 is a hash of 32 bits that a store might use in place of keys.
type hash32 struct {
	name string
	sum  func(string) uint32
}

// hashes32 are 32-bit hashes that libraries and servers offer. The suite searches keys that collide
// under each.
var hashes32 = []hash32{
	{"FNV-1", fnv1},
	{"FNV-1a", fnv1a},
	{"the low half of FNV-1a of 64 bits", func(s string) uint32 { return uint32(fnv1a64(s)) }},
	{"djb2a", djb2a},
	{"one-at-a-time", oneAtATime},
	{"MurmurHash3", murmur3},
	{"xxHash32", xxHash32},
	{"the first 32 bits of MD5",
		func(s string) uint32 {
			sum := md5.Sum([]byte(s))
			return binary.BigEndian.Uint32(sum[:])
		}},
	{"the first 32 bits of SHA-1",
		func(s string) uint32 {
			sum := sha1.Sum([]byte(s))
			return binary.BigEndian.Uint32(sum[:])
		}},
	{"the first 32 bits of SHA-256",
		func(s string) uint32 {
			sum := sha256.Sum256([]byte(s))
			return binary.BigEndian.Uint32(sum[:])
		}},
}

// A collision is two keys that have the same hash.
type collision struct {
	hash string
	keys [2]string
}

// linear are collisions of hashes that are linear. The same bytes may stand before and after both
// keys.
var linear = []collision{
	{"CRC-32", added(uint64(crc32.IEEE), 4)},
	{"CRC-32C", added(uint64(crc32.Castagnoli), 4)},
	{"CRC-64 (ISO)", added(crc64.ISO, 8)},
	{"CRC-64 (ECMA)", added(crc64.ECMA, 8)},
	{"Adler-32", [2]string{"aca", "bab"}},
	{"sdbm", [2]string{"NNNNNN", "g?MLU>"}},
	{"String.hashCode, or another polynomial in 31", [2]string{"Aa", "BB"}},
	{"djb2, or another polynomial in 33", [2]string{"aB", "b!"}},
	{"a sum of the bytes", [2]string{"ad", "bc"}},
	{"an exclusive or of the bytes", [2]string{"ab", "ba"}},
}

// added returns two messages that differ by the generator polynomial of a CRC, which does not
// change it. The polynomial has size bytes and no highest power, and is reversed.
func added(polynomial uint64, size int) [2]string {
	generator := append(binary.LittleEndian.AppendUint64(nil, polynomial<<1|1),
		byte(polynomial>>63))[:size+1]
	message := strings.Repeat("N", size+1)
	other := []byte(message)
	subtle.XORBytes(other, other, generator)
	return [2]string{message, string(other)}
}

// The loops do not call a function for each byte: under the race detector that would take most of
// the time.

func djb2a(s string) uint32 {
	h := uint32(5381)
	for i := range len(s) {
		h = h*33 ^ uint32(s[i])
	}
	return h
}

func fnv1(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = h*16777619 ^ uint32(s[i])
	}
	return h
}

func fnv1a(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h
}

func fnv1a64(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

func oneAtATime(s string) uint32 {
	h := uint32(0)
	for i := range len(s) {
		h += uint32(s[i])
		h += h << 10
		h ^= h >> 6
	}
	h += h << 3
	h ^= h >> 11
	return h + h<<15
}

// murmur3 is MurmurHash3 for x86 with 32 bits and the seed 0.
func murmur3(s string) uint32 {
	const c1, c2 = 0xcc9e2d51, 0x1b873593
	mix := func(k uint32) uint32 { return bits.RotateLeft32(k*c1, 15) * c2 }
	h, rest := uint32(0), s
	for ; len(rest) >= 4; rest = rest[4:] {
		h = bits.RotateLeft32(h^mix(word(rest)), 13)*5 + 0xe6546b64
	}
	tail := uint32(0)
	for i := len(rest) - 1; i >= 0; i-- {
		tail = tail<<8 | uint32(rest[i])
	}
	h ^= mix(tail) ^ uint32(len(s))
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}

// xxHash32 is the 32-bit form of xxHash with the seed 0.
func xxHash32(s string) uint32 {
	const p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	h, rest := uint32(p5), s
	if len(s) >= 16 {
		one, two := uint32(p1), uint32(p2)
		lanes := [4]uint32{one + two, two, 0, -one}
		for ; len(rest) >= 16; rest = rest[16:] {
			for i := range lanes {
				lanes[i] = bits.RotateLeft32(lanes[i]+word(rest[4*i:])*p2, 13) * p1
			}
		}
		h = 0
		for i, turn := range []int{1, 7, 12, 18} {
			h += bits.RotateLeft32(lanes[i], turn)
		}
	}
	h += uint32(len(s))
	for ; len(rest) >= 4; rest = rest[4:] {
		h = bits.RotateLeft32(h+word(rest)*p3, 17) * p4
	}
	for i := range len(rest) {
		h = bits.RotateLeft32(h+uint32(rest[i])*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}

// word returns the first four bytes of s as a little-endian integer.
func word(s string) uint32 {
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

// candidates is how many keys the search for a collision may try. It takes 82,000 on average, and
// 400,000 with a probability of one in 10^8.
const candidates = 400_000

// after returns the collision with prefix before both keys.
func (c collision) after(prefix string) collision {
	return collision{c.hash, [2]string{prefix + c.keys[0], prefix + c.keys[1]}}
}

// searched returns two keys that begin with prefix and have the same length, for each of hashes32.
func searched(prefix string) []collision {
	found := make([]collision, len(hashes32))
	var wg sync.WaitGroup
	for i, h := range hashes32 {
		wg.Go(func() { found[i] = collision{h.name, h.collide(prefix)} })
	}
	wg.Wait()
	return found
}

func (h hash32) collide(prefix string) [2]string {
	const size = 1 << 20
	table := make([]uint64, size) // of sums and, beside each, one more than the number of its key
	key := func(i uint64) string { return prefix + scatter(i) }
	for i := range uint64(candidates) {
		sum := h.sum(key(i))
		for at := sum; ; at++ {
			slot := &table[at%size]
			if *slot == 0 {
				*slot = uint64(sum)<<32 | (i + 1)
				break
			}
			if uint32(*slot>>32) == sum {
				return [2]string{key(uint64(uint32(*slot)) - 1), key(i)}
			}
		}
	}
	return [2]string{}
}

// scatter returns eight characters that look random and are different for each i below 2^40.
func scatter(i uint64) string {
	const mask = 1<<40 - 1
	i = (i ^ i>>20) * 0x1ce4e5b9bf58476d & mask
	i = (i ^ i>>20) * 0x133111eb94d049bb & mask
	s := strconv.FormatUint(i^i>>20, 36)
	return strings.Repeat("0", 8-len(s)) + s
}
