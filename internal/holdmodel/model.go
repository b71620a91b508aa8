// Package holdmodel decides demands under limits with holds by the sentences of package driver:
// with a list of holds that is searched and summed for every question. It shares no code with
// package algorithm.
package holdmodel

import (
	"math/bits"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// A Limit is a limit with holds.
type Limit struct {
	Inside  driver.Algorithm // nil: calls in flight
	Limit   driver.Limit
	Timeout time.Duration
	// Leaves returns when units leave the window that are recorded at an instant, if what times out
	// is charged until then. Nil: it is free.
	Leaves func(at int64) int64
	// Windows means that Leaves returns the end of a window, which is the same for many holds.
	Windows bool
}

// A Key is the history of one key. The zero value is a key without history.
type Key struct {
	Inside []byte // the state of the algorithm inside
	Ends   int64  // when Inside runs out, so that a store may forget it
	Holds  []Hold
	last   int64 // the latest time at which holds were written, on their clock
	offset int64 // how far that clock is ahead of the store's, unless it waits for it
	// the last deadline at which holds timed out, settled ones too
	timedOut int64
}

func (k *Key) copy() Key {
	return Key{slices.Clone(k.Inside), k.Ends, slices.Clone(k.Holds), k.last, k.offset, k.timedOut}
}

// A Hold is open until its deadline. After that it is remembered.
type Hold struct {
	ID       uint64
	Units    int64
	Deadline int64
	Instant  int64 // when its units count if they are settled
	TimedOut bool
}

// Bounds of the holds of a key.
const (
	maxOpen    = 65_536
	remembered = int64(24 * time.Hour / time.Microsecond)
)

// Do decides d under l.
func (k *Key) Do(l Limit, now int64, d driver.Demand) driver.Result {
	if d.Op == driver.OpReset {
		*k = Key{}
		return driver.Result{Allowed: true, Limit: l.Limit, Remaining: l.Limit.Max}
	}
	if d.Least > 0 {
		peek, before := d, k.copy()
		peek.Op, peek.N, peek.Least = driver.OpPeek, d.Least, 0
		free := before.Do(l, now, peek).Remaining
		d.N, d.Least = min(d.N, max(d.Least, free)), 0
	}
	s := step{key: k.copy(), limit: l, now: now}
	s.advance()
	res := s.decide(d)
	peeked := s.inside(driver.OpPeek, 1, 0)
	res.Limit = l.Limit
	res.Remaining = max(0, peeked.Remaining-s.held(0))
	res.ResetAfter = max(peeked.ResetAfter, micros(s.lastDeadline()-s.key.offset-now))
	switch {
	case s.write:
		s.put()
		*k = s.key
	case s.writeInside:
		k.Inside, k.Ends = s.key.Inside, s.key.Ends
		if s.empty() {
			*k = Key{Inside: k.Inside, Ends: k.Ends}
		}
	}
	return res
}

// Held returns the units of open holds, and their number.
func (k *Key) Held() (units int64, open int) {
	for _, h := range k.Holds {
		if !h.TimedOut {
			units, open = units+h.Units, open+1
		}
	}
	return units, open
}

// A step works on a copy of a key.
type step struct {
	key   Key
	limit Limit
	now   int64
	time  int64 // on the clock of the holds
	// whether holds have changed, and the state of the algorithm inside
	write, writeInside bool
}

// advance sets the clock of the holds, which never goes back: it waits until the store's clock has
// caught up, or goes on at once if that was set back by more than the time-out. It begins anew when
// it no longer matters, since a store may have forgotten the key then.
func (s *step) advance() {
	k := &s.key
	if back := k.last - k.offset - s.now; back > s.limit.Timeout.Microseconds() {
		k.offset += back
		s.write = true
	}
	s.time = max(k.last, s.now+k.offset)
	for i := range k.Holds {
		if h := &k.Holds[i]; !h.TimedOut && h.Deadline <= s.time {
			h.TimedOut, k.timedOut = true, max(k.timedOut, h.Deadline)
		}
	}
	if s.empty() {
		*k, s.time, s.write = Key{Inside: k.Inside, Ends: k.Ends}, s.now, false
	}
}

// put keeps the time of a write, for as long as there is anything that it may matter to: an open
// hold, or 24 hours from the last time-out.
func (s *step) put() {
	k := &s.key
	k.last = max(k.last, s.time)
	if s.empty() {
		*k = Key{Inside: k.Inside, Ends: k.Ends}
	}
}

// empty reports whether no hold is open, and none has timed out within 24 hours.
func (s *step) empty() bool {
	_, open := s.key.Held()
	return open == 0 && s.key.timedOut <= s.time-remembered
}

// find returns the index of the hold of an ID that is open or remembered, or -1.
func (s *step) find(id uint64) int {
	return slices.IndexFunc(s.key.Holds, func(h Hold) bool {
		return id != 0 && h.ID == id && h.Deadline > s.time-remembered
	})
}

// held returns the units of all open holds but that of an ID.
func (s *step) held(but uint64) (units int64) {
	for _, h := range s.key.Holds {
		if !h.TimedOut && (but == 0 || h.ID != but) {
			units += h.Units
		}
	}
	return units
}

// holds returns the units that an ID holds.
func (s *step) holds(id uint64) int64 { return s.held(0) - s.held(id) }

func (s *step) lastDeadline() (last int64) {
	for _, h := range s.key.Holds {
		if !h.TimedOut {
			last = max(last, h.Deadline)
		}
	}
	return last
}

// inside asks the algorithm inside.
func (s *step) inside(op driver.Op, n, at int64) driver.Result {
	if s.limit.Inside == nil {
		return driver.Result{Allowed: true, Remaining: s.limit.Limit.Max}
	}
	d := driver.Demand{Algorithm: s.limit.Inside, Op: op, N: n, At: at}
	next, keep, res := d.Step(slices.Clone(s.key.Inside), s.now)
	if keep > 0 {
		s.key.Inside, s.writeInside = slices.Clone(next), true
		s.key.Ends = s.now + keep.Microseconds()
	}
	return res
}

func (s *step) decide(d driver.Demand) driver.Result {
	switch {
	case d.Op == driver.OpForce:
		s.inside(driver.OpForce, d.N, d.At)
		return driver.Result{Allowed: true, Units: d.N}
	case d.Op == driver.OpSettle:
		return driver.Result{Allowed: true, Units: s.settle(d)}
	case d.Op == driver.OpHold && d.N == 0:
		return driver.Result{Allowed: true, Units: s.renew(d)}
	case !s.fits(d):
		return driver.Result{RetryAfter: micros(s.retryAfter(d))}
	case d.Op == driver.OpHold:
		return driver.Result{Allowed: true, Units: s.hold(d)}
	case d.Op == driver.OpTake:
		s.inside(driver.OpTake, d.N, 0)
		return driver.Result{Allowed: true, Units: d.N}
	}
	return driver.Result{Allowed: true}
}

// fits reports whether d.N units fit beside all else. An ID that holds as many always may.
func (s *step) fits(d driver.Demand) bool {
	if d.ID != 0 {
		if _, open := s.key.Held(); s.holds(d.ID) >= d.N {
			return true
		} else if open >= maxOpen && s.holds(d.ID) == 0 {
			return false
		}
	}
	n, most := d.N+s.held(d.ID), s.limit.Limit.Max
	return s.inside(driver.OpPeek, min(n, most), 0).Allowed && n <= most
}

// retryAfter searches for the first time at which d fits, if nothing else happens.
func (s *step) retryAfter(d driver.Demand) int64 {
	fitsAfter := func(wait int64) bool {
		later := step{key: s.key.copy(), limit: s.limit, now: s.now + wait}
		later.advance()
		return later.fits(d)
	}
	low, high := int64(0), int64(1) // it does not fit after low
	for !fitsAfter(high) {
		low, high = high, 2*high
	}
	for low+1 < high {
		if middle := (low + high) / 2; fitsAfter(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// hold gives d.ID the units, unless it holds more.
func (s *step) hold(d driver.Demand) (units int64) {
	own := Hold{ID: d.ID, Units: d.N, Instant: s.instant()}
	i := s.find(d.ID)
	if i >= 0 {
		if before := s.key.Holds[i]; !before.TimedOut && before.Units >= d.N {
			own = before
		}
	}
	return s.place(i, own, d)
}

// renew returns the units that d.ID holds from now on: those that it holds or held.
func (s *step) renew(d driver.Demand) (units int64) {
	i := s.find(d.ID)
	if i < 0 {
		return 0
	}
	own := s.key.Holds[i]
	if _, open := s.key.Held(); own.TimedOut && open >= maxOpen {
		return 0
	}
	if own.TimedOut {
		s.inside(driver.OpPeek, 1, 0) // a log may find that the clock has been set back
		own.Instant = s.instant()
	}
	return s.place(i, own, d)
}

// place makes own the i-th hold, or a new one if i is -1.
func (s *step) place(i int, own Hold, d driver.Demand) (units int64) {
	length := d.HoldTimeout
	if length == 0 {
		length = s.limit.Timeout
	}
	least := int64(0)
	if i >= 0 {
		if before := s.key.Holds[i]; !before.TimedOut {
			least = before.Deadline
		}
		s.key.Holds = slices.Delete(s.key.Holds, i, i+1)
	}
	own.Deadline = max(least, s.ends(length.Microseconds()))
	own.TimedOut = false
	s.key.Holds = append(s.key.Holds, own)
	s.write = true
	return own.Units
}

// ends returns when a hold of a length that is placed now counts no more.
func (s *step) ends(length int64) int64 {
	if s.limit.Leaves == nil {
		return roundUp(s.time+length, length)
	}
	charged := s.limit.Leaves(s.now+length) - s.now
	deadlines := make(map[int64]bool)
	for _, h := range s.key.Holds {
		if !h.TimedOut {
			deadlines[h.Deadline] = true
		}
	}
	window := s.limit.Limit.Window.Microseconds()
	if s.limit.Windows && len(deadlines) < 64 && roundUp(1, length) <= window {
		return s.time + charged
	}
	return roundUp(s.time+charged, length+window)
}

// settle ends the hold of d.ID and returns the units that it records.
func (s *step) settle(d driver.Demand) (units int64) {
	i := s.find(d.ID)
	if i < 0 {
		return 0
	}
	own := s.key.Holds[i]
	s.key.Holds = slices.Delete(s.key.Holds, i, i+1)
	s.write = true
	if s.limit.Inside == nil || d.N == 0 {
		return 0
	}
	s.inside(driver.OpForce, min(d.N, own.Units), own.Instant)
	if d.N > own.Units {
		s.inside(driver.OpForce, d.N-own.Units, 0)
	}
	return d.N
}

// instant returns when units count that are held now.
func (s *step) instant() int64 {
	if log, ok := s.limit.Inside.(interface{ Instant([]byte, int64) int64 }); ok {
		return log.Instant(s.key.Inside, s.now)
	}
	return s.now
}

// roundUp rounds a deadline up, by less than an eighth of the hold's length.
func roundUp(deadline, length int64) int64 {
	unit := int64(1)
	for bits.Len64(uint64(length/unit)) > 4 {
		unit *= 2
	}
	return (deadline + unit - 1) / unit * unit
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// Same reports whether two results are the same.
func Same(a, b driver.Result) bool {
	return a.Allowed == b.Allowed && a.Source == b.Source && a.Limit == b.Limit &&
		a.Remaining == b.Remaining && a.Units == b.Units && a.RetryAfter == b.RetryAfter &&
		a.ResetAfter == b.ResetAfter
}
