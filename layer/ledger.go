package layer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/longkey"
)

// ledger decides demands from memory, within this process's share of each limit. What it admits on
// a state becomes a debt: units that the store inside has not recorded yet, which DegradedStats
// calls pending. The life of a debt:
//
//	none: no entry in debts
//	  → owed        take admits units on the state
//	owed: an entry without an attempt; take adds units
//	  → recording   begin
//	  → none        expire finds that no unit counts any more
//	recording: an entry with an attempt; take adds units
//	  → none        finish: the units are recorded or never will be, or a third outcome is unknown
//	  → owed        finish: they are not sent or the outcome is unknown, or take has added units
//
// A reset of the state removes its debt, also while an attempt is in flight.
//
// The local store also has the holds of this process, by their IDs, whether the store inside or
// take has placed them. What take decides about a hold becomes a pendingHold.
type ledger struct {
	local     *memorystore.Store // what the store inside and take have admitted for this process
	instances int64
	began     time.Time
	maxDebts  int
	pending   atomic.Int64 // len(debts), read without the lock
	held      atomic.Int64 // pending holds
	lost      atomic.Int64 // holds that the store inside did not have any more
	untracked atomic.Int64 // admissions of the store inside that have no room in local

	blocks atomic.Int64 // how often a block was set or lifted, by the store inside or locally

	mu             sync.Mutex // makes a local decision and its debt one step
	debts          map[stateID]*debt
	holds          map[stateID]*heldState
	dueHolds       []*pendingHold
	keyBytes       int       // of the keys in debts and holds
	untrackedBlock time.Time // the last end of blocks that have no room in local
}

// debt is what is owed on one state. The ledger's mu guards it.
type debt struct {
	force   driver.Demand // records the debt; has a copy of the key, and no N
	units   int64         // of a block, when it ends: in µs since began
	attempt *attempt      // nil: owed
	unknown int           // attempts whose outcome is unknown
}

// attempt is a try to record a debt. Its fields do not change, except for err.
type attempt struct {
	debt  *debt
	units int64         // owed when it began
	force driver.Demand // N is what still counts of them, which may be 0
	done  chan struct{}
	err   error // after done: why the debt is not recorded
}

// outcome is what came of an attempt.
type outcome uint8

const (
	notSent outcome = iota
	unknown         // sent, but not answered
	settled         // the units are recorded or have expired, or the store will never record them
)

// stateID identifies a state.
type stateID struct{ key, limit, algorithm string }

func idOf(d driver.Demand) stateID {
	return stateID{d.Key, d.Algorithm.Limit().Name, d.Algorithm.Name()}
}

const (
	// maxUnknown is the number of attempts with an unknown outcome after which a debt is given up.
	// If several of them were recorded, the store refuses too much; if none was, it admits too
	// much.
	maxUnknown = 3
	// bytesPerKey times maxDebts bounds the bytes of all keys.
	bytesPerKey = longkey.Max
	// expireBatch is the most debts, and the most holds, that expire checks under the lock.
	expireBatch = 4096
)

var (
	errNotLocal = errors.New("only the store can reset, or settle and renew what is not held here")
	// errPendingHold is why the store inside does not decide about a pending hold.
	errPendingHold = fmt.Errorf("%w: the store does not know yet what was decided locally",
		driver.ErrUnavailable)
	// errTold means that the hold is no longer pending, so the store inside decides after all.
	errTold = errors.New("the store has been told of the hold")

	errOverShare = fmt.Errorf("%w: more units than this process's share", driver.ErrCapacity)
	errNoRoom    = fmt.Errorf("%w: too many keys", driver.ErrCapacity)
)

func newLedger(local *memorystore.Store, instances, maxDebts int) *ledger {
	return &ledger{
		local: local, instances: int64(instances), began: time.Now(), maxDebts: maxDebts,
		debts: make(map[stateID]*debt), holds: make(map[stateID]*heldState),
	}
}

// askLocal calls the local store. It fails if that is closed or has no room.
func (l *ledger) askLocal(d driver.Demand) (driver.Result, error) {
	return l.local.Take(context.Background(), d)
}

