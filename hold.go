package ratelimit

import (
	"context"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/longkey"
)

// A hold is what this process knows of the hold of a claim.
type hold struct {
	units int64     // that calls of this process which wait count as held
	open  bool      // see Observation.Open
	until time.Time // when it times out by this process's clock, if it is open
}

// An event is an Observation that is no call, and the observer that gets it.
type event struct {
	observe func(context.Context, Observation)
	seen    Observation
}

// countLocked makes calls that wait count the units of c, which was admitted. It counts not more
// than the store holds, unless a hold has timed out or was reset.
func (s *state) countLocked(c *call) {
	for i := range c.parts {
		if p := &c.parts[i]; p.holds() && p.results[0].Source == SourceStore {
			n := p.granted()
			p.limiter.waiting.hold(longkey.Shorten(p.key), n, p.limiter.maxHeld())
			s.holds[p.claim].units = n
		}
	}
}

// uncountLocked undoes countLocked for claim i.
func (s *state) uncountLocked(i int) {
	if h, c := &s.holds[i], &s.claims[i]; h.units > 0 {
		c.Limiter.waiting.unhold(longkey.Shorten(c.Key), h.units)
		h.units = 0
	}
}

// openLocked opens the hold of p, which the store has. If its time-out was over, it has been closed
// meanwhile.
func (s *state) openLocked(p *part) {
	s.unknown = false
	h, now := &s.holds[p.claim], time.Now()
	if h.open && now.After(h.until) {
		s.closeLocked(p.claim, nil, context.DeadlineExceeded)
	}
	if !h.open && p.limiter.observe != nil {
		h.open, h.until = true, now
		p.open = p.limiter.openings(1)
	}
	if until := now.Add(p.limiter.timeout(p.hold)); until.After(h.until) { // never sooner
		h.until = until
	}
}

// notFoundLocked closes the hold of p, which the store does not have.
func (s *state) notFoundLocked(p *part) {
	if s.unknown { // an earlier attempt has settled it
		s.closeLocked(p.claim, p, nil)
	} else {
		s.closeLocked(p.claim, p, ErrNotHeld)
	}
}

// closeLocked closes the hold of claim i, if it is open. If p is not nil, its Observation tells a
// change that has no error.
func (s *state) closeLocked(i int, p *part, err error) {
	if !s.holds[i].open {
		return
	}
	s.holds[i].open = false
	l := s.claims[i].Limiter.subset(isHolder)
	open := l.openings(-1)
	if p != nil && err == nil {
		p.open = open
		return
	}
	s.events = append(s.events, event{l.observe, Observation{
		Key: s.claims[i].Key, Op: driver.OpSettle, Limits: l.limits,
		Results: make([]Result, len(l.limits)), Err: err, Open: open,
	}})
}

func (s *state) closeAllLocked(err error) {
	for i := range s.holds {
		s.closeLocked(i, nil, err)
	}
}

// unlock passes the events to the observers, and unlocks mu.
func (s *state) unlock() {
	defer s.mu.Unlock()
	s.tellLocked()
}

// tellLocked passes the events to the observers.
func (s *state) tellLocked() {
	if len(s.events) == 0 {
		s.events = nil
		return
	}
	defer s.tellLocked() // also if this one panics
	first := s.events[0]
	s.events = s.events[1:]
	first.observe(context.Background(), first.seen)
}

// holds reports whether p was to hold units, and was not admitted by a policy.
func (p *part) holds() bool {
	return p.op == driver.OpHold && p.limiter.holds && p.results[0].Source != SourceOpen
}

// missing reports whether p is a settlement that found no hold under a limit that records units.
func (p *part) missing() bool {
	if p.op != driver.OpSettle || p.n == 0 {
		return false
	}
	for i, a := range p.limiter.algorithms {
		if isBudget(a.(driver.Holder)) && p.results[i].Units == 0 {
			return true
		}
	}
	return false
}

func isBudget(h driver.Holder) bool { return !h.InFlight() }

func isHolder(driver.Holder) bool { return true }

// subset returns l with only its limits that have holds and fit, or nil if there are none.
func (l *Limiter) subset(fits func(driver.Holder) bool) *Limiter {
	if !l.holds {
		return nil
	}
	out := func(a Algorithm) bool {
		h, ok := a.(driver.Holder)
		return !ok || !fits(h)
	}
	if !slices.ContainsFunc(l.algorithms, out) {
		return l
	}
	some := *l
	some.algorithms, some.limits = nil, nil
	for i, a := range l.algorithms {
		if !out(a) {
			some.algorithms = append(some.algorithms, a)
			some.limits = append(some.limits, l.limits[i])
		}
	}
	if len(some.algorithms) == 0 {
		return nil
	}
	return &some
}

// maxHeld returns the most units that all limits of l with holds, at least one, have room for.
func (l *Limiter) maxHeld() int64 {
	most := driver.MaxUnits
	for i, a := range l.algorithms {
		if _, ok := a.(driver.Holder); ok {
			most = min(most, l.limits[i].Max)
		}
	}
	return most
}

// timeout returns the shortest time-out of the holds of l, d if that is not 0, or 0 without holds.
func (l *Limiter) timeout(d time.Duration) (least time.Duration) {
	for _, a := range l.algorithms {
		if h, ok := a.(driver.Holder); ok && (least == 0 || h.HoldTimeout() < least) {
			least = h.HoldTimeout()
		}
	}
	if least > 0 && d > 0 {
		return d
	}
	return least
}

// openings returns n for each limit of l with holds, and 0 for the others.
func (l *Limiter) openings(n int) []int {
	open := make([]int, len(l.algorithms))
	for i, a := range l.algorithms {
		if _, ok := a.(driver.Holder); ok {
			open[i] = n
		}
	}
	return open
}
