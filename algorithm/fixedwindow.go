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
// same way. Create one with [FixedWindow] or [Monthly]. Values are immutable and comparable.
//
// All windows begin at the same times for all keys, on the clock of the store, in UTC; see
// [Fixed.WithOffset]. A state is 32 bytes, whatever the limit.
type Fixed struct {
	limit  driver.Limit
	offset time.Duration
	months bool
}

var _ driver.Algorithm = Fixed{}

// FixedWindow returns the algorithm that counts in windows that begin at multiples of Window since
// the Unix epoch, such as calendar days. ratelimit.New returns an error if the limit is out of
// range.
func FixedWindow(limit driver.Limit) Fixed { return Fixed{limit: limit} }

// Monthly returns the algorithm that counts in calendar months in UTC; [Fixed.WithOffset] moves
// them. The Window of its limit is 31 days, the length of the longest; RetryAfter and ResetAfter
// end with the month. It admits up to twice max in any 28 days, and three times in 31 days around a
// February. ratelimit.New returns an error if the name or max is out of range.
func Monthly(name string, max int64) Fixed {
	return Fixed{limit: driver.Limit{Name: name, Max: max, Window: 31 * day}, months: true}
}

const day = 24 * time.Hour

// WithOffset returns f with windows that begin offset later, or earlier if it is negative. With 5
// hours, days and months begin at 05:00 UTC; with -2 hours at midnight in UTC+2; and with 14 days,
// months begin on the 15th. ratelimit.New returns an error unless the offset is shorter than
// Window, whatever its sign. 0 is the default.
//
// After a change of the offset, what a window has counted counts in the one that contains its
// middle.
//
// Windows cannot follow a time zone with daylight saving time. The store's clock has no time zone,
// and the clocks of callers do not decide.
func (f Fixed) WithOffset(offset time.Duration) Fixed {
	f.offset = offset
	return f
}

// Name returns the name of the encoding: "fixed1", or "month1" for calendar months.
func (f Fixed) Name() string {
	if f.months {
		return "month1"
	}
	return "fixed1"
}

// Limit returns the limit.
func (f Fixed) Limit() driver.Limit { return f.limit }

// Validate returns an error if the limit or the offset is out of range.
func (f Fixed) Validate() error {
	if err := f.limit.Validate(); err != nil {
		return err
	}
	if f.offset <= -f.limit.Window || f.offset >= f.limit.Window {
		return fmt.Errorf("%w limit: offset %v is not shorter than the Window %v",
			driver.ErrInvalid, f.offset, f.limit.Window)
	}
	return nil
}

// fixedState is the state, as big-endian integers of 8 bytes. Times are in µs since the epoch.
type fixedState struct {
	begin   int64 // of the window that is counted
	length  int64 // of that window under the parameters that counted last
	used    int64 // units, at most maxFixedUsed
	written int64 // when a unit was counted last: shows how far the clock has stepped back
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
	longest, write := f.longest(s), false
	ahead := s.written-now > f.limit.Window.Microseconds() // the clock was ahead
	if ahead || now >= s.begin+min(s.length, longest) {
		if !ahead { // the window has ended
			s.used = 0
		}
		begin, end := f.around(now)
		longest = end - begin
		s.begin, s.length, s.written, write = begin, longest, now, ahead
	}

	fits := d.N <= f.limit.Max-s.used
	switch {
	case d.Op == driver.OpForce, d.Op == driver.OpTake && fits:
		s.used = min(s.used+d.N, maxFixedUsed)
		s.length, s.written, write = longest, max(now, s.written), true
	case !fits:
		res.Allowed = false
		res.RetryAfter = micros(s.begin + min(s.length, longest) - now)
	}
	res.Remaining = max(0, f.limit.Max-s.used)
	if s.used > 0 {
		res.ResetAfter = micros(s.begin + min(s.length, longest) - now)
	}
	if !write {
		return state, 0, res
	}
	return s.encode(state[:0]), micros(s.begin + s.length - now), res
}

// around returns the begin and the end of the window that contains t.
func (f Fixed) around(t int64) (begin, end int64) {
	offset, window := f.offset.Microseconds(), f.limit.Window.Microseconds()
	if f.months {
		year, month, _ := time.UnixMicro(t - offset).UTC().Date()
		first := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
		begin, end = first.UnixMicro()+offset, first.AddDate(0, 1, 0).UnixMicro()+offset
	} else {
		begin = t - (t-offset+window)%window
		end = begin + window
	}
	return max(0, begin), end
}

// longest returns for how long after s.begin the units of s may count: to the end of the window
// that contains the middle of the one in s, which may be of other parameters, and no longer than
// Window. Without a change of the parameters that is s.length, after which the state expires.
func (f Fixed) longest(s fixedState) int64 {
	window := f.limit.Window.Microseconds()
	_, end := f.around(s.begin + min(window, s.length)/2)
	return min(window, end-s.begin)
}

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

var (
	fixedScript = "local months\n" + luaconst.Source(luaFiles, "fixedwindow.lua")
	monthScript = "local months = true\n" + luaconst.Source(luaFiles, "fixedwindow.lua")
)

// Script returns the step in Lua. Its args are those of fixedwindow.lua.
func (f Fixed) Script() driver.Script {
	script := driver.Script{Name: f.Name(), Source: fixedScript, Args: fixedArgs, Sums: true}
	if f.months {
		script.Source = monthScript
	}
	return script
}

func fixedArgs(dst []int64, d driver.Demand) []int64 {
	f := d.Algorithm.(Fixed)
	window := f.limit.Window.Microseconds()
	return append(dst, f.limit.Max, window, window-f.offset.Microseconds())
}
