package algorithm

import (
	"encoding/binary"
	"slices"
	"time"
	"unique"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/luaconst"
)

// Counter estimates a rolling window from two fixed ones. The units of the current window count in
// full. Those of the previous window count in proportion to the part of it that a Window until now
// still covers, as if they had been admitted evenly. So it admits up to twice its Max in one
// rolling Window, and it refuses demands that fit. Use it beside systems that count in the same
// way, and [SlidingLog] or [TokenBucket] elsewhere. Create one with [SlidingWindowCounter]. Values
// are immutable and comparable.
//
// Windows begin at multiples of Window since the Unix epoch, on the clock of the store. What counts
// of the previous window is rounded up to whole units. A state is 32 bytes, whatever the limit.
type Counter struct {
	handle unique.Handle[driver.Limit] // one word, as in Log
}

var _ driver.Algorithm = Counter{}

// SlidingWindowCounter returns the algorithm that counts in the current and the previous fixed
// window. ratelimit.New returns an error if the limit is out of range.
func SlidingWindowCounter(limit driver.Limit) Counter { return Counter{unique.Make(limit)} }

// Name returns "counter1", the name of the encoding.
func (c Counter) Name() string { return "counter1" }

// Limit returns the limit.
func (c Counter) Limit() (limit driver.Limit) {
	if c != (Counter{}) {
		limit = c.handle.Value()
	}
	return limit
}

// String returns the limit, such as "api=60/1m0s".
func (c Counter) String() string { return c.Limit().String() }

// Validate returns an error if the limit is out of range.
func (c Counter) Validate() error { return c.Limit().Validate() }

// counterState is the state, as big-endian integers of 8 bytes. Times are in µs since the epoch.
type counterState struct {
	written  int64 // when a unit was counted last
	length   int64 // the Window of the limit that counted last
	previous int64 // units of the window before, at most maxCounted
	current  int64 // units of the window of written, at most maxCounted
}

const (
	counterSize = 32
	maxCounted  = 1 << 44
)

// Step decides d; see [driver.Algorithm].
func (c Counter) Step(
	state []byte, now int64, d driver.Demand,
) (next []byte, keep time.Duration, res driver.Result) {
	return step(c, state, now, d)
}

// Decide is Step in the form of [Log.Decide]. It ignores at.
func (c Counter) Decide(state []byte, now int64, op driver.Op, n, _ int64) (
	next []byte, keep time.Duration, allowed bool,
	remaining int64, retryAfter, resetAfter time.Duration,
) {
	limit := c.Limit()
	if op == driver.OpReset {
		return nil, reset(state), true, limit.Max, 0, 0
	}
	var s counterState
	if !s.decode(state) {
		return nil, -1, false, 0, 0, 0
	}
	window, write := limit.Window.Microseconds(), false
	if s.written-now > window { // the clock was ahead
		s.written, s.length, write = now, window, true
	}
	if now >= s.end() {
		s = counterState{written: now, length: window}
	}

	counted := s.at(now, window)
	begin := counted.written - counted.written%window
	covered := min(window, begin+window-now) // of the previous window
	fits := n <= limit.Max-counted.units(covered, window)
	allowed = true
	switch {
	case op == driver.OpForce, op == driver.OpTake && fits:
		counted.current = min(counted.current+n, maxCounted)
		counted.length, write = window, true
		s = counted
	case !fits:
		allowed = false
		at := begin + counted.free(limit.Max-n, window)
		retryAfter = micros(min(at, s.end()) - now)
	}
	used := counted.units(covered, window)
	remaining = max(0, limit.Max-used)
	if used > 0 {
		at := begin + counted.free(0, window)
		resetAfter = micros(min(at, s.end()) - now)
	}
	if !write {
		return state, 0, allowed, remaining, retryAfter, resetAfter
	}
	return s.encode(state), micros(s.end() - now), allowed, remaining, retryAfter, resetAfter
}

// end returns when the units of s no longer count under the limit that has written it. Until then
// the state is kept, so they do not count longer under any other limit.
func (s counterState) end() int64 { return s.written - s.written%s.length + 2*s.length }

// at returns s with the window of now as the current one, unless that of s is later.
func (s counterState) at(now, window int64) counterState {
	switch passed := now/window - s.written/window; {
	case passed == 1:
		s.previous, s.current = s.current, 0
	case passed > 1:
		s.previous, s.current = 0, 0
	}
	s.written = max(s.written, now)
	return s
}

// units returns the units that count if `covered` µs of the previous window still count.
func (s counterState) units(covered, window int64) int64 {
	units, rest := product(s.previous, covered, 0, window)
	if rest > 0 {
		units++
	}
	return s.current + units
}

// free returns the time from the beginning of the current window until at most room units count.
func (s counterState) free(room, window int64) int64 {
	passed, units := window, s.previous // the end of the current window, if its units fit in room
	room -= s.current
	if room < 0 {
		passed, room, units = 2*window, room+s.current, s.current
	}
	if units <= room {
		return passed - window
	}
	covered, _ := product(room, window, 0, units)
	return passed - covered
}

// decode sets s, and reports whether state is one that Step writes.
func (s *counterState) decode(state []byte) bool {
	if len(state) == 0 {
		*s = counterState{length: 1}
		return true
	}
	if len(state) != counterSize {
		return false
	}
	s.written = int64(binary.BigEndian.Uint64(state))
	s.length = int64(binary.BigEndian.Uint64(state[8:]))
	s.previous = int64(binary.BigEndian.Uint64(state[16:]))
	s.current = int64(binary.BigEndian.Uint64(state[24:]))
	return uint64(s.written) < endOfTime && s.length > 0 && s.length <= maxLength &&
		uint64(s.previous|s.current) < 2*maxCounted &&
		max(s.previous, s.current) <= maxCounted
}

// encode writes s into buf, which is empty or a state.
func (s *counterState) encode(buf []byte) []byte {
	buf = slices.Grow(buf[:0], counterSize)[:counterSize]
	binary.BigEndian.PutUint64(buf, uint64(s.written))
	binary.BigEndian.PutUint64(buf[8:], uint64(s.length))
	binary.BigEndian.PutUint64(buf[16:], uint64(s.previous))
	binary.BigEndian.PutUint64(buf[24:], uint64(s.current))
	return buf
}

var counterScript = luaconst.Source(luaFiles, "slidingcounter.lua")

// Script returns the step in Lua. Its args are Max and the Window in microseconds.
func (c Counter) Script() driver.Script {
	return driver.Script{Name: c.Name(), Source: counterScript, Args: limitArgs, Sums: true}
}
