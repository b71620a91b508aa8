package algorithm

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"
	"unique"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/luaconst"
)

// Bucket is a token bucket: it holds up to Max units, the burst, and fills at the rate of Max in a
// Window. A demand is admitted if the bucket holds its units. So in one rolling Window it admits up
// to twice its Max: Max at once, and as many again while the bucket fills. Use it to smooth
// traffic, and not for budgets. Create one with [TokenBucket] or [GCRA]. Values are immutable and
// comparable.
//
// A change of the rate or the burst keeps what is spent: units that were missing are missing still,
// and come back at the new rate; a burst that grows by 10 gives 10 units at once. The change is at
// the first demand under the new limit, which writes the state even if it is a peek or is refused.
// If more is missing than its debt, they come back at the old rate until that is enough.
//
// A state has the units that are missing, with a part of a unit in 1/Window, so no rate is rounded.
// It is 40 bytes, whatever the limit. Units that were forced beyond Max come back too, as far as
// [Bucket.WithDebt] says, and 2^52 at most are missing.
type Bucket struct {
	handle unique.Handle[bucketParams] // one word, as in Log
}

type bucketParams struct {
	limit   driver.Limit
	debt    time.Duration
	lead    int64  // µs by which units are taken before they are used
	problem string // why no limit has the rate and the burst of TokenBucket; empty if one has
}

var _ driver.Ahead = Bucket{}

// TokenBucket returns the algorithm of a bucket that holds burst units and fills at a rate:
// TokenBucket("api", 10, 20) admits 20 units at once, and 10 a second. The name is that of the
// limit. [Every] returns the rate of one unit in an interval.
//
// The Max of the limit is burst. The Window is burst / rate, in which an empty bucket fills,
// rounded to whole microseconds. That changes the rate by at most 1 part in 2,000 if the Window is
// a millisecond, the shortest, and in 2,000,000 if it is a second.
//
// ratelimit.New returns an error unless rate and burst are above 0 and the Window is from
// [driver.MinWindow] to [driver.MaxWindow]. So a rate of more than 1,000 a second needs a burst of
// at least a thousandth of it.
func TokenBucket(name string, rate Rate, burst int64) Bucket {
	window, problem := rate.window(burst)
	limit := driver.Limit{Name: name, Max: burst, Window: window}
	return Bucket{unique.Make(bucketParams{limit: limit, debt: longestDebt, problem: problem})}
}

// GCRA returns the bucket of a limit: it holds Max units, and as many come back evenly in a Window.
// It is TokenBucket with a burst of Max and a rate of Max / Window, without rounding, and decides
// as the Generic Cell Rate Algorithm (ITU-T I.371) does. ratelimit.New returns an error if the
// limit is out of range.
func GCRA(limit driver.Limit) Bucket {
	return Bucket{unique.Make(bucketParams{limit: limit, debt: longestDebt})}
}

// WithDebt returns b with another debt: the longest time until a bucket is full again, and so the
// longest RetryAfter, however many units were forced or settled; those that would take longer are
// not kept. On a clock that steps back it is up to a Window more. 0 means the default, which is
// also the longest: 2^50 µs, 35 years.
//
// The debt is no part of a state: limiters with different debts share the states of a limit, and
// each reads a larger debt as its own. ratelimit.New returns an error if d is not whole
// microseconds from the Window to 2^50 µs.
func (b Bucket) WithDebt(d time.Duration) Bucket {
	if d == 0 {
		d = longestDebt
	}
	p := b.params()
	p.debt = d
	return Bucket{unique.Make(p)}
}

// Ahead returns b with takes that count from d later on; see [driver.Ahead]. d is rounded up to
// whole microseconds. What comes back in d is never free for such a take, so one of more than the
// other units of Max is always refused. It returns nil if d is negative, or not less than the
// Window.
func (b Bucket) Ahead(d time.Duration) driver.Algorithm {
	p := b.params()
	if d < 0 || d >= p.limit.Window {
		return nil
	}
	p.lead = wholeMicros(d)
	return Bucket{unique.Make(p)}
}

// params returns b's parameters, which are zeros for the zero Bucket.
func (b Bucket) params() (p bucketParams) {
	if b != (Bucket{}) {
		p = b.handle.Value()
	}
	return p
}

// Name returns "bucket1", the name of the encoding.
func (b Bucket) Name() string { return "bucket1" }

// Limit returns the limit. Its Window is 0 if the rate or the burst is out of range.
func (b Bucket) Limit() (limit driver.Limit) {
	if b != (Bucket{}) {
		limit = b.handle.Value().limit
	}
	return limit
}

// Debt returns the longest time until a bucket is full again: 2^50 µs unless [Bucket.WithDebt] has
// set it.
func (b Bucket) Debt() time.Duration { return b.params().debt }

// lead returns how many µs before their use units are taken.
func (b Bucket) lead() (us int64) {
	if b != (Bucket{}) {
		us = b.handle.Value().lead
	}
	return us
}

