package algorithm

import "math/bits"

// product returns (a·b + c) ÷ m, rounded down, and the remainder. A quotient of 2^63 or more
// becomes 2^63 - 1. None of the numbers is negative, and m is not 0.
func product(a, b, c, m int64) (quotient, remainder int64) {
	high, low := bits.Mul64(uint64(a), uint64(b))
	low, carry := bits.Add64(low, uint64(c), 0)
	if high += carry; high >= uint64(m) {
		return 1<<63 - 1, 0
	}
	q, r := bits.Div64(high, low, uint64(m))
	return int64(min(q, 1<<63-1)), int64(r)
}
