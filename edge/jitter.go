package edge

import (
	"math"
	"math/rand/v2"
	"time"
)

// longestJittered keeps a wait with its jitter from overflowing.
const longestJittered = math.MaxInt64 / 4

// Jitter returns the time that a client is told to wait: wait rounded up to whole units, and a
// random number of units more, from 0 to share of them rounded up. So it is never less than wait,
// and clients that are refused at one instant do not all come back at one. A share of 0, or a wait
// of more than 73 years, returns wait as it is.
func Jitter(wait, unit time.Duration, share float64) time.Duration {
	if share == 0 || wait > longestJittered {
		return wait
	}
	units := (wait + unit - 1) / unit
	more := int64(math.Ceil(share * float64(units)))
	return (units + time.Duration(rand.Int64N(more+1))) * unit
}

// ValidJitter reports whether a share is one of [Jitter]: from 0 to 1.
func ValidJitter(share float64) bool { return share >= 0 && share <= 1 }
