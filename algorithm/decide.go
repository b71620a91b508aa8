package algorithm

import (
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// A fieldStepper is an algorithm whose Step is a Decide.
type fieldStepper interface {
	Limit() driver.Limit
	Decide(state []byte, now int64, op driver.Op, n, at int64) (
		next []byte, keep time.Duration, allowed bool,
		remaining int64, retryAfter, resetAfter time.Duration)
}

// step is Step by Decide.
func step(a fieldStepper, state []byte, now int64, d driver.Demand) (
	next []byte, keep time.Duration, res driver.Result,
) {
	next, keep, res.Allowed, res.Remaining, res.RetryAfter, res.ResetAfter =
		a.Decide(state, now, d.Op, d.N, d.At)
	if keep < 0 {
		return nil, -1, driver.Result{}
	}
	res.Limit = a.Limit()
	return next, keep, res
}

// reset returns the keep of an OpReset, which deletes a state if there is one.
func reset(state []byte) (keep time.Duration) {
	if len(state) > 0 {
		keep = time.Microsecond
	}
	return keep
}

// wholeMicros returns d in microseconds, rounded up.
func wholeMicros(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

// aheadText returns the end of the String of an algorithm whose units are taken so many µs before
// they are used.
func aheadText(lead int64) string {
	if lead == 0 {
		return ""
	}
	return " " + micros(lead).String() + " ahead"
}
