package replay

import (
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// An audit compares the decisions of an algorithm with its limit: it records what was admitted in
// an exact log that refuses nothing.
type audit struct {
	log     algorithm.Log
	max     int64
	entries []auditEntry

	most  int64 // units of a key in any window
	over  int64 // requests admitted without room
	wrong int64 // requests refused with room
}

type auditEntry struct {
	state   []byte
	expires int64
}

// newAudit returns nil for the exact log, with which the others are compared.
func newAudit(a driver.Algorithm) *audit {
	limit := a.Limit()
	if a == driver.Algorithm(algorithm.SlidingLog(limit)) {
		return nil
	}
	room := driver.Limit{Max: driver.MaxUnits, Window: limit.Window}
	return &audit{log: algorithm.SlidingLog(room), max: limit.Max}
}

func (a *audit) check(id uint32, now, units int64, admitted bool) {
	for len(a.entries) <= int(id) {
		a.entries = append(a.entries, auditEntry{})
	}
	e := &a.entries[id]
	d := driver.Demand{Algorithm: a.log, Op: driver.OpPeek, N: units}
	if admitted {
		d.Op = driver.OpForce
	}
	next, keep, res := a.log.Step(e.state, now, d)
	if keep > 0 {
		e.state, e.expires = next, expiry(now, keep)
	}
	used := driver.MaxUnits - res.Remaining
	switch {
	case admitted:
		a.most = max(a.most, used)
		if used > a.max {
			a.over++
		}
	case used+units <= a.max:
		a.wrong++
	}
}

func (a *audit) sweep(now int64) {
	for i := range a.entries {
		if e := &a.entries[i]; e.state != nil && e.expires <= now {
			e.state = nil
		}
	}
}
