package conformance

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"hash/adler32"
	"hash/crc32"
	"hash/crc64"
	"hash/fnv"
	"math/bits"
	"slices"
	"testing"
)

// TestHashes compares hashes that are not in the standard library with published values.
func TestHashes(t *testing.T) {
	want := map[string]map[string]uint64{
		"djb2a": {"": 5381, "a": 5381*33 ^ 'a'},
		"one-at-a-time": {"a": 0xca2e9442,
			"The quick brown fox jumps over the lazy dog": 0x519e91f5},
		"MurmurHash3": {"": 0, "test": 0xba6bd213, "Hello, world!": 0xc0363e43,
			"The quick brown fox jumps over the lazy dog": 0x2e4ff723},
		"xxHash32": {"": 0x02cc5d05, "a": 0x550d7456, "abc": 0x32d153ff,
			"Nobody inspects the spammish repetition": 0xe2293b2f},
		"xxHash64": {"": 0xef46db3751d8e999, "a": 0xd24ec4f1a98c6e5b,
			"abc": 0x44bc2cf5ad770999},
		"the first 48 bits of MD5":    {"": 0xd41d8cd98f00},
		"the last 48 bits of SHA-256": {"": 0x991b7852b855},
	}
	sums := knownSums()
	for name, values := range want {
		for s, sum := range values {
			if got := sums[name](s); got != sum {
				t.Errorf("%s of %q is %#x, want %#x", name, s, got, sum)
			}
		}
	}
}

// knownSums returns the hash of each collision.
func knownSums() map[string]func(string) uint64 {
	sums := map[string]func(string) uint64{
		"CRC-32": func(s string) uint64 {
			return uint64(crc32.ChecksumIEEE([]byte(s)))
		},
		"CRC-32C": func(s string) uint64 {
			return uint64(crc32.Checksum([]byte(s), crc32.MakeTable(crc32.Castagnoli)))
		},
		"CRC-64 (ISO)": func(s string) uint64 {
			return crc64.Checksum([]byte(s), crc64.MakeTable(crc64.ISO))
		},
		"CRC-64 (ECMA)": func(s string) uint64 {
			return crc64.Checksum([]byte(s), crc64.MakeTable(crc64.ECMA))
		},
		"Adler-32": func(s string) uint64 {
			return uint64(adler32.Checksum([]byte(s)))
		},
		"sdbm": func(s string) uint64 {
			return uint64(uint32(power(65599)(s)))
		},
		linear[6].hash:                 power(31),
		linear[7].hash:                 power(33),
		"a sum of the bytes":           power(1),
		"an exclusive or of the bytes": exclusiveOr,
		"FNV-1":                        func(s string) uint64 { return summed(fnv.New32(), s) },
		"FNV-1a":                       func(s string) uint64 { return summed(fnv.New32a(), s) },
		"FNV-1 of 64 bits":             func(s string) uint64 { return summed(fnv.New64(), s) },
		"FNV-1a of 64 bits":            func(s string) uint64 { return summed(fnv.New64a(), s) },
		"djb2a":                        func(s string) uint64 { return uint64(djb2a(s)) },
		"one-at-a-time":                func(s string) uint64 { return uint64(oneAtATime(s)) },
		"MurmurHash3":                  func(s string) uint64 { return uint64(murmur3(s)) },
		"xxHash32":                     func(s string) uint64 { return uint64(xxHash32(s)) },
		"xxHash64":                     xxHash64,
	}
	of := func(name string, h func() hash.Hash) {
		sum := func(s string) []byte {
			h := h()
			h.Write([]byte(s))
			return h.Sum(nil)
		}
		sums["the first 48 bits of "+name] = func(s string) uint64 {
			return binary.BigEndian.Uint64(sum(s)) >> 16
		}
		sums["the last 48 bits of "+name] = func(s string) uint64 {
			all := sum(s)
			return binary.BigEndian.Uint64(all[len(all)-8:]) & (1<<48 - 1)
		}
	}
	of("MD5", md5.New)
	of("SHA-1", sha1.New)
	of("SHA-256", sha256.New)
	return sums
}

// TestCollisions checks that there is a pair of keys for every hash.
func TestCollisions(t *testing.T) {
	sums := knownSums()
	all := slices.Concat(linear, found)
	if len(all) != len(sums) {
		t.Errorf("there are %d pairs for %d hashes", len(all), len(sums))
	}
	for _, c := range all {
		a, b := c.keys[0], c.keys[1]
		if a == b || len(a) != len(b) || sums[c.hash](a) != sums[c.hash](b) {
			t.Errorf("%q and %q do not collide under %s", a, b, c.hash)
		}
	}
	for _, c := range linear {
		if sum := sums[c.hash]; sum("before"+c.keys[0]+"after") != sum("before"+c.keys[1]+"after") {
			t.Errorf("within other bytes %q and %q do not collide under %s",
				c.keys[0], c.keys[1], c.hash)
		}
	}
}

func power(factor uint64) func(string) uint64 {
	return func(s string) (h uint64) {
		for i := range len(s) {
			h = h*factor + uint64(s[i])
		}
		return h
	}
}

func exclusiveOr(s string) (h uint64) {
	for i := range len(s) {
		h ^= uint64(s[i])
	}
	return h
}

// summed returns the sum of s as a number.
func summed(h hash.Hash, s string) (sum uint64) {
	h.Write([]byte(s))
	for _, b := range h.Sum(nil) {
		sum = sum<<8 | uint64(b)
	}
	return sum
}

func djb2a(s string) uint32 {
	h := uint32(5381)
	for i := range len(s) {
		h = h*33 ^ uint32(s[i])
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

// xxHash64 is xxHash64 with the seed 0 of strings of fewer than 32 bytes.
func xxHash64(s string) uint64 {
	const p1, p2, p3, p4, p5 = 11400714785074694791, 14029467366897019727, 1609587929392839161,
		9650029242287828579, 2870177450012600261
	h := p5 + uint64(len(s))
	for ; len(s) >= 8; s = s[8:] {
		h ^= bits.RotateLeft64(binary.LittleEndian.Uint64([]byte(s))*p2, 31) * p1
		h = bits.RotateLeft64(h, 27)*p1 + p4
	}
	if len(s) >= 4 {
		h = bits.RotateLeft64(h^uint64(word(s))*p1, 23)*p2 + p3
		s = s[4:]
	}
	for i := range len(s) {
		h = bits.RotateLeft64(h^uint64(s[i])*p5, 11) * p1
	}
	h = (h ^ h>>33) * p2
	h = (h ^ h>>29) * p3
	return h ^ h>>32
}
