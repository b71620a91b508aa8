package algorithm

import (
	"embed"
	"fmt"
	"time"
	"unique"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/internal/luaconst"
)

// Log is the exact sliding-window log: in every window (t−W, t] of the store's clock at most Max
// units are admitted, and nothing is refused that this rule would admit. Create one with
// [SlidingLog]. Values are immutable and comparable.
//
// It costs memory: a record of 12 bytes for each call that was admitted and is not yet a Window
// old, whatever it took; calls within one microsecond share a record. Where that is too much, see
// [Log.WithResolution].
//
// A log holds at most 2^25 records. While it has that many, each further admission joins the
// newest record and moves its stamp on: those units leave the window late by less than a Window,
// never early.
type Log struct {
	// One word, which an interface holds as it is: a call through it copies no parameters, and
	// two values compare as pointers.
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

// SlidingLog returns the exact sliding-window log of a limit. [ratelimit.New] reports a limit
// that is out of range.
func SlidingLog(limit ratelimit.Limit) Log {
	name := unique.Make(limit.Name)
	return Log{unique.Make(params{name, limit.Max, limit.Window, time.Microsecond})}
}

// params returns l's parameters: of the zero Log, zeros.
func (l Log) params() (p params) {
	if l != (Log{}) {
		p = l.handle.Value()
	}
	return p
}

// WithResolution returns l with stamps rounded up to whole multiples of d, in whole microseconds
// from 1µs to the Window; 0 is 1µs, which is exact. A log then holds at most ⌈Window/d⌉ + 1 live
// records whatever the limit. It never admits more than the limit, and a unit leaves the window
// late by less than d.
func (l Log) WithResolution(d time.Duration) Log {
	if d == 0 {
		d = time.Microsecond
	}
	p := l.params()
	p.resolution = d
	return Log{unique.Make(p)}
}

// Name returns "log2", the name of the encoding.
func (l Log) Name() string { return "log2" }

// Limit returns the limit.
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
	p := l.params()
	if r := p.resolution; r < time.Microsecond || r > p.window || r%time.Microsecond != 0 {
		return fmt.Errorf("%w: Resolution %v is not in whole microseconds from 1µs to the Window",
			ratelimit.ErrInvalidLimit, r)
	}
	return nil
}

//go:embed slidinglog/*.lua
var logFiles embed.FS

var logScript = luaconst.Source(logFiles, "slidinglog/step.lua")

// Script returns the step in Lua. Its args are Max and Window and, unless it is 1, Resolution, in
// microseconds.
func (l Log) Script() ratelimit.Script {
	return ratelimit.Script{Name: l.Name(), Source: logScript, Args: logArgs, Sums: true}
}

func logArgs(dst []int64, d ratelimit.Demand) []int64 {
	p := d.Algorithm.(Log).params()
	dst = append(dst, p.max, int64(p.window/time.Microsecond))
	if p.resolution > time.Microsecond {
		dst = append(dst, int64(p.resolution/time.Microsecond))
	}
	return dst
}
