package denycache

import "sync/atomic"

// usage counts entries and their memory, which never exceed the bounds.
type usage struct {
	maxEntries, maxBytes int64
	entries, bytes       atomic.Int64
}

// add counts an entry of so many bytes, unless that exceeds a bound.
func (u *usage) add(bytes int64) bool {
	if !addWithin(&u.entries, 1, u.maxEntries) {
		return false
	}
	if !addWithin(&u.bytes, bytes, u.maxBytes) {
		u.entries.Add(-1)
		return false
	}
	return true
}

func (u *usage) subtract(bytes int64) {
	u.entries.Add(-1)
	u.bytes.Add(-bytes)
}

// addWithin adds n to sum, unless the sum would exceed bound.
func addWithin(sum *atomic.Int64, n, bound int64) bool {
	for {
		old := sum.Load()
		if old+n > bound {
			return false
		}
		if sum.CompareAndSwap(old, old+n) {
			return true
		}
	}
}
