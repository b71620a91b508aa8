// Package longkey bounds the memory of stored keys.
package longkey

import (
	"crypto/sha512"
	"encoding/hex"
	"slices"

	"github.com/truewindow/ratelimit/driver"
)

// Max is the length in bytes of the longest key that Shorten returns unchanged.
const Max = 2 * sha512.Size

// Shorten returns key if it has at most Max bytes, and otherwise its hash. A hash is one byte
// longer than Max, so it equals no unchanged key.
func Shorten(key string) string {
	if len(key) <= Max {
		return key
	}
	sum := sha512.Sum512([]byte(key))
	return hex.EncodeToString(sum[:]) + "#"
}

// Demands returns ds with each key shortened. It does not change ds.
func Demands(ds []driver.Demand) []driver.Demand {
	if !slices.ContainsFunc(ds, func(d driver.Demand) bool { return len(d.Key) > Max }) {
		return ds
	}
	ds = slices.Clone(ds)
	for i := range ds {
		ds[i].Key = Shorten(ds[i].Key)
	}
	return ds
}
