package memorystore

import (
	"crypto/sha512"
	"encoding/hex"

	"github.com/truewindow/ratelimit"
)

// maxKey is the length of the longest key that is held as it is, so that MaxKeys bounds the memory for keys whatever users send.
const maxKey = 2 * sha512.Size

// keyOf returns what is held of a key: of a long one its hash, which is longer than any key that is held as it is, so that no two are taken for
// one another.
func keyOf(key string) string {
	if len(key) <= maxKey {
		return key
	}
	sum := sha512.Sum512([]byte(key))
	return hex.EncodeToString(sum[:]) + "#"
}

// keysOf returns ds with what is held of each key. It changes nothing of the caller's.
func keysOf(ds []ratelimit.Demand) []ratelimit.Demand {
	for i := range ds {
		if len(ds[i].Key) > maxKey {
			return shortened(ds)
		}
	}
	return ds
}

func shortened(ds []ratelimit.Demand) []ratelimit.Demand {
	short := make([]ratelimit.Demand, len(ds))
	for i, d := range ds {
		d.Key = keyOf(d.Key)
		short[i] = d
	}
	return short
}
