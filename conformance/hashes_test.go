package conformance

import (
	"hash/adler32"
	"hash/crc32"
	"hash/crc64"
	"hash/fnv"
	"testing"
)

// TestHashes compares the hashes with published values and with the standard library.
func TestHashes(t *testing.T) {
	want := map[string]map[string]uint32{
		"djb2a": {"": 5381, "a": 5381*33 ^ 'a'},
		"one-at-a-time": {"a": 0xca2e9442,
			"The quick brown fox jumps over the lazy dog": 0x519e91f5},
		"MurmurHash3": {"": 0, "test": 0xba6bd213, "Hello, world!": 0xc0363e43,
			"The quick brown fox jumps over the lazy dog": 0x2e4ff723},
		"xxHash32": {"": 0x02cc5d05, "a": 0x550d7456, "abc": 0x32d153ff,
			"Nobody inspects the spammish repetition": 0xe2293b2f},
		"the first 32 bits of MD5":     {"": 0xd41d8cd9},
		"the first 32 bits of SHA-1":   {"": 0xda39a3ee},
		"the first 32 bits of SHA-256": {"": 0xe3b0c442},
	}
	for _, h := range hashes32 {
		for s, sum := range want[h.name] {
			if got := h.sum(s); got != sum {
				t.Errorf("%s of %q is %#x, want %#x", h.name, s, got, sum)
			}
		}
	}
	const s = "user:42"
	one, oneA, oneA64 := fnv.New32(), fnv.New32a(), fnv.New64a()
	one.Write([]byte(s))
	oneA.Write([]byte(s))
	oneA64.Write([]byte(s))
	if fnv1(s) != one.Sum32() || fnv1a(s) != oneA.Sum32() || fnv1a64(s) != oneA64.Sum64() {
		t.Error("FNV is not that of the standard library")
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
	}
	for _, h := range hashes32 {
		sums[h.name] = func(s string) uint64 { return uint64(h.sum(s)) }
	}
	return sums
}

// TestCollisions checks that a pair of keys is found for every hash, whatever the prefix.
func TestCollisions(t *testing.T) {
	sums := knownSums()
	for _, prefix := range []string{"", "5FZ3L2-", "user:\xff"} {
		found := searched(prefix)
		for _, c := range linear {
			found = append(found, c.after(prefix))
		}
		if len(found) != len(sums) {
			t.Errorf("%d pairs were found for %d hashes", len(found), len(sums))
		}
		for _, c := range found {
			a, b := c.keys[0], c.keys[1]
			if a == b || len(a) != len(b) || sums[c.hash](a) != sums[c.hash](b) {
				t.Errorf("%q and %q do not collide under %s", a, b, c.hash)
			}
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
