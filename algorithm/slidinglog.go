package algorithm

import (
	_ "embed"
	"fmt"
	"math/bits"
	"time"

	"github.com/truewindow/ratelimit"
)

// Log is the exact sliding-window log: in every window (t−W, t] of the store's clock at most Max units are admitted, and nothing is
// refused that this rule would admit. Create one with [SlidingLog]. Values are immutable and comparable.
//
// It costs memory: a record of 12 bytes for each call that was admitted and is not yet a Window old, whatever it took; calls
// within one microsecond share a record. Where that is too much, see [Log.WithResolution].
type Log struct {
	limit      ratelimit.Limit
	resolution time.Duration
}

var _ ratelimit.Algorithm = Log{}

// maxWindow is the longest window in microseconds.
const maxWindow = int64(ratelimit.MaxWindow / time.Microsecond)

// SlidingLog returns the exact sliding-window log of a limit. [ratelimit.New] reports a limit that is out of range.
func SlidingLog(limit ratelimit.Limit) Log {
	return Log{limit: limit.WithName(), resolution: time.Microsecond}
}

// WithResolution returns l with stamps rounded up to whole multiples of d, in whole microseconds from 1µs to the Window; 0 is 1µs, which
// is exact. A log then holds at most ⌈Window/d⌉ + 1 live records whatever the limit. It never admits more than the limit, and a unit
// leaves the window late by less than d.
func (l Log) WithResolution(d time.Duration) Log {
	l.resolution = d
	if d == 0 {
		l.resolution = time.Microsecond
	}
	return l
}

// Name returns "log1", the name of the encoding.
func (l Log) Name() string { return "log1" }

// Limit returns the limit with its name filled in.
func (l Log) Limit() ratelimit.Limit { return l.limit }

// Resolution returns the multiple to which stamps are rounded up.
func (l Log) Resolution() time.Duration { return l.resolution }

// Validate reports a limit or a resolution that is out of range.
func (l Log) Validate() error {
	if err := l.limit.Validate(); err != nil {
		return err
	}
	if r := l.resolution; r < time.Microsecond || r > l.limit.Window || r%time.Microsecond != 0 {
		return fmt.Errorf("%w: Resolution %v is not in whole microseconds from 1µs to the Window", ratelimit.ErrInvalidLimit, r)
	}
	return nil
}

// exponent returns the smallest e for which rounding up moves a stamp by less than 2^e.
func (l Log) exponent() uint8 {
	return uint8(min(bits.Len64(uint64(l.resolution/time.Microsecond)-1), maxExponent))
}

// Step decides d; see [ratelimit.Algorithm].
func (l Log) Step(state []byte, now int64, d ratelimit.Demand) (next []byte, keep time.Duration, res ratelimit.Result) {
	res = ratelimit.Result{Allowed: true, Limit: l.limit.Max, Remaining: l.limit.Max, At: now}
	if d.Op == ratelimit.Reset {
		if len(state) > 0 {
			keep = time.Microsecond
		}
		return nil, keep, res
	}
	g, ok := decodeLog(state)
	if !ok {
		return nil, -1, ratelimit.Result{}
	}
	window := int64(l.limit.Window / time.Microsecond)
	write := g.settle(now, window)

	t := now
	if g.n > 0 {
		t = max(now, g.newest()-g.slop())
	}
	first, used := g.after(t - window)
	if used < 0 {
		return nil, -1, ratelimit.Result{}
	}

	res.At = t
	fits := d.N <= l.limit.Max-used
	switch {
	case d.Op == ratelimit.Force, d.Op == ratelimit.Take && fits:
		used += l.record(&g, t, window, d.N)
		res.At = g.newest()
		write = true
	case d.Op == ratelimit.GiveBack:
		if back := g.giveBack(first, d.At, d.N); back > 0 {
			used -= back
			write = true
		}
	case !fits:
		res.Allowed = false
		if need := used + min(d.N, l.limit.Max) - l.limit.Max; need > 0 {
			leaves, ok := g.leaves(first, need)
			if !ok || leaves <= t-window { // the stamps do not ascend
				return nil, -1, ratelimit.Result{}
			}
			res.RetryAfter = time.Duration(min(leaves+window, g.newest()+g.window)-now) * time.Microsecond
		}
	}
	res.Remaining = min(max(0, l.limit.Max-used), l.limit.Max)
	if used > 0 {
		res.ResetAfter = time.Duration(g.newest()+min(window, g.window)-now) * time.Microsecond
	}
	if !write {
		return state, 0, res
	}
	return g.encode(), time.Duration(g.newest()+g.window-now) * time.Microsecond, res
}

// record admits n units at t and returns how many of them the state could hold: all, until a Force takes the sum beyond 48 bits.
func (l Log) record(g *logState, t, window, n int64) (units int64) {
	r := max(1, int64(l.resolution/time.Microsecond))
	stamp := (t + r - 1) / r * r
	exponent := l.exponent()
	if g.n == 0 {
		g.clear(t)
	} else if newest := g.newest(); newest >= stamp {
		stamp, exponent = newest, max(exponent, g.exponent)
	}
	g.exponent, g.window = exponent, window
	g.head, g.used = g.after(stamp - g.slop() - window)
	if stamp+window-g.base > max48 {
		g.rebase(stamp)
	}
	g.reach = stamp + window - g.base
	units = min(n, max48-g.used)
	g.add(stamp, units)
	return units
}

//go:embed slidinglog.lua
var logSource string

// Script returns the step in Lua. Its args are Max, Window and Resolution in microseconds, and the exponent of the slop.
func (l Log) Script() ratelimit.Script {
	return ratelimit.Script{Name: l.Name(), Source: logSource, Args: logArgs}
}

func logArgs(dst []int64, d ratelimit.Demand) []int64 {
	l := d.Algorithm.(Log)
	return append(dst, l.limit.Max, int64(l.limit.Window/time.Microsecond), int64(l.resolution/time.Microsecond), int64(l.exponent()))
}