// String returns the limit, the debt if it is not the default, and how far ahead units are taken,
// such as "api=60/1m0s", "api=60/1m0s with debt 1h0m0s" or "api=60/1m0s 100ms ahead".
func (b Bucket) String() string {
	s := b.Limit().String()
	if d := b.Debt(); d != longestDebt && b != (Bucket{}) {
		s += " with debt " + d.String()
	}
	return s + aheadText(b.lead())
}

// Validate returns an error if the rate, the burst, the limit or the debt is out of range.
func (b Bucket) Validate() error {
	p := b.params()
	if p.problem != "" {
		return fmt.Errorf("%w limit: %s", driver.ErrInvalid, p.problem)
	}
	if err := p.limit.Validate(); err != nil {
		return err
	}
	switch d := p.debt; {
	case d < p.limit.Window:
		return fmt.Errorf("%w limit: the debt %v is shorter than the Window %v", driver.ErrInvalid,
			d, p.limit.Window)
	case d > longestDebt || d%time.Microsecond != 0:
		return fmt.Errorf("%w limit: the debt %v is not whole microseconds up to %v",
			driver.ErrInvalid, d, longestDebt)
	}
	return nil
}

// An amount is a number of units with a part of one, in units of 1/window; less than window.
type amount struct{ units, part int64 }

// A pace is the rate of a bucket: max units in window µs.
type pace struct{ max, window int64 }

// in returns what comes back in us microseconds. A number of units that is 2^63 or more becomes
// 2^63 - 1.
func (p pace) in(us int64) amount {
	units, part := product(us, p.max, 0, p.window)
	return amount{units, part}
}

// time returns how long it takes until a has come back, in µs, rounded up.
func (p pace) time(a amount) int64 {
	us, _ := product(a.units, p.window, a.part+p.max-1, p.max)
	return us
}

func (p pace) add(a, b amount) amount {
	sum := amount{a.units + b.units, a.part + b.part}
	if sum.part >= p.window {
		sum.units, sum.part = sum.units+1, sum.part-p.window
	}
	return sum
}

// less returns a - b, or 0 if b is more.
func (p pace) less(a, b amount) amount {
	if a.below(b) {
		return amount{}
	}
	left := amount{a.units - b.units, a.part - b.part}
	if left.part < 0 {
		left.units, left.part = left.units-1, left.part+p.window
	}
	return left
}

// below reports whether a is less than b, of the same pace.
func (a amount) below(b amount) bool {
	return a.units < b.units || a.units == b.units && a.part < b.part
}

// over reports whether more than max is missing.
func (p pace) over(a amount) bool { return (amount{units: p.max}).below(a) }

// most returns the most that may be missing with a debt of so many µs.
func (p pace) most(debt int64) amount {
	return p.in(debt).atMost(amount{units: maxMissing})
}

// atMost returns a, or most if a is more.
func (a amount) atMost(most amount) amount {
	if most.below(a) {
		return most
	}
	return a
}

// atLeast returns a, or least if a is less.
func (a amount) atLeast(least amount) amount {
	if a.below(least) {
		return least
	}
	return a
}

// most returns the most that may be missing in a state of a limit with the pace old, for b's limit,
// which has the pace p: what comes back within b's debt, at the faster of both.
func (b Bucket) most(p, old pace) amount {
	debt := b.Debt().Microseconds()
	most := old.most(debt)
	if own := p.most(debt).units; old != p && own > most.units {
		most = amount{units: own}.atMost(old.most(longestDebt.Microseconds()))
	}
	return most
}

// from returns a, of the pace old, as an amount of p. The part is rounded up.
func (p pace) from(a amount, old pace) amount {
	if p.window == old.window {
		return a
	}
	part, _ := product(a.part, p.window, old.window-1, old.window)
	return p.add(amount{units: a.units}, amount{part: part})
}

// bucketState is the state, as five big-endian integers of 8 bytes: missing.units, missing.part,
// pace.max, pace.window and written. Under one limit, what is missing in 1/Window is the time until
// the bucket is full in 1/Max µs, the state of GCRA.
type bucketState struct {
	missing amount // when it was written
	pace    pace   // of the limit that wrote it
	written int64  // in µs since the epoch
}

const (
	bucketSize = 40
	maxMissing = 1 << 52 // units

	longestDebt = 1 << 50 * time.Microsecond
)

// Step decides d; see [driver.Algorithm].
func (b Bucket) Step(
	state []byte, now int64, d driver.Demand,
) (next []byte, keep time.Duration, res driver.Result) {
	return step(b, state, now, d)
}

