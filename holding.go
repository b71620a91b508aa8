package ratelimit

import (
	"slices"

	"github.com/truewindow/ratelimit/driver"
)

func isBudget(h driver.Holder) bool { return !h.InFlight() }

func isHolder(driver.Holder) bool { return true }

// only returns l with only its limits that have holds and fit, or nil if there are none.
func (l *Limiter) only(fits func(driver.Holder) bool) *Limiter {
	if !l.holds {
		return nil
	}
	out := func(a Algorithm) bool {
		h, ok := a.(driver.Holder)
		return !ok || !fits(h)
	}
	if !slices.ContainsFunc(l.algorithms, out) {
		return l
	}
	some := *l
	some.algorithms, some.limits = nil, nil
	for i, a := range l.algorithms {
		if !out(a) {
			some.algorithms = append(some.algorithms, a)
			some.limits = append(some.limits, l.limits[i])
		}
	}
	if len(some.algorithms) == 0 {
		return nil
	}
	return &some
}

// maxHeld returns the most units that all limits of l with holds, at least one, have room for.
func (l *Limiter) maxHeld() int64 {
	most := driver.MaxUnits
	for i, a := range l.algorithms {
		if _, ok := a.(driver.Holder); ok {
			most = min(most, l.limits[i].Max)
		}
	}
	return most
}
