// Package longkey bounds the memory that a key takes where it is held.
package longkey

import (
	"crypto/sha512"
	"encoding/hex"
)

// Max is the length in bytes of the longest key that is held as it is.
const Max = 2 * sha512.Size

// Shorten returns key if it has at most Max bytes, and otherwise its hash. A hash is one byte
// longer than Max, so no key that is held as it is equals one.
func Shorten(key string) string {
	if len(key) <= Max {
		return key
	}
	sum := sha512.Sum512([]byte(key))
	return hex.EncodeToString(sum[:]) + "#"
}
