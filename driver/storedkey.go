package driver

import "github.com/truewindow/ratelimit/internal/storedkey"

// The largest sizes of the parts of a stored key in bytes: 250 in all, with the colons.
const (
	maxStoredKey  = 120
	maxStoredName = 64
)

var (
	escapedInKey  = storedkey.NewSet(func(c byte) bool { return c <= ' ' || c >= 0x7f || c == '#' })
	escapedInName = storedkey.NewSet(func(c byte) bool { return escapedInKey[c] || c == ':' })
)

// StoredKey returns a name for the state of d, for stores that keep each state under one string. It
// has at most 250 bytes of printable ASCII without spaces, such as "user:42:login:log3": the key,
// the limit's name and the algorithm's name.
//
// "%", "#", spaces and all bytes that are not printable ASCII, and ":" in a name, are written as
// "%" and two hexadecimal digits. A key of more than 120 bytes in this form, or a name of more than
// 64, is written as "#" and its SHA-256. So two demands have the same stored key only if they have
// the same state.
//
// Compare stored keys byte by byte: a column that ignores case or trailing spaces mixes up states.
//
// Call it only for a demand that [CheckTake] accepts. The stores on Redis and Valkey of this module
// use keys of another form.
func (d Demand) StoredKey() string {
	var buf [256]byte
	b := appendStored(buf[:0], d.Key, escapedInKey, maxStoredKey)
	b = appendStored(append(b, ':'), d.Algorithm.Limit().Name, escapedInName, maxStoredName)
	b = appendStored(append(b, ':'), d.Algorithm.Name(), escapedInName, maxStoredName)
	return string(b)
}

func appendStored(b []byte, s string, set *storedkey.Set, most int) []byte {
	if !set.Fits(s, most) {
		return storedkey.AppendHash(append(b, '#'), s)
	}
	return set.AppendEscaped(b, s)
}
