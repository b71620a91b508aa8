package layer

import (
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// Failing reports whether failures are counted, so that an answer writes.
func (b *Breaker) Failing() bool { return b.phase.Load().failures.Load() > 0 }

// SetClock replaces the clocks of the process, in ns.
func (s *Leased) SetClock(clock func() (monotonic, wall int64)) {
	s.clock = func() instant {
		monotonic, wall := clock()
		return instant{monotonic, wall}
	}
}

// SetTerms makes a have leases with this lead and risk, whatever the options say, or none if the
// lead is 0.
func (s *Leased) SetTerms(a driver.Ahead, lead time.Duration, risk float64) {
	s.terms[a] = nil
	if lead > 0 {
		s.terms[a] = &leaseTerms{a.Limit(), a.Ahead(lead), lead, risk, &s.lost}
	}
}

// LeaseOf returns the units that are in leases, and for how long at most they can be used.
func (s *Leased) LeaseOf(key string, a driver.Ahead) (units int64, left time.Duration) {
	s.mu.RLock()
	state := s.states[leaseID{key, a}]
	s.mu.RUnlock()
	if state == nil {
		return 0, 0
	}
	state.mu.Lock()
	defer state.mu.Unlock()
	now := s.clock()
	for _, l := range state.leases {
		if remains := l.lasts - now.since(l.asked); l.units > 0 && remains > 0 {
			units, left = units+l.units, max(left, remains)
		}
	}
	return units, left
}
