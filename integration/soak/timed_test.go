package soak

import (
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// timed returns a with results that tell the time of the decision, as linear.CheckRunning needs them:
// Remaining is the number of free units, of which 255 at most can be told, and above these 8 bits the
// low 36 bits of the store's clock. The states are those of a.
func timed(a driver.Algorithm) driver.Algorithm {
	if h, ok := a.(driver.Holder); ok {
		return timedHolder{timedStep{a}, h}
	}
	return timedStep{a}
}

const (
	unitBits = 8
	timeBits = 36
)

// freeIn returns the free units of a result of a timed algorithm.
func freeIn(res driver.Result) int64 { return res.Remaining & (1<<unitBits - 1) }

// timeIn returns the time of a decision under a timed algorithm in µs, less a number that is the
// same for all times within nine hours of near.
func timeIn(res driver.Result, near int64) int64 {
	const unused = 64 - timeBits
	return near + (res.Remaining>>unitBits-near)<<unused>>unused
}

type timedStep struct{ driver.Algorithm }

type timedHolder struct {
	timedStep
	holder driver.Holder
}

func (a timedHolder) Holds() time.Duration { return a.holder.Holds() }

func (a timedHolder) InFlight() bool { return a.holder.InFlight() }

func (a timedStep) Step(
	state []byte, now int64, d driver.Demand,
) (next []byte, keep time.Duration, res driver.Result) {
	d.Algorithm = a.Algorithm
	next, keep, res = a.Algorithm.Step(state, now, d)
	res.Remaining += now & (1<<timeBits - 1) << unitBits
	return next, keep, res
}

// timedSource follows the source of the step.
const timedSource = `
local untimed, tell = step, function(now, allowed, remaining, ...)
  if not allowed then return end
  return allowed, remaining + now % 2 ^ 36 * 2 ^ 8, ...
end
local function step(key, tail, now, ...)
  return tell(now, untimed(key, tail, now, ...))
end
`

func (a timedStep) Script() driver.Script {
	script := a.Algorithm.Script()
	args := script.Args
	script.Name += " timed"
	script.Source += timedSource
	script.Args = func(dst []int64, d driver.Demand) []int64 {
		d.Algorithm = d.Algorithm.(interface{ untimed() driver.Algorithm }).untimed()
		return args(dst, d)
	}
	return script
}

func (a timedStep) untimed() driver.Algorithm { return a.Algorithm }
