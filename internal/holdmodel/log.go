package holdmodel

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// A Log is the sliding-window log by its definition: a list of all admissions, filtered and summed
// for every question. Package algorithm must decide alike.
type Log struct {
	Of         driver.Limit
	Resolution time.Duration
	Lead       time.Duration // units are taken so long before they are used
	Hasty      bool          // a planted fault: the rounding of a stamp is a step of the clock
}

// Name returns "naive".
func (Log) Name() string { return "naive" }

// Limit returns the limit.
func (l Log) Limit() driver.Limit { return l.Of }

// Validate checks the limit.
func (l Log) Validate() error { return l.Of.Validate() }

// Script returns none.
func (l Log) Script() driver.Script { return driver.Script{} }

// records are the state of a Log.
type records struct {
	slop   int64 // the newest stamp is at most this far ahead of the clock that wrote it
	window int64 // of the last admission
	log    []record
}

type record struct{ stamp, units int64 }

// since returns what is later than edge, and its sum.
func (s *records) since(edge int64) (log []record, sum int64) {
	for _, r := range s.log {
		if r.stamp > edge {
			log = append(log, r)
			sum += r.units
		}
	}
	return log, sum
}

func (s *records) newest() int64 { return s.log[len(s.log)-1].stamp }

// earliest returns the earliest time at which the newest record may have been written.
func (s *records) earliest() int64 {
	if len(s.log) == 0 {
		return 0
	}
	return s.newest() - s.slop
}

// Instant returns the time of a decision: now, or that of the newest record if it is later.
func (l Log) Instant(state []byte, now int64) int64 {
	s, _ := decode(state)
	return max(now, s.earliest())
}

// Step decides d.
func (l Log) Step(state []byte, now int64, d driver.Demand) (
	[]byte, time.Duration, driver.Result,
) {
	res := driver.Result{Allowed: true, Limit: l.Of, Remaining: l.Of.Max}
	if d.Op == driver.OpReset {
		return nil, time.Duration(len(state)) * time.Microsecond, res
	}
	s, ok := decode(state)
	if !ok {
		return nil, -1, driver.Result{}
	}
	window, write := l.Of.Window.Microseconds(), false
	if len(s.log) > 0 && now >= s.newest()+s.window {
		s = records{}
	}
	by := s.earliest() - now
	if l.Hasty && len(s.log) > 0 {
		by = s.newest() - now
	}
	if by > window {
		for i := range s.log {
			s.log[i].stamp -= by
		}
		write = true
	}
	t := max(now, s.earliest())
	edge := t - window
	log, used := s.since(edge)

	switch {
	case d.Op == driver.OpForce, d.Op == driver.OpTake && used+d.N <= l.Of.Max:
		if d.Op == driver.OpTake || !s.addTo(edge, d.At, d.N) {
			l.admit(&s, t, d.N)
		}
		write = true
	case used+d.N > l.Of.Max:
		res.Allowed = false
		left := used
		for _, r := range log {
			if left -= r.units; left+d.N <= l.Of.Max {
				res.RetryAfter = micros(min(r.stamp+window, s.newest()+s.window) - now)
				break
			}
		}
	}
	if _, used = s.since(edge); used > 0 {
		res.ResetAfter = micros(s.newest() + min(window, s.window) - now)
	}
	res.Remaining = max(0, l.Of.Max-used)
	if !write {
		return state, 0, res
	}
	return s.encode(), micros(s.newest() + s.window - now), res
}

// addTo adds n units to the first record at or after a time, if one is in the window.
func (s *records) addTo(edge, at, n int64) bool {
	i := slices.IndexFunc(s.log,
		func(r record) bool { return at > 0 && r.stamp >= at && r.stamp > edge })
	if i < 0 {
		return false
	}
	s.log[i].units += n
	return true
}

// admit records n units at t.
func (l Log) admit(s *records, t, n int64) {
	r, lead := l.Resolution.Microseconds(), l.Lead.Microseconds()
	stamp, slop := (t+lead+r-1)/r*r, int64(0)
	for slop < lead+r-1 {
		slop = 2*slop + 1
	}
	if len(s.log) > 0 && s.newest() >= stamp {
		stamp, slop = s.newest(), max(slop, s.slop)
	}
	s.slop, s.window = slop, l.Of.Window.Microseconds()
	s.log, _ = s.since(stamp - slop - s.window)
	if len(s.log) > 0 && s.newest() == stamp {
		s.log[len(s.log)-1].units += n
	} else {
		s.log = append(s.log, record{stamp, n})
	}
}

// decode reads a state: the letter n and then numbers.
func decode(state []byte) (s records, ok bool) {
	if len(state) == 0 {
		return s, true
	}
	if state[0] != 'n' {
		return s, false
	}
	var numbers []int64
	for rest := state[1:]; len(rest) > 0; {
		n, size := binary.Varint(rest)
		if size <= 0 {
			return s, false
		}
		numbers, rest = append(numbers, n), rest[size:]
	}
	if len(numbers) < 4 || len(numbers)%2 > 0 || numbers[1] < 1 {
		return s, false
	}
	s.slop, s.window = numbers[0], numbers[1]
	for i := 2; i < len(numbers); i += 2 {
		s.log = append(s.log, record{numbers[i], numbers[i+1]})
	}
	return s, true
}

func (s *records) encode() []byte {
	b := binary.AppendVarint([]byte{'n'}, s.slop)
	b = binary.AppendVarint(b, s.window)
	for _, r := range s.log {
		b = binary.AppendVarint(b, r.stamp)
		b = binary.AppendVarint(b, r.units)
	}
	return b
}
