package conformance

import (
	"crypto/subtle"
	"encoding/binary"
	"hash/crc32"
	"hash/crc64"
	"strings"
)

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

// found are collisions of hashes that libraries, servers and people use, found by a search or by
// the structure of the hash. What collides in 48 bits or 64 does so in fewer. Nothing may stand
// before the keys.
var found = []collision{
	{"FNV-1", [2]string{"40ixnmti", "7p26nu83"}},
	{"FNV-1a", [2]string{"bjex6x3k", "c9svr1bi"}},
	{"FNV-1 of 64 bits", [2]string{"dK)E?]>2{sAE", "c1){+}40cnv4"}},
	{"FNV-1a of 64 bits", [2]string{"7?-qf;M0w4D[", "6-)s$#-2o?md"}},
	{"djb2a", [2]string{"036v2uzp", "2q6v2w8p"}},
	{"one-at-a-time", [2]string{"1unqjlk6", "2ble06cl"}},
	{"MurmurHash3", [2]string{"7kex9yow", "1gqi7o8s"}},
	{"xxHash32", [2]string{"0mt6clgb", "92odye2d"}},
	{"xxHash64", [2]string{"user:42:requests", "user:003.eoR\xa1\xa4\xd4L"}},
	{"the first 48 bits of MD5", [2]string{"k8ozza", "kfixw8"}},
	{"the last 48 bits of MD5", [2]string{"k51i0l", "kamadm"}},
	{"the first 48 bits of SHA-1", [2]string{"k3c11p", "kiruwo"}},
	{"the last 48 bits of SHA-1", [2]string{"k37kt3", "k9ate6"}},
	{"the first 48 bits of SHA-256", [2]string{"k3c1hn", "k6hf0h"}},
	{"the last 48 bits of SHA-256", [2]string{"k39urm", "k5x2ug"}},
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
