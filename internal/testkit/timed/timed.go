// Package timed has algorithms whose results tell the time of the decision by the store's clock.
package timed

import (
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// Of returns a with results that tell the time: Remaining is the number of free units, of which 255
// at most can be told, and above these 8 bits the low 36 bits of the store's clock in µs. The
// states are those of a.
func Of(a driver.Algorithm) driver.Algorithm {
	if h, ok := a.(driver.Holder); ok {
		return holder{timed{a}, h}
	}
	return timed{a}
}

const (
	unitBits = 8
	timeBits = 36
)

// Free returns the free units of a result.
func Free(res driver.Result) int64 { return res.Remaining & (1<<unitBits - 1) }

// Now returns the time that a result tells, less a number that is the same for all times within
// nine hours of near.
func Now(res driver.Result, near int64) int64 {
	const unused = 64 - timeBits
	return near + (res.Remaining>>unitBits-near)<<unused>>unused
}

type timed struct{ driver.Algorithm }

type holder struct {
	timed
	of driver.Holder
}

var _ driver.Holder = holder{}

func (a holder) HoldTimeout() time.Duration { return a.of.HoldTimeout() }

func (a holder) InFlight() bool { return a.of.InFlight() }

func (a timed) Step(
	state []byte, now int64, d driver.Demand,
) (next []byte, keep time.Duration, res driver.Result) {
	d.Algorithm = a.Algorithm
	next, keep, res = a.Algorithm.Step(state, now, d)
	res.Remaining += now & (1<<timeBits - 1) << unitBits
	return next, keep, res
}

// source follows the source of the step. A step that is returned as rest tells the time too.
const source = `
local untimed, tell = step, nil
tell = function(now, allowed, remaining, retry, reset, units, us, whole, o1, b1, o2, b2, o3, b3,
    size, head, ttl, id, hold, gone, rest)
  if not allowed then return end
  local step = rest
  if step then rest = function(key, tail) return tell(now, step(key, tail)) end end
  return allowed, remaining + now % 2 ^ 36 * 2 ^ 8, retry, reset, units, us, whole, o1, b1, o2, b2,
    o3, b3, size, head, ttl, id, hold, gone, rest
end
local function step(key, tail, now, ...)
  return tell(now, untimed(key, tail, now, ...))
end
`

func (a timed) Script() driver.Script {
	script := a.Algorithm.Script()
	args := script.Args
	script.Name += " timed"
	script.Source += source
	script.Args = func(dst []int64, d driver.Demand) []int64 {
		d.Algorithm = d.Algorithm.(interface{ untimed() driver.Algorithm }).untimed()
		return args(dst, d)
	}
	return script
}

func (a timed) untimed() driver.Algorithm { return a.Algorithm }
