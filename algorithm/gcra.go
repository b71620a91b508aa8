package algorithm

import (
	"encoding/binary"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/luaconst"
)

// Bucket is a token bucket: it holds up to Max units, the burst, and fills at the rate of Max in a
// Window. A demand is admitted if the bucket holds its units. So in one rolling Window it admits up
// to twice its Max: Max at once, and as many again while the bucket fills. Use it to smooth
// traffic, and not for budgets. Create one with [TokenBucket] or [GCRA], which are the same. Values
// are immutable and comparable.
//
// It is computed as the Generic Cell Rate Algorithm in the form of virtual scheduling (ITU-T
// I.371): the state holds the time at which the bucket is full. That time has a remainder in parts
// of a microsecond, so no rate is rounded. A state is 32 bytes, whatever the limit. The shortest
// Window is a millisecond, so a rate of more than 1,000 units a second needs a Max of at least a
// thousandth of the rate.
type Bucket struct{ limit driver.Limit }

var _ driver.Algorithm = Bucket{}

// TokenBucket returns the algorithm of a bucket that holds Max units and fills in a Window.
// ratelimit.New returns an error if the limit is out of range.
func TokenBucket(limit driver.Limit) Bucket { return Bucket{limit} }

// GCRA returns TokenBucket(limit), under the name of its computation.
func GCRA(limit driver.Limit) Bucket { return Bucket{limit} }

// Name returns "gcra1", the name of the encoding.
func (b Bucket) Name() string { return "gcra1" }

// Limit returns the limit.
func (b Bucket) Limit() driver.Limit { return b.limit }

// Validate returns an error if the limit is out of range.
func (b Bucket) Validate() error { return b.limit.Validate() }

// An instant is a time with a part of a microsecond. A difference of two instants has the same type
// and is a duration.
type instant struct {
	us   int64 // µs since the epoch
	part int64 // of a µs, in units of 1/Max µs; less than Max
}

// bucketState is the state, as four big-endian integers of 8 bytes: full.us, full.part, the Max
// that full.part is for, and written.
type bucketState struct {
	full    instant // when the bucket is full
	written int64   // time of the last admission, in µs since the epoch
}

const (
	bucketSize = 32
	// maxDebt is the longest time until the bucket is full, in µs. Only an OpForce reaches it.
	maxDebt = 1 << 50
)

// Step decides d; see [driver.Algorithm].
func (b Bucket) Step(
	state []byte, now int64, d driver.Demand,
) (next []byte, keep time.Duration, res driver.Result) {
	res = driver.Result{Allowed: true, Limit: b.limit, Remaining: b.limit.Max}
	if d.Op == driver.OpReset {
		if len(state) > 0 {
			keep = time.Microsecond
		}
		return nil, keep, res
	}
	s, ok := b.decode(state)
	if !ok {
		return nil, -1, driver.Result{}
	}
	window, write := b.limit.Window.Microseconds(), false
	if ahead := s.written - now; ahead > window { // the clock was ahead
		s.full.us, s.written, write = max(0, s.full.us-ahead), now, true
	}
	if s.full.us < now {
		s.full = instant{us: now}
	}

	full := b.add(s.full, b.cost(d.N))
	fits := full.us < now+window || full == instant{us: now + window}
	switch {
	case d.Op == driver.OpForce, d.Op == driver.OpTake && fits:
		s.full, s.written, write = atMost(full, now+maxDebt), max(now, s.written), true
	case !fits:
		res.Allowed = false
		res.RetryAfter = time.Duration(full.ceil()-window-now) * time.Microsecond
	}
	res.Remaining = b.remaining(instant{s.full.us - now, s.full.part})
	res.ResetAfter = time.Duration(s.full.ceil()-now) * time.Microsecond
	switch {
	case !write:
		return state, 0, res
	case res.ResetAfter == 0: // a full bucket needs no state
		return nil, time.Microsecond, res
	}
	return b.encode(state[:0], s), res.ResetAfter, res
}

// cost returns how long the bucket takes to refill n units, at most maxDebt.
func (b Bucket) cost(n int64) instant {
	us, part := product(n, b.limit.Window.Microseconds(), b.limit.Max)
	return atMost(instant{us, part}, maxDebt)
}

// remaining returns the units in a bucket that is full after the given time.
func (b Bucket) remaining(missing instant) int64 {
	window := b.limit.Window.Microseconds()
	if missing.us >= window {
		return 0
	}
	units, rest := product(window-missing.us, b.limit.Max, window)
	if missing.part > rest {
		units -= (missing.part - rest + window - 1) / window
	}
	return units
}

func (b Bucket) add(x, y instant) instant {
	sum := instant{x.us + y.us, x.part + y.part}
	if sum.part >= b.limit.Max {
		sum.us, sum.part = sum.us+1, sum.part-b.limit.Max
	}
	return sum
}

// atMost returns x, or us microseconds if x is more.
func atMost(x instant, us int64) instant {
	if x.us >= us {
		return instant{us: us}
	}
	return x
}

// ceil returns x in whole microseconds, rounded up.
func (x instant) ceil() int64 {
	if x.part > 0 {
		return x.us + 1
	}
	return x.us
}

// decode returns a state, and whether it is one that Step writes. A part that is for another Max is
// rounded up to a microsecond.
func (b Bucket) decode(state []byte) (s bucketState, ok bool) {
	if len(state) == 0 {
		return s, true
	}
	if len(state) != bucketSize {
		return s, false
	}
	s.full.us = int64(binary.BigEndian.Uint64(state))
	s.full.part = int64(binary.BigEndian.Uint64(state[8:]))
	most := int64(binary.BigEndian.Uint64(state[16:]))
	s.written = int64(binary.BigEndian.Uint64(state[24:]))
	if most < 1 || most > driver.MaxUnits || s.full.part < 0 || s.full.part >= most ||
		s.written < 0 || s.written >= endOfTime || s.full.us < 0 ||
		s.full.us > s.written+maxDebt {
		return s, false
	}
	if most != b.limit.Max {
		s.full = instant{us: s.full.ceil()}
	}
	return s, true
}

func (b Bucket) encode(dst []byte, s bucketState) []byte {
	for _, n := range [...]int64{s.full.us, s.full.part, b.limit.Max, s.written} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(n))
	}
	return dst
}

var bucketScript = luaconst.Source(luaFiles, "gcra.lua")

// Script returns the step in Lua. Its args are Max and the Window in microseconds.
func (b Bucket) Script() driver.Script {
	return driver.Script{Name: b.Name(), Source: bucketScript, Args: limitArgs}
}
