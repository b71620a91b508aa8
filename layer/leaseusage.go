package layer

import (
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// leaseTerms are the leases that the states of an algorithm have.
type leaseTerms struct {
	limit driver.Limit
	ahead driver.Algorithm // takes units ahead
	lead  time.Duration
	risk  float64       // the most that a process has ahead, as a part of what it was admitted
	lost  *atomic.Int64 // of the layer
}

const (
	// mostLoss is the largest part of a limit that may go unused.
	mostLoss = 0.1
	// leastHeld is the fewest units that processes must be able to have ahead, all together.
	leastHeld = 8
)

// termsOf returns the terms of a, or nil if it has no leases.
func termsOf(a driver.Ahead, loss float64, lead time.Duration, lost *atomic.Int64) *leaseTerms {
	limit := a.Limit()
	if !(loss > 0) {
		return nil
	}
	loss = min(loss, mostLoss)
	if float64(limit.Max)*loss/2 < leastHeld {
		return nil
	}
	lead = min(lead, time.Duration(loss/2*float64(limit.Window))).Truncate(time.Microsecond)
	if lead <= 0 {
		return nil
	}
	ahead := a.Ahead(lead)
	if ahead == nil || a.Ahead(0) != driver.Algorithm(a) { // or a has a lead already
		return nil
	}
	risk := loss - float64(lead)/float64(limit.Window)
	return &leaseTerms{limit, ahead, lead, risk, lost}
}

// usage is what a state was admitted and has lost lately, by the monotonic clock in ns.
type usage struct {
	part      int64 // an eighth of the Window
	partEnds  int64
	newest    int
	admits    [usageParts]int64
	losses    [usageParts]int64
	lead      int64
	begun     int64 // of current
	current   int64 // admitted since begun, for at most a lead
	preceding int64 // in the lead before
}

// usageParts cover a Window: eight whole parts, and the one that has begun.
const usageParts = 9

func newUsage(terms *leaseTerms, now instant) usage {
	part := max(1, int64(terms.limit.Window)/(usageParts-1))
	return usage{part: part, partEnds: now.monotonic + part,
		lead: int64(terms.lead), begun: now.monotonic}
}

func (u *usage) admit(now instant, n int64) {
	u.pass(now)
	u.admits[u.newest] += n
	u.current += n
}

// lose counts n units that were lost at a time, by the monotonic clock. It may be long ago, since
// nobody sees a lease end of a key at rest.
func (u *usage) lose(now instant, at, n int64) {
	u.pass(now)
	if parts := max(0, u.partEnds-1-at) / u.part; parts < usageParts {
		u.losses[(u.newest+usageParts-int(parts))%usageParts] += n
	}
}

// pass begins new parts and a new lead when it is time.
func (u *usage) pass(now instant) {
	if behind := now.monotonic - u.partEnds; behind >= 0 {
		passed := behind/u.part + 1
		u.partEnds += passed * u.part
		for range min(passed, usageParts) {
			u.newest = (u.newest + 1) % usageParts
			u.admits[u.newest], u.losses[u.newest] = 0, 0
		}
	}
	switch passed := now.monotonic - u.begun; {
	case passed >= 2*u.lead:
		u.begun, u.current, u.preceding = now.monotonic, 0, 0
	case passed >= u.lead:
		u.begun, u.current, u.preceding = u.begun+u.lead, 0, u.current
	}
}

// admitted returns the units of the last 7/8 to one Window.
func (u *usage) admitted(now instant) (n int64) {
	u.pass(now)
	for i, units := range u.admits {
		if i != (u.newest+1)%usageParts { // the oldest
			n += units
		}
	}
	return n
}

// lost returns the units of the last one to 9/8 Windows.
func (u *usage) lost(now instant) (n int64) {
	u.pass(now)
	for _, units := range u.losses {
		n += units
	}
	return n
}

// rate returns the units admitted in a ns, over the last one to two leads.
func (u *usage) rate(now instant) float64 {
	u.pass(now)
	return float64(u.preceding+u.current) / float64(u.lead+now.monotonic-u.begun)
}
