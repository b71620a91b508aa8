package algorithm

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unique"

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
	handle unique.Handle[fixedParams] // one word, as in Log
}

type fixedParams struct {
	limit  driver.Limit
	offset time.Duration
	months bool
}

var _ driver.Ahead = Fixed{}

// FixedWindow returns the algorithm that counts in windows that begin at multiples of Window since
// the Unix epoch, such as calendar days. ratelimit.New returns an error if the limit is out of
// range.
func FixedWindow(limit driver.Limit) Fixed {
	return Fixed{unique.Make(fixedParams{limit: limit})}
}

// Monthly returns the algorithm that counts in calendar months in UTC; [Fixed.WithOffset] moves
// them. The Window of its limit is 31 days, the length of the longest; RetryAfter and ResetAfter
// end with the month. It admits up to twice max in any 28 days, and three times in 31 days around a
// February. ratelimit.New returns an error if the name or max is out of range.
func Monthly(name string, max int64) Fixed {
	limit := driver.Limit{Name: name, Max: max, Window: 31 * day}
	return Fixed{unique.Make(fixedParams{limit: limit, months: true})}
}

// params returns f's parameters, which are zeros for the zero Fixed.
func (f Fixed) params() (p fixedParams) {
	if f != (Fixed{}) {
		p = f.handle.Value()
	}
	return p
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
	p := f.params()
	p.offset = offset
	return Fixed{unique.Make(p)}
}

// Name returns the name of the encoding: "fixed1", or "month1" for calendar months.
func (f Fixed) Name() string {
	if f.params().months {
		return "month1"
	}
	return "fixed1"
}

// Limit returns the limit.
func (f Fixed) Limit() driver.Limit { return f.params().limit }

// String returns the limit and, if there is one, the offset, such as "api=60/1m0s" or "api=60/1m0s
// with offset 10s". That of calendar months is "api=60 a month".
func (f Fixed) String() string {
	p := f.params()
	s := p.limit.String()
	if p.months {
		s = p.limit.Name + "=" + strconv.FormatInt(p.limit.Max, 10) + " a month"
	}
	if p.offset != 0 {
		s += " with offset " + p.offset.String()
	}
	return s
}

// Ahead returns f, whatever d is, unless it is negative: a result says when the window ends, and
// with it the time in which the units may be used. See [driver.Ahead].
func (f Fixed) Ahead(d time.Duration) driver.Algorithm {
	if d < 0 {
		return nil
	}
	return f
}

// Validate returns an error if the limit or the offset is out of range.
func (f Fixed) Validate() error {
	p := f.params()
	if err := p.limit.Validate(); err != nil {
		return err
	}
	if p.offset <= -p.limit.Window || p.offset >= p.limit.Window {
		return fmt.Errorf("%w limit: offset %v is not shorter than the Window %v",
			driver.ErrInvalid, p.offset, p.limit.Window)
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
	return step(f, state, now, d)
}

// Decide is Step in the form of [Log.Decide]. It ignores at.
func (f Fixed) Decide(state []byte, now int64, op driver.Op, n, _ int64) (
	next []byte, keep time.Duration, allowed bool,
	remaining int64, retryAfter, resetAfter time.Duration,
) {
	p := f.params()
	if op == driver.OpReset {
		return nil, reset(state), true, p.limit.Max, 0, 0
	}
	var s fixedState
	if !s.decode(state) {
		return nil, -1, false, 0, 0, 0
	}
	longest, write := p.longest(&s), false
	ahead := s.written-now > p.limit.Window.Microseconds() // the clock was ahead
	if ahead || now >= s.begin+min(s.length, longest) {
		if !ahead { // the window has ended
			s.used = 0
		}
		begin, end := p.around(now)
		longest = end - begin
		s.begin, s.length, s.written, write = begin, longest, now, ahead
	}

	fits := n <= p.limit.Max-s.used
	allowed = true
	switch {
	case op == driver.OpForce, op == driver.OpTake && fits:
		s.used = min(s.used+n, maxFixedUsed)
		s.length, s.written, write = longest, max(now, s.written), true
	case !fits:
		allowed = false
		retryAfter = micros(s.begin + min(s.length, longest) - now)
	}
	remaining = max(0, p.limit.Max-s.used)
	if s.used > 0 {
		resetAfter = micros(s.begin + min(s.length, longest) - now)
	}
	if !write {
		return state, 0, allowed, remaining, retryAfter, resetAfter
	}
	keep = micros(s.begin + s.length - now)
	return s.encode(state), keep, allowed, remaining, retryAfter, resetAfter
}

// around returns the begin and the end of the window that contains t.
func (p *fixedParams) around(t int64) (begin, end int64) {
	offset, window := p.offset.Microseconds(), p.limit.Window.Microseconds()
	if p.months {
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
func (p *fixedParams) longest(s *fixedState) int64 {
	window := p.limit.Window.Microseconds()
	_, end := p.around(s.begin + min(window, s.length)/2)
	return min(window, end-s.begin)
}

// decode sets s, which is zero, and reports whether state is one that Step writes.
func (s *fixedState) decode(state []byte) bool {
	if len(state) == 0 {
		return true
	}
	if len(state) != fixedSize {
		return false
	}
	s.begin = int64(binary.BigEndian.Uint64(state))
	s.length = int64(binary.BigEndian.Uint64(state[8:]))
	s.used = int64(binary.BigEndian.Uint64(state[16:]))
	s.written = int64(binary.BigEndian.Uint64(state[24:]))
	return uint64(s.begin|s.written) < endOfTime && s.length > 0 && s.length <= maxLength &&
		s.used >= 0 && s.used <= maxFixedUsed
}

// encode writes s into buf, which is empty or a state.
func (s *fixedState) encode(buf []byte) []byte {
	buf = slices.Grow(buf[:0], fixedSize)[:fixedSize]
	binary.BigEndian.PutUint64(buf, uint64(s.begin))
	binary.BigEndian.PutUint64(buf[8:], uint64(s.length))
	binary.BigEndian.PutUint64(buf[16:], uint64(s.used))
	binary.BigEndian.PutUint64(buf[24:], uint64(s.written))
	return buf
}

var (
	fixedScript = "local months\n" + luaconst.Source(luaFiles, "fixedwindow.lua")
	monthScript = "local months = true\n" + luaconst.Source(luaFiles, "fixedwindow.lua")
)

// Script returns the step in Lua. Its args are those of fixedwindow.lua.
func (f Fixed) Script() driver.Script {
	script := driver.Script{Name: f.Name(), Source: fixedScript, Args: fixedArgs, Sums: true}
	if f.params().months {
		script.Source = monthScript
	}
	return script
}

func fixedArgs(dst []int64, d driver.Demand) []int64 {
	p := d.Algorithm.(Fixed).params()
	window := p.limit.Window.Microseconds()
	return append(dst, p.limit.Max, window, window-p.offset.Microseconds())
}
