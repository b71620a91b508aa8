package algorithm

import (
	_ "embed"
	"fmt"
	"math/bits"
	"time"
	"unique"

	"github.com/truewindow/ratelimit"
)

// Log is the exact sliding-window log: in every window (t−W, t] of the store's clock at most Max units are admitted, and nothing is
// refused that this rule would admit. Create one with [SlidingLog]. Values are immutable and comparable.
//
// It costs memory: a record of 12 bytes for each call that was admitted and is not yet a Window old, whatever it took; calls
// within one microsecond share a record. Where that is too much, see [Log.WithResolution].
type Log struct {
	// One word, which an interface holds as it is: a call through it copies no parameters, and two values compare as pointers.
	handle unique.Handle[params]
}

// params are four words at most: the compiler keeps no more of a struct in registers.
type params struct {
	name               unique.Handle[string]
	max                int64
	window, resolution time.Duration
}

var _ ratelimit.Algorithm = Log{}

// maxWindow is the longest window in microseconds.
const maxWindow = int64(ratelimit.MaxWindow / time.Microsecond)

// SlidingLog returns the exact sliding-window log of a limit. [ratelimit.New] reports a limit that is out of range.
func SlidingLog(limit ratelimit.Limit) Log {
	limit = limit.WithName()
	return Log{unique.Make(params{unique.Make(limit.Name), limit.Max, limit.Window, time.Microsecond})}
}

// params returns l's parameters: of the zero Log, zeros.
func (l Log) params() (p params) {
	if l != (Log{}) {
		p = l.handle.Value()
	}
	return p
}

// WithResolution returns l with stamps rounded up to whole multiples of d, in whole microseconds from 1µs to the Window; 0 is 1µs, which
// is exact. A log then holds at most ⌈Window/d⌉ + 1 live records whatever the limit. It never admits more than the limit, and a unit
// leaves the window late by less than d.
func (l Log) WithResolution(d time.Duration) Log {
	if d == 0 {
		d = time.Microsecond
	}
	p := l.params()
	p.resolution = d
	return Log{unique.Make(p)}
}

// Name returns "log1", the name of the encoding.
func (l Log) Name() string { return "log1" }

// Limit returns the limit with its name filled in.
func (l Log) Limit() ratelimit.Limit {
	if l == (Log{}) {
		return ratelimit.Limit{}
	}
	p := l.handle.Value()
	return ratelimit.Limit{Name: p.name.Value(), Max: p.max, Window: p.window}
}

// Resolution returns the multiple to which stamps are rounded up.
func (l Log) Resolution() time.Duration { return l.params().resolution }

// Validate reports a limit or a resolution that is out of range.
func (l Log) Validate() error {
	if err := l.Limit().Validate(); err != nil {
		return err
	}
	if r, window := l.params().resolution, l.params().window; r < time.Microsecond || r > window || r%time.Microsecond != 0 {
		return fmt.Errorf("%w: Resolution %v is not in whole microseconds from 1µs to the Window", ratelimit.ErrInvalidLimit, r)
	}
	return nil
}

// coarse returns t rounded up to a multiple of the resolution, and the smallest e for which that moves a stamp by less than 2^e.
func (p params) coarse(t int64) (stamp int64, e uint8) {
	r := int64(p.resolution / time.Microsecond)
	return (t + r - 1) / r * r, uint8(min(bits.Len64(uint64(r-1)), maxExponent))
}

// Step decides d; see [ratelimit.Algorithm].
func (l Log) Step(state []byte, now int64, d ratelimit.Demand) (next []byte, keep time.Duration, res ratelimit.Result) {
	p := l.params()
	if d.Op == ratelimit.Reset {
		if len(state) > 0 {
			keep = time.Microsecond
		}
		return nil, keep, ratelimit.Result{Allowed: true, Limit: p.max, Remaining: p.max, At: now}
	}
	var g logState
	if !g.decode(state) {
		return nil, -1, ratelimit.Result{}
	}
	window := int64(p.window / time.Microsecond)
	t, write := now, false
	if uint64(now-g.newest) >= uint64(g.window) && g.n > 0 { // has run out, or is ahead of the clock
		write = g.settle(now, window)
		if g.n > 0 {
			t = max(now, g.newest-g.slop())
		}
	}
	first, used := 0, g.used
	edge := t - window
	if g.head > 0 || g.front <= edge { // memory was asked for the front before head was known
		first, used = g.after(edge)
	}
	// All have left if and only if the newest has, or the stamps do not ascend.
	if all := first == g.n; used < 0 || all && used > 0 || g.n > 0 && all != (g.newest <= edge) {
		return nil, -1, ratelimit.Result{}
	}

	at, retry, allowed := t, int64(0), true
	switch fits := d.N <= p.max-used; {
	case d.Op == ratelimit.Force, d.Op == ratelimit.Take && fits:
		stamp, exponent := t, uint8(0)
		if p.resolution > time.Microsecond {
			stamp, exponent = p.coarse(t)
		}
		if g.n == 0 {
			g.base = stamp
		} else if g.newest >= stamp {
			stamp, exponent = g.newest, max(exponent, g.exponent)
		}
		g.exponent, g.window = exponent, window
		drop, held := first, used
		if stamp != t || exponent > 0 {
			drop, held = g.after(stamp - g.slop() - window)
		}
		// All units, until a Force takes the sum beyond 48 bits.
		units := min(d.N, max48-held)
		used += units
		g.used = held + units
		g.add(drop, stamp, units, p.max)
		at, write = stamp, true
	case d.Op == ratelimit.GiveBack:
		if back := g.giveBack(first, d.At, d.N); back > 0 {
			used -= back
			write = true
		}
	case !fits:
		allowed = false
		if need := used + min(d.N, p.max) - p.max; need > 0 {
			leaves, ok := g.leaves(first, need)
			if !ok || leaves <= edge { // the stamps do not ascend
				return nil, -1, ratelimit.Result{}
			}
			retry = min(leaves+window, g.newest+g.window) - now
		}
	}
	res.Allowed = allowed
	res.Limit = p.max
	res.Remaining = min(max(0, p.max-used), p.max)
	res.RetryAfter = time.Duration(retry) * time.Microsecond
	if used > 0 {
		res.ResetAfter = time.Duration(g.newest+min(window, g.window)-now) * time.Microsecond
	}
	res.At = at
	if !write {
		return state, 0, res
	}
	return g.putTrailer(), time.Duration(g.newest+g.window-now) * time.Microsecond, res
}

//go:embed slidinglog.lua
var logSource string

// Script returns the step in Lua. Its args are Max and Window and, unless it is 1, Resolution, in microseconds.
func (l Log) Script() ratelimit.Script {
	return ratelimit.Script{Name: l.Name(), Source: logSource, Args: logArgs, Sums: true}
}

func logArgs(dst []int64, d ratelimit.Demand) []int64 {
	p := d.Algorithm.(Log).params()
	dst = append(dst, p.max, int64(p.window/time.Microsecond))
	if p.resolution > time.Microsecond {
		dst = append(dst, int64(p.resolution/time.Microsecond))
	}
	return dst
}
