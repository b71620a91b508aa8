// Package uses says by how many units uses have exceeded a limit.
package uses

import "slices"

// A Use is of units at a time in µs.
type Use struct{ At, Units int64 }

// Sort sorts uses by their times.
func Sort(uses []Use) {
	slices.SortStableFunc(uses, func(a, b Use) int { return int(a.At - b.At) })
}

// An Excess is by how many units sorted uses have exceeded a limit of most in a window in µs.
type Excess func(uses []Use, most, window int64) int64

// OverWindow is the Excess of a rolling window.
func OverWindow(uses []Use, most, window int64) (over int64) {
	sum, first := int64(0), 0
	for _, u := range uses {
		for sum += u.Units; uses[first].At <= u.At-window; first++ {
			sum -= uses[first].Units
		}
		over = max(over, sum-most)
	}
	return over
}

// OverBucket is the Excess of a token bucket that fills in a window.
func OverBucket(uses []Use, most, window int64) (over int64) {
	missing, last := int64(0), int64(0) // in 1/window of a unit
	for _, u := range uses {
		missing = max(0, missing-most*(u.At-last)) + u.Units*window
		last = u.At
		over = max(over, (missing-most*window+window-1)/window)
	}
	return over
}

// OverFixed is the Excess of windows that begin at multiples of window.
func OverFixed(uses []Use, most, window int64) (over int64) {
	sum, last := int64(0), int64(-1)
	for _, u := range uses {
		if w := u.At / window; w != last {
			sum, last = 0, w
		}
		sum += u.Units
		over = max(over, sum-most)
	}
	return over
}
