package keyspace

import "strings"

// NumSlots is the number of slots of a cluster.
const NumSlots = 16384

// Slot returns the slot of a Redis or Valkey cluster, from 0 to 16383, to which a key belongs.
func Slot(key string) int {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return int(crc % NumSlots)
}

// OneSlot reports whether all keys belong to the same slot.
func OneSlot(keys []string) bool {
	for _, key := range keys[min(1, len(keys)):] {
		if Slot(key) != Slot(keys[0]) {
			return false
		}
	}
	return true
}

// crcTable is the table of the 16-bit CRC with polynomial x¹⁶+x¹²+x⁵+1, most significant bit first,
// initial value 0, which the cluster specification of Redis names.
var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc & 0x8000
			crc <<= 1
			if carry != 0 {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()
