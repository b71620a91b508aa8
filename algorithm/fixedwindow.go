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
// same way. Create one with [FixedWindow], [Weekly], [Monthly] or [Quarterly]. Values are immutable
// and comparable.
//
// All windows begin at the same times for all keys, on the clock of the store, in UTC; see
// [Fixed.WithOffset]. A state is 32 bytes, whatever the limit.
type Fixed struct {
	handle unique.Handle[fixedParams] // one word, as in Log
}

type fixedParams struct {
	limit  driver.Limit
	offset time.Duration
	start  time.Duration // of a week, after the Thursday with which the epoch begins
	months int           // of a calendar window; 0: it has the same length as all others
	day    int           // of the month, on which a calendar window begins
}

var _ driver.Ahead = Fixed{}

// FixedWindow returns the algorithm that counts in windows that begin at multiples of Window since
// the Unix epoch, such as calendar days. ratelimit.New returns an error if the limit is out of
// range.
func FixedWindow(limit driver.Limit) Fixed {
	return Fixed{unique.Make(fixedParams{limit: limit})}
}

// Weekly returns the algorithm that counts in weeks that begin on a day, in UTC. It is FixedWindow
// with 7 days.
func Weekly(name string, max int64, first time.Weekday) Fixed {
	limit := driver.Limit{Name: name, Max: max, Window: 7 * day}
	start := time.Duration((first-time.Thursday+7)%7) * day
	return Fixed{unique.Make(fixedParams{limit: limit, start: start})}
}

// Monthly returns the algorithm that counts in calendar months in UTC; [Fixed.WithDay] lets them
// begin on another day than the first, and [Fixed.WithOffset] at another time than midnight. The
// Window of its limit is 31 days, the length of the longest; RetryAfter and ResetAfter end with the
// month. It admits up to twice max in any 28 days, and three times in 31 days around a February.
// ratelimit.New returns an error if the name or max is out of range.
func Monthly(name string, max int64) Fixed { return calendar(name, max, 1, 31) }

// Quarterly is Monthly with the quarters that begin in January, April, July and October. The Window
// of its limit is 92 days. It admits up to twice max in any 89 days, and three times in 92.
func Quarterly(name string, max int64) Fixed { return calendar(name, max, 3, 92) }

func calendar(name string, max int64, months, days int) Fixed {
	limit := driver.Limit{Name: name, Max: max, Window: time.Duration(days) * day}
	return Fixed{unique.Make(fixedParams{limit: limit, months: months, day: 1})}
}

// params returns f's parameters, which are zeros for the zero Fixed.
func (f Fixed) params() (p fixedParams) {
	if f != (Fixed{}) {
		p = f.handle.Value()
	}
	return p
}

const day = 24 * time.Hour

// WithDay returns months or quarters that begin on a day of the month, such as that of a customer's
// contract, or on the last day of a month that is shorter. 1 is the default. ratelimit.New returns
// an error unless the day is from 1 to 31, or if f has no months. After a change of the day, counts
// are as after one of the offset.
func (f Fixed) WithDay(day int) Fixed {
	p := f.params()
	p.day = day
	return Fixed{unique.Make(p)}
}

// WithOffset returns f with windows that begin offset later, or earlier if it is negative. With 5
// hours, days and months begin at 05:00 UTC, and with -2 hours at midnight in UTC+2.
// ratelimit.New returns an error unless the offset is shorter than Window, whatever its sign. 0 is
// the default.
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

// Name returns the name of the encoding: "fixed1", or "month1" for months and quarters.
func (f Fixed) Name() string {
	if f.params().months > 0 {
		return "month1"
	}
	return "fixed1"
}

// Limit returns the limit.
func (f Fixed) Limit() driver.Limit { return f.params().limit }

// String returns the limit and how its windows begin, such as "api=60/1m0s with offset 10s",
// "api=60 a month from day 15" or "api=60 a quarter".
func (f Fixed) String() string {
	p := f.params()
	s := p.limit.String()
	if p.months > 0 {
		s = p.limit.Name + "=" + strconv.FormatInt(p.limit.Max, 10) +
			map[int]string{1: " a month", 3: " a quarter"}[p.months]
	}
	if p.start != 0 {
		s += " from " + ((time.Thursday + time.Weekday(p.start/day)) % 7).String()
	}
	if p.day > 1 {
		s += " from day " + strconv.Itoa(p.day)
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

// Validate returns an error if the limit, the offset or the day is out of range.
func (f Fixed) Validate() error {
	p := f.params()
	if err := p.limit.Validate(); err != nil {
		return err
	}
	if p.offset <= -p.limit.Window || p.offset >= p.limit.Window {
		return fmt.Errorf("%w limit: offset %v is not shorter than the Window %v",
			driver.ErrInvalid, p.offset, p.limit.Window)
	}
	if p.months == 0 && p.day != 0 {
		return fmt.Errorf("%w limit: windows of %v have no day of a month", driver.ErrInvalid,
			p.limit.Window)
	}
	if p.months > 0 && (p.day < 1 || p.day > 31) {
		return fmt.Errorf("%w limit: %d is not a day of a month, from 1 to 31", driver.ErrInvalid,
			p.day)
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
	if p.months == 0 {
		window := p.limit.Window.Microseconds()
		begin = t - (t+p.shift())%window
		return max(0, begin), begin + window
	}
	offset := p.offset.Microseconds()
	local := time.UnixMicro(t - offset).UTC()
	year, month, _ := local.Date()
	month -= (month - 1) % time.Month(p.months)
	if p.first(year, month).After(local) {
		month -= time.Month(p.months)
	}
	begin = p.first(year, month).UnixMicro() + offset
	end = p.first(year, month+time.Month(p.months)).UnixMicro() + offset
	return max(0, begin), end
}

// shift returns what is added to a time so that it is a multiple of the Window, in µs, when a
// window begins. It is not negative.
func (p *fixedParams) shift() int64 {
	return (2*p.limit.Window - p.start - p.offset).Microseconds()
}

// first returns when the window that begins in a month does, without the offset.
func (p *fixedParams) first(year int, month time.Month) time.Time {
	last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC)
	return last.AddDate(0, 0, min(0, p.day-last.Day()))
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
	fixedScript = "local calendar\n" + luaconst.Source(luaFiles, "fixedwindow.lua")
	monthScript = "local calendar = true\n" + luaconst.Source(luaFiles, "fixedwindow.lua")
)

// Script returns the step in Lua. Its args are those of fixedwindow.lua.
func (f Fixed) Script() driver.Script {
	script := driver.Script{Name: f.Name(), Source: fixedScript, Args: fixedArgs, Sums: true}
	if f.params().months > 0 {
		script.Source = monthScript
	}
	return script
}

// calendarShift is the time from 1 March 1969 to the epoch.
const calendarShift = 306 * day

func fixedArgs(dst []int64, d driver.Demand) []int64 {
	p := d.Algorithm.(Fixed).params()
	dst = append(dst, p.limit.Max, p.limit.Window.Microseconds())
	if p.months == 0 {
		return append(dst, p.shift())
	}
	shift := calendarShift - p.offset
	return append(dst, shift.Microseconds(), int64(p.months), int64(p.day-1))
}
