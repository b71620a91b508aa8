package layer

import (
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// within is the algorithm inside a Budget, with room for everything in its peeks. Budget(within)
// keeps its states where that Budget keeps them.
type within struct {
	driver.Algorithm
	free *int64 // set to what is free without regard to holds
}

// Limit returns the limit with the largest Max, so that a hold of any units fits.
func (a within) Limit() driver.Limit {
	l := a.Algorithm.Limit()
	l.Max = driver.MaxUnits
	return l
}

func (a within) Step(
	state []byte, now int64, d driver.Demand,
) (next []byte, keep time.Duration, res driver.Result) {
	if d.Op == driver.OpPeek {
		d.N = 1
	}
	d.Algorithm = a.Algorithm
	next, keep, res = a.Algorithm.Step(state, now, d)
	if d.Op == driver.OpPeek {
		*a.free = res.Remaining
		res.Allowed, res.Remaining, res.RetryAfter = true, driver.MaxUnits, 0
	}
	return next, keep, res
}

// roomy returns a with a Max for which each hold fits. It has the states of a. A peek under a
// Budget sets free to the units that are not recorded. Of an algorithm that is not one of this
// module it returns a.
func roomy(a driver.Algorithm, free *int64) driver.Algorithm {
	switch h, ok := a.(algorithm.Held); {
	case !ok:
		return a
	case h.InFlight():
		return algorithm.InFlight(h.Limit().Name, driver.MaxUnits).WithTimeout(h.HoldTimeout())
	default:
		return algorithm.Budget(within{h.Inside(), free}).WithTimeout(h.HoldTimeout())
	}
}

// trackHold makes the local store hold what the store inside holds after d, and record what it has
// recorded.
func (l *ledger) trackHold(d driver.Demand, res driver.Result) {
	inFlight := d.Algorithm.(driver.Holder).InFlight()
	settles := d.Op == driver.OpSettle
	d.N = res.Units
	if settles || d.N == 0 { // a hold of 0 units is one that the store inside does not have
		d.Op, d.HoldTimeout = driver.OpSettle, 0
	} else {
		d.Algorithm = roomy(d.Algorithm, new(int64))
	}
	if !l.scale(&d) {
		l.untracked.Add(1)
		return
	}
	known, err := l.askLocal(d)
	if settles && d.N > 0 && !inFlight && err == nil && known.Units == 0 {
		// It was held by another process, or before there was room.
		d.Op, d.ID = driver.OpForce, 0
		known, err = l.askLocal(d)
	}
	if err != nil || d.N > 0 && known.Units == 0 {
		l.untracked.Add(1)
	}
}

// recorded returns how many units of d's state are recorded locally, scaled: those that are only
// held do not count.
func (l *ledger) recorded(d driver.Demand) (int64, error) {
	d = peekOf(d)
	limit := d.Algorithm.Limit()
	free := int64(-1)
	if _, ok := d.Algorithm.(driver.Holder); ok {
		d.Algorithm = roomy(d.Algorithm, &free)
	}
	res, err := l.askLocal(d)
	if free < 0 {
		free = res.Remaining
	}
	return limit.Max - free, err
}
