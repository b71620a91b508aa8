package algorithm

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/luaconst"
)

// Fixed counts the units of fixed windows, and admits while the count of the current window is
// within Max. So in one rolling Window it admits up to twice its Max: Max just before one window
// ends and Max just after the next begins. Use it where an upstream or a contract counts in the
// same way, such as by calendar days in UTC. Create one with [FixedWindow]. Values are immutable
// and comparable.
//
// Windows begin at multiples of Window since the Unix epoch, on the clock of the store; see
// [Fixed.WithOffset]. A state is 32 bytes, whatever the limit.
type Fixed struct {
	limit  driver.Limit
	offset time.Duration
}

var _ driver.Algorithm = Fixed{}

// FixedWindow returns the algorithm that counts in fixed windows. ratelimit.New returns an error
// if the limit is out of range.
func FixedWindow(limit driver.Limit) Fixed { return Fixed{limit: limit} }

// WithOffset returns f with windows that begin offset later: with an offset of 5 hours, a day
// begins at 05:00 UTC. ratelimit.New returns an error unless the offset is from 0 to less than
// Window. 0 is the default.
//
// Windows cannot follow a time zone with daylight saving time. The store's clock has no time zone,
// and the clocks of callers do not decide.
func (f Fixed) WithOffset(offset time.Duration) Fixed {
	f.offset = offset
	return f
}

// Name returns "fixed1", the name of the encoding.
func (f Fixed) Name() string { return "fixed1" }

// Limit returns the limit.
func (f Fixed) Limit() driver.Limit { return f.limit }

// Validate returns an error if the limit or the offset is out of range.
func (f Fixed) Validate() error {
	if err := f.limit.Validate(); err != nil {
		return err
	}
	if f.offset < 0 || f.offset >= f.limit.Window {
		return fmt.Errorf("%w limit: offset %v is not from 0 to less than the Window %v",
			driver.ErrInvalid, f.offset, f.limit.Window)
	}
	return nil
}

// fixedState is the state, as big-endian integers of 8 bytes. Times are in µs since the epoch.
type fixedState struct {
	begin   int64 // of the window that is counted
	length  int64 // the Window of the limit that counted last
	used    int64 // units, at most maxFixedUsed
	written int64 // when a unit was counted last
}

const (
	fixedSize    = 32
	maxFixedUsed = 1 << 48
	maxLength    = 1 << 45 // more than driver.MaxWindow
	endOfTime    = 1 << 52 // in 2112
)

// Step decides d; see [driver.Algorithm].
func (f Fixed) Step(
	state []byte, now int64, d driver.Demand,
) (next []byte, keep time.Duration, res driver.Result) {
	res = driver.Result{Allowed: true, Limit: f.limit, Remaining: f.limit.Max}
	if d.Op == driver.OpReset {
		if len(state) > 0 {
			keep = time.Microsecond
		}
		return nil, keep, res
	}
	s, ok := decodeFixed(state)
	if !ok {
		return nil, -1, driver.Result{}
	}
	window, write := f.limit.Window.Microseconds(), false
	fresh := fixedState{begin: max(0, f.end(now)-window), length: window, written: now}
	if s.written-now > window { // the clock was ahead
		fresh.used = s.used
		s, write = fresh, true
	} else if now >= f.until(s) { // the window has ended
		s = fresh
	}

	fits := d.N <= f.limit.Max-s.used
	switch {
	case d.Op == driver.OpForce, d.Op == driver.OpTake && fits:
		s.used = min(s.used+d.N, maxFixedUsed)
		s.length, s.written, write = window, max(now, s.written), true
	case !fits:
		res.Allowed = false
		res.RetryAfter = time.Duration(f.until(s)-now) * time.Microsecond
	}
	res.Remaining = max(0, f.limit.Max-s.used)
	if s.used > 0 {
		res.ResetAfter = time.Duration(f.until(s)-now) * time.Microsecond
	}
	if !write {
		return state, 0, res
	}
	return s.encode(state[:0]), time.Duration(s.begin+s.length-now) * time.Microsecond, res
}

// end returns the end of the window that contains t.
func (f Fixed) end(t int64) int64 {
	window := f.limit.Window.Microseconds()
	into := (t - f.offset.Microseconds()) % window
	if into < 0 {
		into += window
	}
	return t - into + window
}

// until returns when the units of s stop counting: at the end of the window in which s begins, and
// no later than s.length after it begins, when the state expires. s.length may be the Window of
// another limit.
func (f Fixed) until(s fixedState) int64 { return min(f.end(s.begin), s.begin+s.length) }

// decodeFixed returns a state, and whether it is one that Step writes.
func decodeFixed(state []byte) (s fixedState, ok bool) {
	if len(state) == 0 {
		return s, true
	}
	if len(state) != fixedSize {
		return s, false
	}
	s.begin = int64(binary.BigEndian.Uint64(state))
	s.length = int64(binary.BigEndian.Uint64(state[8:]))
	s.used = int64(binary.BigEndian.Uint64(state[16:]))
	s.written = int64(binary.BigEndian.Uint64(state[24:]))
	return s, uint64(s.begin|s.written) < endOfTime && s.length > 0 && s.length <= maxLength &&
		s.used >= 0 && s.used <= maxFixedUsed
}

func (s fixedState) encode(dst []byte) []byte {
	for _, n := range [...]int64{s.begin, s.length, s.used, s.written} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(n))
	}
	return dst
}

var fixedScript = luaconst.Source(luaFiles, "fixedwindow.lua")

// Script returns the step in Lua. Its args are Max, and the Window and the offset in microseconds.
func (f Fixed) Script() driver.Script {
	return driver.Script{Name: f.Name(), Source: fixedScript, Args: fixedArgs, Sums: true}
}

func fixedArgs(dst []int64, d driver.Demand) []int64 {
	f := d.Algorithm.(Fixed)
	return append(dst, f.limit.Max, f.limit.Window.Microseconds(), f.offset.Microseconds())
}