// take decides ds locally. What it admits becomes debts and pending holds. cause is why the store
// inside did not decide. If that is errPendingHold, and none of ds has one, the error is errTold.
func (l *ledger) take(ds []driver.Demand, out []driver.Result, cause error) error {
	scaled := make([]driver.Demand, len(ds))
	for i, d := range ds {
		takes := d.Op <= driver.OpPeek || d.Op == driver.OpHold
		switch { // beyond that, the local store is full in any case
		case d.Op == driver.OpSettle, d.Least > 0 && !isBlock(d.Algorithm):
			d.N = min(d.N, driver.MaxUnits/l.instances)
		case d.Least > 0: // a block admits all of N or none, and is not scaled as the others are
			d.N, d.Least = min(d.N, d.Algorithm.Limit().Max), 0
		}
		switch {
		case d.Op == driver.OpReset:
			return errNotLocal
		case !l.scale(&d) || takes && d.LeastUnits() > d.Algorithm.Limit().Max:
			return errOverShare
		}
		scaled[i] = d
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	pending := func(d driver.Demand) bool { return l.holdLocked(d) != nil }
	if errors.Is(cause, errPendingHold) && !slices.ContainsFunc(ds, pending) {
		return errTold
	}
	if !l.hasRoomLocked(ds) || slices.ContainsFunc(ds, l.mayBeBlockedLocked) {
		return errNoRoom
	}
	known, ok := l.knownUnitsLocked(ds)
	if !ok {
		return errNotLocal
	}
	if err := l.local.TakeAll(context.Background(), scaled, out); err != nil {
		return err
	}
	admitted, part := true, driver.MaxUnits
	for i := range out {
		out[i] = l.unscale(ds[i], out[i])
		admitted = admitted && out[i].Allowed
		if ds[i].Least > 0 {
			part = min(part, out[i].Units)
		}
	}
	unknown := errors.Is(cause, driver.ErrOutcomeUnknown)
	for i, d := range ds {
		if d.Least > 0 && isBlock(d.Algorithm) {
			out[i].Units = part
		}
		least := d.Least
		d = granted(d, out[i])
		switch {
		case admitted && isHold(d):
			d.Least = least // the store may hold another part
			l.tellLocked(d, known[i], unknown)
		case unknown && isHold(d) && known[i] == 0: // refused here, but the store may hold it
			d.Op, d.N, d.HoldTimeout = driver.OpSettle, 0, 0
			l.tellLocked(d, 1, unknown)
		case admitted && writes(d):
			l.oweLocked(d)
		}
	}
	return nil
}

// track tracks what the store inside has decided, so that it counts in local decisions. admitted
// and seen are as in trackBlock.
func (l *ledger) track(d driver.Demand, res driver.Result, admitted bool, seen int64) {
	d = granted(d, res)
	switch {
	case isBlock(d.Algorithm):
		l.trackBlock(d, res, admitted, seen)
		return
	case admitted && isHold(d):
		l.trackHold(d, res)
		return
	case admitted && d.Op == driver.OpReset:
		l.reset(d)
		return
	case !admitted || !writes(d):
		return
	}
	d.Op = driver.OpForce
	if !l.scale(&d) {
		l.untracked.Add(1)
	} else if _, err := l.askLocal(d); err != nil {
		l.untracked.Add(1)
	}
}

// reset removes what is known of d's state.
func (l *ledger) reset(d driver.Demand) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetLocked(d)
}

// forgetLocked is reset.
func (l *ledger) forgetLocked(d driver.Demand) {
	d.Op, d.N, d.At = driver.OpReset, 0, 0
	_, _ = l.askLocal(d) // it fails only when closed
	if o := l.debts[idOf(d)]; o != nil {
		l.reduceLocked(o, o.units)
	}
	l.forgetHolds(idOf(d))
}

// begin returns the attempt to record the debt on d's state, or nil if there is no debt. The caller
// runs a new attempt, and calls finish.
func (l *ledger) begin(d driver.Demand) (a *attempt, isNew bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.debts[idOf(d)]
	switch {
	case o == nil:
		return nil, false
	case o.attempt != nil:
		return o.attempt, false
	}
	return l.newAttemptLocked(o), true
}

// beginSome returns new attempts to record debts, as many as there are and at most n.
func (l *ledger) beginSome(n int) []*attempt {
	attempts := make([]*attempt, 0, n)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.debts {
		if len(attempts) == n {
			break
		}
		if o.attempt == nil {
			attempts = append(attempts, l.newAttemptLocked(o))
		}
	}
	return attempts
}

// finish ends an attempt. It removes the units from the debt, unless they are to be sent again.
func (l *ledger) finish(a *attempt, result outcome, err error) {
	l.mu.Lock()
	o := a.debt
	if result == unknown {
		o.unknown++
	}
	if result == settled || o.unknown == maxUnknown && !isBlock(o.force.Algorithm) {
		l.reduceLocked(o, a.units)
		o.unknown = 0
	}
	o.attempt, a.err = nil, err
	l.mu.Unlock()
	close(a.done)
}

