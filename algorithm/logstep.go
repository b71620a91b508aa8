package algorithm

import (
	"math/bits"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// Step decides d; see [driver.Algorithm].
func (l Log) Step(state []byte, now int64, d driver.Demand) (
	next []byte, keep time.Duration, res driver.Result,
) {
	return step(l, state, now, d)
}

// Decide is Step with the fields of the demand and of the result as parameters and results, which
// fit in registers. It is for stores in memory, where copying the two structs would take a good
// part of the time of a decision. at is the At of an OpForce. Of the fields of the result,
// Limit and Source are not returned. keep and next are those of [driver.Algorithm].
func (l Log) Decide(state []byte, now int64, op driver.Op, n, at int64) (
	next []byte, keep time.Duration, allowed bool,
	remaining int64, retryAfter, resetAfter time.Duration,
) {
	p := l.params()
	if op == driver.OpReset {
		return nil, reset(state), true, p.max, 0, 0
	}
	var g logState
	if !g.decode(state) {
		return nil, -1, false, 0, 0, 0
	}
	window := int64(p.window / time.Microsecond)
	t, write := now, false
	if now < g.newest && g.count > 0 {
		t, write = g.hold(now, window)
	} else if now-g.newest >= g.window && g.count > 0 {
		g.clear()
	}
	edge := t - window
	first, used := 0, g.used
	if g.head > 0 || g.front <= edge { // decode has read front already
		first, used = g.expire(edge)
	}
	if !g.consistent(first, used, edge) {
		return nil, -1, false, 0, 0, 0
	}

	record := g.count // to which units are added
	if op == driver.OpForce && at > 0 {
		record = g.find(first, at)
	}

	// Decide. Units are admitted in this function: a call with all the parameters that it needs
	// would cost 2 ns.
	allowed = true
	retry := int64(0)
	switch fits := n <= p.max-used; {
	case record < g.count:
		used += g.addTo(record, n)
		write = true
	case op == driver.OpForce, op == driver.OpTake && fits:
		var stamp int64
		stamp, g.exponent = g.stamp(p, t)
		g.window = window
		drop, held := first, used
		if stamp != t || g.exponent > 0 {
			drop, held = g.expire(stamp - g.slop() - window)
		}
		units := min(n, max48-held) // n, unless a Force takes the sum beyond 48 bits
		g.used, used = held+units, used+units
		g.add(drop, stamp, units, p.max)
		write = true
	case !fits:
		allowed = false
		if need := used + min(n, p.max) - p.max; need > 0 {
			if retry = g.wait(first, need, edge, window, now); retry < 0 {
				return nil, -1, false, 0, 0, 0
			}
		}
	}

	remaining = min(max(0, p.max-used), p.max)
	retryAfter = time.Duration(retry) * time.Microsecond
	resetAfter = time.Duration(g.resetAfter(used, window, now)) * time.Microsecond
	if !write {
		return state, 0, allowed, remaining, retryAfter, resetAfter
	}
	keep = time.Duration(g.newest+g.window-now) * time.Microsecond
	return g.encode(), keep, allowed, remaining, retryAfter, resetAfter
}

// hold returns the instant of a decision on a log whose newest stamp is ahead of now: the earliest
// time at which the newest record may have been written, or now if that is later. The stamp may
// have been rounded up, or the clock may have stepped back. If the clock stepped back by more than
// a window, hold shifts all stamps.
func (g *logState) hold(now, window int64) (t int64, shifted bool) {
	earliest := g.newest - g.slop()
	if back := earliest - now; back > window {
		g.shift(back)
		return now, true
	}
	return max(now, earliest), false
}

// instant returns the time of a decision now on a state: the later of now and the earliest time at
// which the newest record may have been written.
func (l Log) instant(state []byte, now int64) int64 {
	var g logState
	if !g.decode(state) || g.count == 0 {
		return now
	}
	return max(now, g.newest-g.slop())
}

// consistent reports false for a corrupt state: its stamps do not ascend, or the sum of its units
// is wrong. All records have expired if and only if the newest has.
func (g *logState) consistent(first int, used, edge int64) bool {
	all := first == g.count
	return used >= 0 && (!all || used == 0) && (g.count == 0 || all == (g.newest <= edge))
}

// stamp returns the stamp of a record that is admitted at t, which is not before the newest. The
// stamp is less than 2^exponent µs ahead of t.
func (g *logState) stamp(p params, t int64) (stamp int64, exponent uint16) {
	stamp = t
	if p.stamps != exact {
		stamp, exponent = p.stamping().stamp(t)
	}
	if g.newest >= stamp && g.count > 0 {
		stamp, exponent = g.newest, max(exponent, g.exponent)
	}
	return stamp, exponent
}

// stamp returns the stamp of a record that is admitted at t, and the smallest exponent for which
// such a stamp is always less than 2^exponent µs ahead of t.
func (s stamping) stamp(t int64) (stamp int64, exponent uint16) {
	r := max(1, s.resolution.Microseconds())
	ahead := s.lead + r - 1
	return (t + ahead) / r * r, uint16(min(bits.Len64(uint64(ahead)), maxExponent))
}

// resetAfter returns how long it takes until the used units in the window have expired.
func (g *logState) resetAfter(used, window, now int64) int64 {
	if used <= 0 {
		return 0
	}
	return g.newest + min(window, g.window) - now
}
