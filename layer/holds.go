package layer

import (
	"cmp"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// A pendingHold is a hold of which the store inside is still to be told something that was decided
// locally. There is one for each ID under each limit, and what was decided last is what counts:
//
//	open       to be placed, or enlarged, until it fits; or to be renewed
//	settled    to be settled, until the store answers
//	idle       open and timed out: nothing to be told, but it may be renewed or settled later
//
// A hold that the store cannot have is settled as a debt, and one that it may have is placed again
// before, since the answer to that shows whether it has.
type pendingHold struct {
	state   *heldState
	demand  driver.Demand // the OpHold that places it, with all its units
	stored  int64         // units that the store is known to hold
	sent    int64         // stored is 0: fewest units of an OpHold that may have arrived, or 0
	used    int64         // units to be recorded; open if it is not settled
	unknown bool          // a settlement may have arrived
	until   int64         // when it times out locally, in µs since the ledger began
	due     bool          // in the ledger's list
	asking  bool          // an attempt is being made
}

// heldState has the pending holds of a state, by ID.
type heldState struct {
	peek  driver.Demand // at the state; has a copy of the key
	holds map[uint64]*pendingHold
}

// open is the number of used units of a hold that is not settled.
const open = -1

// remembered is how long after its time-out a hold can be renewed and settled.
const remembered = 24 * time.Hour

// isHold reports whether d asks about the hold of its ID.
func isHold(d driver.Demand) bool { return d.Op == driver.OpHold || d.Op == driver.OpSettle }

// holdLocked returns the pending hold that d asks about, or nil.
func (l *ledger) holdLocked(d driver.Demand) *pendingHold {
	if s := l.holds[idOf(d)]; s != nil && isHold(d) {
		return s.holds[d.ID]
	}
	return nil
}

// isPending reports whether d asks about a pending hold, about which the store inside may know
// less.
func (l *ledger) isPending(d driver.Demand) bool {
	if l.held.Load() == 0 || !isHold(d) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holdLocked(d) != nil
}

// knownUnitsLocked returns how many units each of ds holds locally. It reports false if one of ds
// cannot be decided, because only the store inside may know its hold.
func (l *ledger) knownUnitsLocked(ds []driver.Demand) (units []int64, ok bool) {
	units = make([]int64, len(ds))
	for i, d := range ds {
		if !isHold(d) {
			continue
		}
		if h := l.holdLocked(d); h != nil && h.used != open {
			if d.NeverRefused() || h.used == 0 {
				continue // settled: nothing is held
			}
			return nil, false
		}
		renew := d
		renew.Op, renew.N, renew.HoldTimeout = driver.OpHold, 0, 0
		if res, err := l.askLocal(renew); err == nil {
			units[i] = res.Units / l.instances
		}
		switch {
		case units[i] > 0:
		case d.Op == driver.OpSettle && d.N == 0: // records nothing, whatever is held
			units[i] = 1
		case d.NeverRefused():
			return nil, false
		}
	}
	return units, true
}

// tellLocked makes the store inside be told what was decided about d's hold. known is how many
// units it held locally before, and unknown reports whether d may have arrived in the store.
func (l *ledger) tellLocked(d driver.Demand, known int64, unknown bool) {
	h := l.holdLocked(d)
	switch {
	case h == nil:
		h = &pendingHold{stored: known, used: open}
		h.demand = d
		h.demand.Op, h.demand.N, h.demand.Least = driver.OpHold, known, 0
		l.addHold(h)
	case h.used == 0 && d.Op == driver.OpHold && d.N > 0: // a call that waits asks again
		h.sent, h.stored = min(max(h.sent, h.stored), d.N), 0
		h.used, h.demand.N, h.until = open, 0, 0
	case h.used != open:
		return
	}
	if d.Op == driver.OpHold {
		if unknown && h.stored == 0 && h.sent == 0 {
			h.sent = d.LeastUnits()
		}
		h.demand.Algorithm, h.demand.N = d.Algorithm, max(h.demand.N, d.N)
		length := cmp.Or(d.HoldTimeout, d.Algorithm.(driver.Holder).HoldTimeout())
		if until := l.now() + length.Microseconds(); until > h.until {
			h.until, h.demand.HoldTimeout = until, d.HoldTimeout
		}
	} else {
		h.used, h.unknown = d.N, unknown
		if !h.asking && h.sent == 0 && h.stored == 0 {
			l.become(h)
			return
		}
	}
	l.fallDueLocked(h)
}

// become makes a settled hold that the store cannot have a debt.
func (l *ledger) become(h *pendingHold) {
	l.dropLocked(h)
	if h.used > 0 {
		d := h.demand
		d.Op, d.N, d.ID, d.HoldTimeout = driver.OpForce, h.used, 0, 0
		l.oweLocked(d)
	}
}

// addHold adds h.
func (l *ledger) addHold(h *pendingHold) {
	state := l.holds[idOf(h.demand)]
	if state == nil {
		id := l.copyOf(idOf(h.demand))
		l.keyBytes += len(id.key) // of the debt that it may become
		state = &heldState{peekOf(h.demand), make(map[uint64]*pendingHold)}
		state.peek.Key = id.key
		l.holds[id] = state
	}
	h.state, h.demand.Key = state, state.peek.Key
	state.holds[h.demand.ID] = h
	l.held.Add(1)
}

// dropLocked removes h.
func (l *ledger) dropLocked(h *pendingHold) {
	delete(h.state.holds, h.demand.ID)
	l.held.Add(-1)
	if len(h.state.holds) == 0 {
		l.forgetHolds(idOf(h.state.peek))
	}
}

// forgetHolds removes all pending holds of a state.
func (l *ledger) forgetHolds(id stateID) {
	if state := l.holds[id]; state != nil {
		l.held.Add(-int64(len(state.holds)))
		delete(l.holds, id)
		l.keyBytes -= 2 * len(id.key)
	}
}

func (l *ledger) fallDueLocked(h *pendingHold) {
	if !h.due {
		h.due = true
		l.dueHolds = append(l.dueHolds, h)
	}
}

// waiting reports whether the store inside is to be told anything, or there are holds to forget.
func (l *ledger) waiting() bool { return l.pending.Load() > 0 || l.held.Load() > 0 }

// idle reports whether there are at most holds to forget.
func (l *ledger) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.debts) == 0 && len(l.dueHolds) == 0
}

