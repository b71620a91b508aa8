package algorithm

import (
	"fmt"
	"time"
	"unique"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/luaconst"
)

// Log is the exact sliding-window log: at most Max units are admitted in every window (t−W, t] of
// the store's clock, where W is Window, and no demand that fits is refused. Create one with
// [SlidingLog]. Values are immutable and comparable.
//
// It costs memory: a record of 12 bytes for each admitted call that is not yet a Window old,
// however many units it took. Calls within one microsecond share a record. If that is too much, use
// [Log.WithResolution].
//
// A log holds at most 2^25 records. When it is full, each further admission is added to the newest
// record, which gets the stamp of that admission: the units of that record leave the window late,
// by less than a Window, never early.
type Log struct {
	// One word, which an interface holds as it is: a call through it copies no parameters, and
	// two values compare as pointers.
	handle unique.Handle[params]
}

// params has four words: the compiler keeps no larger struct in registers.
type params struct {
	name   unique.Handle[string]
	max    int64
	window time.Duration
	stamps unique.Handle[stamping]
}

// stamping is how far the stamps of records may be ahead of the decisions: a stamp is the time of
// the decision and lead, rounded up to a multiple of resolution.
type stamping struct {
	resolution time.Duration
	lead       int64 // in µs
}

// exact is the stamping of [SlidingLog].
var exact = unique.Make(stamping{resolution: time.Microsecond})

var _ driver.Ahead = Log{}

// maxWindow is the longest window in microseconds.
const maxWindow = int64(driver.MaxWindow / time.Microsecond)

// SlidingLog returns the exact sliding-window log of a limit. ratelimit.New returns an error if
// the limit is out of range.
func SlidingLog(limit driver.Limit) Log {
	name := unique.Make(limit.Name)
	return Log{unique.Make(params{name, limit.Max, limit.Window, exact})}
}

// params returns l's parameters, which are zeros for the zero Log.
func (l Log) params() (p params) {
	if l != (Log{}) {
		p = l.handle.Value()
	}
	return p
}

// WithResolution returns l with stamps rounded up to multiples of d, a whole number of microseconds
// from 1µs to the Window. 0 means 1µs, which is exact. A log then holds at most ⌈Window/d⌉ + 1 live
// records, whatever the limit. It never admits more than the limit, and a unit leaves the window
// late by less than d. ratelimit.New returns an error if d is out of range.
func (l Log) WithResolution(d time.Duration) Log {
	if d == 0 {
		d = time.Microsecond
	}
	p := l.params()
	p.stamps = unique.Make(stamping{d, p.stamping().lead})
	return Log{unique.Make(p)}
}

// Ahead returns l with records whose stamps are d later; see [driver.Ahead]. d is rounded up to
// whole microseconds. It returns nil if d is negative, or if d and the Resolution are more than the
// Window together.
func (l Log) Ahead(d time.Duration) driver.Algorithm {
	p := l.params()
	stamps := p.stamping()
	if l == (Log{}) || d < 0 || d > p.window-stamps.resolution {
		return nil
	}
	stamps.lead = wholeMicros(d)
	p.stamps = unique.Make(stamps)
	return Log{unique.Make(p)}
}

// stamping returns how stamps are made, which is zero for the zero Log.
func (p params) stamping() (s stamping) {
	if p.stamps != (unique.Handle[stamping]{}) {
		s = p.stamps.Value()
	}
	return s
}

// Name returns "log3", the name of the encoding.
func (l Log) Name() string { return "log3" }

// Limit returns the limit.
func (l Log) Limit() driver.Limit {
	if l == (Log{}) {
		return driver.Limit{}
	}
	p := l.handle.Value()
	return driver.Limit{Name: p.name.Value(), Max: p.max, Window: p.window}
}

// Resolution returns the time to whose multiples stamps are rounded up: 1µs unless
// [Log.WithResolution] has set it.
func (l Log) Resolution() time.Duration { return l.params().stamping().resolution }

// String returns the limit, the resolution if it is not 1µs, and how far ahead units are taken,
// such as "login=60/1m0s", "login=60/1m0s with resolution 1s" or "login=60/1m0s 100ms ahead".
func (l Log) String() string {
	s, stamps := l.Limit().String(), l.params().stamping()
	if r := stamps.resolution; r > time.Microsecond {
		s += " with resolution " + r.String()
	}
	return s + aheadText(stamps.lead)
}

// Validate returns an error if the limit or the resolution is out of range.
func (l Log) Validate() error {
	if err := l.Limit().Validate(); err != nil {
		return err
	}
	p := l.params()
	if r := l.Resolution(); r < time.Microsecond || r > p.window || r%time.Microsecond != 0 {
		return fmt.Errorf("%w limit: Resolution %v is not a multiple of 1µs from 1µs to the Window",
			driver.ErrInvalid, r)
	}
	return nil
}

var logScript = luaconst.Source(luaFiles, "slidinglog.lua")

// Script returns the step in Lua. Its args are those of slidinglog.lua.
func (l Log) Script() driver.Script {
	return driver.Script{Name: l.Name(), Source: logScript, Args: logArgs, Sums: true}
}

func logArgs(dst []int64, d driver.Demand) []int64 {
	p := d.Algorithm.(Log).params()
	dst = append(dst, p.max, int64(p.window/time.Microsecond))
	stamps := p.stamping()
	if stamps.resolution > time.Microsecond || stamps.lead > 0 {
		dst = append(dst, max(1, stamps.resolution.Microseconds()))
	}
	if stamps.lead > 0 {
		dst = append(dst, stamps.lead)
	}
	return dst
}