// expire removes some debts of which no unit counts any more, and some holds that are forgotten.
func (l *ledger) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expireHolds()
	checked := 0
	for _, o := range l.debts {
		if checked++; checked > expireBatch {
			return
		}
		if o.attempt == nil && l.unexpiredLocked(o) == 0 {
			l.reduceLocked(o, o.units)
		}
	}
}

// hasRoomLocked reports whether there is room for the debts and pending holds that ds may become.
// Both their number and the bytes of their keys are bounded: a key is held whole, since the store
// needs it.
func (l *ledger) hasRoomLocked(ds []driver.Demand) bool {
	more, bytes := 0, 0
	for _, d := range ds {
		id := idOf(d)
		switch {
		case isHold(d) && l.holds[id] == nil:
			more++
			bytes += 2 * len(d.Key)
		case writes(d) && l.debts[id] == nil:
			more++
			bytes += len(d.Key)
		case isHold(d) && l.holdLocked(d) == nil:
			more++
		}
	}
	number := len(l.debts) + int(l.held.Load()) + more
	keys := (l.keyBytes + bytes + bytesPerKey - 1) / bytesPerKey
	return more == 0 || number <= l.maxDebts && keys <= l.maxDebts
}

// copyOf returns id with a copy of its key, since the caller's may be a part of something large.
func (l *ledger) copyOf(id stateID) stateID {
	id.key = strings.Clone(id.key)
	l.keyBytes += len(id.key)
	return id
}

// oweLocked adds d's units to the debt on its state.
func (l *ledger) oweLocked(d driver.Demand) {
	o := l.debts[idOf(d)]
	if o == nil {
		id := l.copyOf(idOf(d))
		d.Key, o = id.key, new(debt)
		l.debts[id] = o
		l.pending.Add(1)
	} else {
		d.Key = o.force.Key
	}
	if isBlock(d.Algorithm) {
		l.blocks.Add(1)
		length := min(1000*d.N, d.Algorithm.Limit().Window.Microseconds())
		o.units = max(o.units, l.now()+length)
	} else {
		o.units = min(o.units+d.N, driver.MaxUnits)
	}
	o.force = driver.Demand{Key: d.Key, Algorithm: d.Algorithm, Op: driver.OpForce}
}

// reduceLocked removes units from a debt, and the debt with the last of them. A block whose end is
// later than units, an end too, stays as it is.
func (l *ledger) reduceLocked(o *debt, units int64) {
	if o.units > units && isBlock(o.force.Algorithm) {
		return
	}
	o.units -= units
	id := idOf(o.force)
	if o.units <= 0 && l.debts[id] == o { // a reset may have removed it during an attempt
		delete(l.debts, id)
		l.keyBytes -= len(id.key)
		l.pending.Add(-1)
	}
}

// newAttemptLocked begins an attempt on a debt that has none.
func (l *ledger) newAttemptLocked(o *debt) *attempt {
	a := &attempt{debt: o, units: o.units, force: o.force, done: make(chan struct{})}
	a.force.N = l.unexpiredLocked(o) // before others see the attempt: the algorithm may panic
	o.attempt = a
	return a
}

// unexpiredLocked returns how many units of o are still in the window, according to the local
// store.
func (l *ledger) unexpiredLocked(o *debt) int64 {
	if isBlock(o.force.Algorithm) {
		if _, err := l.askLocal(peekOf(o.force)); err != nil {
			return 0 // the block has ended, and there is no room to peek at its key
		}
		return algorithm.BlockFor(max(0, time.Duration(o.units-l.now())*time.Microsecond))
	}
	recorded, err := l.recorded(o.force)
	if err != nil || recorded == o.force.Algorithm.Limit().Max { // or more: units may be forced
		return o.units
	}
	return min(o.units, (recorded+l.instances-1)/l.instances)
}

// now returns the time since l was made in µs.
func (l *ledger) now() int64 { return time.Since(l.began).Microseconds() }

// scale multiplies d's units by the number of instances. So d is decided on the whole limit as it
// would be on this process's share. It reports false if there are too many units. A block has no
// share.
func (l *ledger) scale(d *driver.Demand) bool {
	if isBlock(d.Algorithm) {
		return true
	}
	if d.N > driver.MaxUnits/l.instances {
		return false
	}
	d.N *= l.instances
	d.Least *= l.instances
	return true
}

// unscale returns the Result of a scaled demand in units of this process's share.
func (l *ledger) unscale(d driver.Demand, res driver.Result) driver.Result {
	if !isBlock(d.Algorithm) {
		res.Limit.Max /= l.instances
		res.Remaining /= l.instances
		if res.Units /= l.instances; res.Units > 0 && d.Op == driver.OpSettle {
			res.Units = d.N
		}
	}
	res.Source = driver.SourceLocal
	return res
}