// takeDue returns the holds that are due. The caller calls beginHold or postpone for each.
func (l *ledger) takeDue() []*pendingHold {
	l.mu.Lock()
	defer l.mu.Unlock()
	holds := l.dueHolds
	l.dueHolds = nil
	return holds
}

// postpone makes h due again.
func (l *ledger) postpone(h *pendingHold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.due = false
	l.fallDueLocked(h)
}

// beginHold returns what the store inside is to be told about h, which was due, and whether that
// needs room there, or false if it is nothing. The caller makes the attempt and calls finishHold.
func (l *ledger) beginHold(h *pendingHold) (d driver.Demand, needsRoom, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.due = false
	if l.holdLocked(h.demand) != h || h.asking || h.used == open && h.until < l.now() {
		return d, false, false
	}
	h.asking = true
	d = h.demand
	switch {
	case h.used == 0, h.used > 0 && h.stored > 0:
		d.Op, d.N, d.HoldTimeout = driver.OpSettle, h.used, 0
	case h.stored == 0 && h.sent > 0:
		d.N = h.sent
	case h.stored >= d.N: // renews
		d.N = 0
	default:
		needsRoom = true
	}
	return d, needsRoom, true
}

// finishHold ends an attempt: d about h ended with res, unless it was not sent or the outcome is
// unknown. It reports whether the store is known to hold units of h, and whether to make another
// attempt at once, since h was settled during this one.
func (l *ledger) finishHold(
	h *pendingHold, d driver.Demand, res driver.Result, result outcome,
) (stored, again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.asking = false
	if l.holdLocked(h.demand) != h {
		return false, false // reset meanwhile
	}
	isOpen, done, lost := h.used == open, false, false
	switch {
	case result == settled && d.Op == driver.OpSettle:
		if done = !isOpen; isOpen { // it was placed anew meanwhile
			h.sent = 0
		}
		lost = done && d.N > 0 && res.Units == 0 && !h.unknown
	case result == settled && d.N == 0 && res.Units == 0: // renewed in vain
		if done, lost = isOpen, isOpen; isOpen {
			d.Op = driver.OpSettle
			_, _ = l.askLocal(d) // it fails only when closed
		}
	case result == settled:
		if h.sent = 0; res.Allowed {
			h.stored = max(h.stored, d.N)
		}
		done = isOpen && h.stored >= h.demand.N
	case result == unknown && d.Op == driver.OpSettle:
		h.unknown = true
	case result == unknown && h.stored == 0 && h.sent == 0:
		h.sent = d.N
	}
	if lost {
		l.lost.Add(1)
	}
	switch {
	case done:
		l.dropLocked(h)
	case !isOpen && h.stored == 0 && h.sent == 0:
		l.become(h)
	default:
		l.fallDueLocked(h)
		again = !isOpen && d.Op == driver.OpHold && result == settled
	}
	return h.stored > 0, again
}

// expireHolds removes some pending holds that are no longer remembered.
func (l *ledger) expireHolds() {
	checked, now := 0, l.now()
	for _, state := range l.holds {
		for _, h := range state.holds {
			if checked++; checked > expireBatch {
				return
			}
			if h.used == open && !h.asking && h.until+remembered.Microseconds() < now {
				l.dropLocked(h)
			}
		}
	}
}