// Decide is Step in the form of [Log.Decide]. It ignores at.
func (b Bucket) Decide(state []byte, now int64, op driver.Op, n, _ int64) (
	next []byte, keep time.Duration, allowed bool,
	remaining int64, retryAfter, resetAfter time.Duration,
) {
	limit := b.Limit()
	if op == driver.OpReset {
		return nil, reset(state), true, limit.Max, 0, 0
	}
	var s bucketState
	if !s.decode(state) {
		return nil, -1, false, 0, 0, 0
	}
	p, write := pace{limit.Max, limit.Window.Microseconds()}, false
	if s.pace.over(s.missing) || s.pace != p && s.missing != (amount{}) {
		// As if it had been written with this debt.
		s.missing = s.missing.atMost(b.most(p, s.pace))
	}
	if now > s.written {
		s.missing = s.pace.less(s.missing, s.pace.in(now-s.written))
		s.written = now
	}
	q := p // the pace at which it comes back
	if s.pace != p {
		missing, most := p.from(s.missing, s.pace), amount{}
		if p.over(missing) {
			most = b.most(p, p)
		}
		switch {
		case !p.over(missing) || !most.below(missing):
			s.missing, write = missing, missing != amount{}
		case b.Debt() == longestDebt:
			s.missing, write = most, true
		default: // the state stays that of the other limit
			q = s.pace
		}
	}
	var back amount // what comes back from now until s.written
	switch ahead := s.written - now; {
	case ahead > q.window: // the clock was ahead
		s.written, write = now, true
	case ahead > 0:
		back = q.in(ahead)
	}

	missing, lead := q.add(s.missing, back), int64(0)
	if op <= driver.OpPeek {
		lead = b.lead()
	}
	if lead > 0 {
		missing = missing.atLeast(q.in(lead).atMost(amount{units: p.max}))
	}
	after := amount{missing.units + n, missing.part}
	fits := !p.over(after)
	allowed = true
	switch {
	case op == driver.OpForce, op == driver.OpTake && fits:
		if used := now + lead; used > s.written {
			s.missing, back = q.less(s.missing, q.in(used-s.written)), q.in(lead)
			s.written = used
		}
		s.missing.units += n
		if !fits {
			s.missing = s.missing.atMost(b.most(p, q))
		}
		missing, write = q.add(s.missing, back), true
	case !fits:
		allowed = false
		retryAfter = micros(q.time(amount{after.units - p.max, after.part}))
	}
	remaining = max(0, q.less(amount{units: p.max}, missing).units)
	resetAfter = micros(q.time(missing))
	switch {
	case !write:
		return state, 0, allowed, remaining, retryAfter, resetAfter
	case resetAfter == 0: // a full bucket needs no state
		return nil, time.Microsecond, allowed, remaining, retryAfter, resetAfter
	}
	s.pace = q
	return s.encode(state), resetAfter, allowed, remaining, retryAfter, resetAfter
}

// decode sets s, and reports whether state is one that Step writes.
func (s *bucketState) decode(state []byte) bool {
	if len(state) == 0 {
		*s = bucketState{pace: pace{1, 1}}
		return true
	}
	if len(state) != bucketSize {
		return false
	}
	s.missing.units = int64(binary.BigEndian.Uint64(state))
	s.missing.part = int64(binary.BigEndian.Uint64(state[8:]))
	s.pace.max = int64(binary.BigEndian.Uint64(state[16:]))
	s.pace.window = int64(binary.BigEndian.Uint64(state[24:]))
	s.written = int64(binary.BigEndian.Uint64(state[32:]))
	return s.pace.max >= 1 && s.pace.max <= driver.MaxUnits &&
		s.pace.window >= driver.MinWindow.Microseconds() &&
		s.pace.window <= driver.MaxWindow.Microseconds() &&
		s.missing.units >= 0 && s.missing.part >= 0 && s.missing.part < s.pace.window &&
		uint64(s.written) < endOfTime && (!s.pace.over(s.missing) ||
		!s.pace.most(longestDebt.Microseconds()).below(s.missing))
}

// encode writes s into buf, which is empty or a state.
func (s *bucketState) encode(buf []byte) []byte {
	buf = slices.Grow(buf[:0], bucketSize)[:bucketSize]
	binary.BigEndian.PutUint64(buf, uint64(s.missing.units))
	binary.BigEndian.PutUint64(buf[8:], uint64(s.missing.part))
	binary.BigEndian.PutUint64(buf[16:], uint64(s.pace.max))
	binary.BigEndian.PutUint64(buf[24:], uint64(s.pace.window))
	binary.BigEndian.PutUint64(buf[32:], uint64(s.written))
	return buf
}

var bucketScript = luaconst.Source(luaFiles, "tokenbucket.lua")

// Script returns the step in Lua. Its args are Max, the Window in microseconds and, unless they are
// the defaults, the debt and the lead in microseconds.
func (b Bucket) Script() driver.Script {
	return driver.Script{Name: b.Name(), Source: bucketScript, Args: bucketArgs, Sums: true}
}

func bucketArgs(dst []int64, d driver.Demand) []int64 {
	dst, p := limitArgs(dst, d), d.Algorithm.(Bucket).params()
	if p.debt != longestDebt || p.lead > 0 {
		dst = append(dst, p.debt.Microseconds())
	}
	if p.lead > 0 {
		dst = append(dst, p.lead)
	}
	return dst
}
