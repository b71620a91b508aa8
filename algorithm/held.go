package algorithm

import (
	"fmt"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/luaconst"
)

// Held is an algorithm with holds: units that count from when they are reserved until they are
// settled, or until they time out because nobody renews them. Create one with [Budget] or
// [InFlight]. Values are immutable and comparable.
//
// A demand is admitted if it fits beside what is recorded and what is held. RetryAfter is the time
// until it fits if no hold is placed, renewed or settled meanwhile.
//
// Holds run on the store's clock. If that is set back by more than the time-out, they last as long
// as they would have; if by less, up to that much longer. If it is set forward, they time out
// early, and a renewal brings them back.
//
// A key has at most 65,536 holds; a further one is refused until one of them times out or is
// settled, and until then a renewal brings none back. After its time-out a hold is remembered for
// 24 hours, and for as long as fewer than 32,768 others have timed out since.
//
// A decision takes the same time for many holds as for few: those with one deadline have one sum,
// and a hold is found by a hash of its ID. Holds of one length have at most 17 deadlines, and holds
// of all lengths at most 89.
type Held struct {
	inner   driver.Algorithm // nil: calls in flight
	limit   driver.Limit     // of calls in flight, without a Window
	timeout time.Duration
	charges bool // what times out
}

var _ driver.Holder = Held{}

// The instant of a hold is when it was last enlarged, or brought back after its time-out. A
// settlement records what was held with the first record at or after the instant, else now; what
// was used beyond that, now. Debt is what is recorded or held without a check: forced units, what
// was used beyond a hold, what is settled or brought back late, and what a smaller Max leaves.
//
// Counted at the instants, no window of a log has more than Max units and the debt in it. With
// fixed windows and buckets the same is true at the settlements. In a log of 100 in a minute:
//
//	 0.0 s  1 unit is recorded, 99 are held: no more is admitted
//	59.9 s  the 99 are committed, and recorded as of 0.0 s
//	60.0 s  all leave the window: 100 more are admitted
//
// Of the last hold in a window, the check counted each other unit in it: it was held then, or
// recorded no earlier than its own instant. Counted at the settlements, the window that ends at
// 60 s has 199.
//
// TestThroughput of package budgetmodel measures what that costs: calls of one length that begin
// together find no record since their instants, so their units leave the window a call later.

const (
	defaultTimeout  = time.Minute
	shortestTimeout = 16 * time.Millisecond
	longestTimeout  = driver.MaxWindow / 16
)

// Budget returns a with holds: what is reserved counts until it is committed, canceled, or not
// renewed for a minute. Its history is not that of a. A call costs about twice one under a. With a
// log, what is settled counts from when it was reserved, and what is used beyond that from the
// settlement; with other algorithms all counts from the settlement.
func Budget(a driver.Algorithm) Held { return Held{inner: a, timeout: defaultTimeout} }

// InFlight returns the limit of most units held at once, such as calls in flight. A unit is free
// when its reservation is settled, or not renewed for a minute. The limit has no takes, and its
// Window is the time-out.
func InFlight(name string, most int64) Held {
	return Held{limit: driver.Limit{Name: name, Max: most}, timeout: defaultTimeout}
}

// WithTimeout returns h with another time-out, after which a hold that is not renewed is free. The
// holder renews three times in it. ratelimit.New returns an error if d is not whole microseconds
// from 16 ms to 1/16 of [driver.MaxWindow].
func (h Held) WithTimeout(d time.Duration) Held {
	h.timeout = d
	return h
}

// ChargeTimeouts returns the budget that charges what nobody settles: a hold that has timed out
// counts until it would have left the window if it had been recorded at its time-out. With a log or
// a counter it may count for an eighth longer, with fixed windows to the end of the window, and
// with a bucket for a Window, in which the bucket fills, whatever it held. Until then a settlement
// replaces it, a renewal renews it, and it is one of the 65,536 holds of its key. Nothing is
// written at the time-out.
//
// A change of the option is for what is held or renewed from then on. ratelimit.New returns an
// error if h is a limit of calls in flight.
func (h Held) ChargeTimeouts() Held {
	h.charges = true
	return h
}

// ChargesTimeouts reports whether h is what [Held.ChargeTimeouts] returns.
func (h Held) ChargesTimeouts() bool { return h.charges }

// HoldTimeout returns the time-out.
func (h Held) HoldTimeout() time.Duration { return h.timeout }

// InFlight reports whether h was made by [InFlight].
func (h Held) InFlight() bool { return h.inner == nil }

// Inside returns the algorithm inside, or nil for calls in flight.
func (h Held) Inside() driver.Algorithm { return h.inner }

// Name returns the name of the algorithm inside and "h2", such as "log3h2", or "flight2" for calls
// in flight.
func (h Held) Name() string {
	if h.inner == nil {
		return "flight2"
	}
	return h.inner.Name() + "h2"
}

// Limit returns the limit. That of calls in flight has the time-out as its Window.
func (h Held) Limit() driver.Limit {
	if h.inner == nil {
		h.limit.Window = h.timeout
		return h.limit
	}
	return h.inner.Limit()
}

// Ahead returns the budget whose algorithm inside is ahead by d; see [driver.Ahead]. It returns nil
// unless that is a log or a token bucket: with holds, the ResetAfter of a result may be later than
// the end of a fixed window.
func (h Held) Ahead(d time.Duration) driver.Algorithm {
	var inner driver.Algorithm
	switch a := h.inner.(type) {
	case Log:
		inner = a.Ahead(d)
	case Bucket:
		inner = a.Ahead(d)
	}
	if inner == nil {
		return nil
	}
	h.inner = inner
	return h
}

// String returns the algorithm inside and the time-out, such as "api=60/1m0s with holds of 1m0s",
// or "calls=5/1m0s in flight".
func (h Held) String() string {
	if h.inner == nil {
		return h.Limit().String() + " in flight"
	}
	s := fmt.Sprintf("%v with holds of %v", h.inner, h.timeout)
	if h.charges {
		s += ", charged if they time out"
	}
	return s
}

// Validate returns an error if a parameter is out of range.
func (h Held) Validate() error {
	if h.timeout < shortestTimeout || h.timeout > longestTimeout || h.timeout%time.Microsecond > 0 {
		return fmt.Errorf("%w limit: the time-out %v is not whole microseconds from %v to %v",
			driver.ErrInvalid, h.timeout, shortestTimeout, longestTimeout)
	}
	if h.inner == nil && h.charges {
		return fmt.Errorf("%w limit: calls in flight have no charge", driver.ErrInvalid)
	}
	if h.inner == nil {
		return h.Limit().Validate()
	}
	if _, ok := h.inner.(driver.Holder); ok {
		return fmt.Errorf("%w limit: %v has holds already", driver.ErrInvalid, h.Limit())
	}
	return h.inner.Validate()
}

// Step decides d; see [driver.Algorithm].
func (h Held) Step(
	state []byte, now int64, d driver.Demand,
) (next []byte, keep time.Duration, res driver.Result) {
	if d.Op == driver.OpReset {
		limit := h.Limit()
		return nil, reset(state), driver.Result{Allowed: true, Limit: limit, Remaining: limit.Max}
	}
	s := heldStep{held: h, limit: h.Limit(), now: now}
	if !s.holds.decode(state) {
		return nil, -1, driver.Result{}
	}
	s.inner = state[s.holds.size:]
	s.holds.advance(now, h.timeout.Microseconds())
	if !s.holds.find(d.ID) {
		return nil, -1, driver.Result{}
	}
	s.holds.restart(now)
	switch {
	case d.Op == driver.OpSettle:
		res = s.settle(d)
	case d.Op == driver.OpHold && d.N == 0:
		res = s.renew(d)
	case d.Op == driver.OpHold:
		res = s.hold(d)
	default:
		res = s.take(d)
	}
	if s.corrupt {
		return nil, -1, driver.Result{}
	}
	res.Limit, res.Remaining = s.limit, max(0, s.free-s.holds.units)
	if last := s.holds.lastDeadline(); last > 0 {
		res.ResetAfter = max(res.ResetAfter, micros(last-s.holds.clock))
	}
	if !s.write && !s.holds.write {
		return state, 0, res
	}
	next, keep = s.encode(state)
	return next, keep, res
}

// heldStep is one step of a Held.
type heldStep struct {
	held    Held
	limit   driver.Limit
	now     int64
	holds   holds
	inner   []byte // the state of the algorithm inside
	free    int64  // units that it has
	write   bool   // whether inner has changed
	corrupt bool
}

// ask runs the algorithm inside. The result has its numbers, without regard to holds.
func (s *heldStep) ask(op driver.Op, n, at int64) driver.Result {
	s.free = s.limit.Max
	if s.held.inner == nil {
		s.corrupt = len(s.inner) > 0
		return driver.Result{Allowed: true}
	}
	d := driver.Demand{Algorithm: s.held.inner, Op: op, N: n, At: at}
	next, keep, res := d.Step(s.inner, s.now)
	switch {
	case keep < 0:
		s.corrupt = true
	case keep > 0:
		s.inner, s.write = next, true
		s.holds.innerEnds = s.now + keep.Microseconds()
	}
	s.free = res.Remaining
	return res
}

// take decides a take, a peek or a force. A peek with an ID is that of a hold.
func (s *heldStep) take(d driver.Demand) driver.Result {
	if d.Op == driver.OpForce || s.holds.units == 0 && d.ID == 0 {
		return s.ask(d.Op, d.N, d.At)
	}
	res := s.fits(d)
	if d.Op == driver.OpTake && res.Allowed {
		return s.ask(driver.OpTake, d.N, 0)
	}
	return res
}

// fits returns what a peek for d.N units returns, in place of what d.ID holds.
func (s *heldStep) fits(d driver.Demand) driver.Result {
	own := s.holds.own
	if d.ID != 0 && own.units >= d.N && s.holds.isOpen(own) {
		return s.peek()
	}
	others, full := s.holds.units, d.ID != 0 && s.holds.open >= maxOpenHolds
	if s.holds.isOpen(own) {
		others, full = others-own.units, false
	}
	res := s.ask(driver.OpPeek, d.N, 0)
	if full || d.N+others > s.free {
		alone := res.RetryAfter.Microseconds()
		res.Allowed, res.RetryAfter = false, micros(s.retry(d.N, others, full, alone))
	}
	return res
}

// retry returns the least time after which n units fit beside what others hold then. bound is the
// time until the algorithm inside has room for n alone. full means that the key has as many holds
// as it may: one has to time out first.
//
// From a deadline on, the time is that until the algorithm inside has room for n and what is still
// held, or the deadline if that is later. The later the deadline, the shorter the algorithm's time.
// So bound, which mostly decides, is a lower bound; else the first deadline that is late enough is
// found by bisection.
func (s *heldStep) retry(n, others int64, full bool, bound int64) int64 {
	least := int64(0)
	if len(s.holds.sums) > 0 {
		least = s.holds.lastDeadline() - s.holds.clock
	}
	if bound >= least {
		return bound
	}
	type deadline struct{ wait, need int64 }
	var array [96]deadline // states that steps wrote have fewer
	list := array[:0]
	if !full && n+others <= s.limit.Max {
		list = append(list, deadline{0, n + others})
	}
	for _, sum := range s.holds.sums {
		wait := sum.deadline - s.holds.clock
		if wait >= least {
			break
		}
		others -= sum.units
		if s.holds.own.deadline == sum.deadline {
			others += s.holds.own.units
		}
		if n+others <= s.free {
			least = wait
			break
		}
		if n+others > s.limit.Max {
			continue
		}
		if wait < bound {
			list = array[:0] // of the deadlines before bound, only the last can be the best
		}
		list = append(list, deadline{wait, n + others})
	}
	i := len(list) - 1
	if bound > 0 {
		i = 0
	}
	for len(list) > 0 && !s.corrupt {
		wait := list[i].wait
		later := s.ask(driver.OpPeek, list[i].need, 0).RetryAfter.Microseconds()
		if later <= wait {
			least, list = wait, list[:i]
			for len(list) > 1 && list[1].wait < later {
				list = list[1:]
			}
		} else {
			least, list = min(least, later), list[i+1:]
			for len(list) > 0 && list[len(list)-1].wait >= least {
				list = list[:len(list)-1]
			}
		}
		i = (len(list) - 1) / 2
	}
	return least
}

// hold decides an OpHold of some units.
func (s *heldStep) hold(d driver.Demand) driver.Result {
	res := s.fits(d)
	if !res.Allowed || s.corrupt {
		return res
	}
	own := s.holds.own
	if !s.holds.isOpen(own) || own.units < d.N {
		own = hold{id: d.ID, units: d.N, instant: s.instant()}
	}
	return s.place(d, own, res)
}

// renew decides an OpHold of 0 units.
func (s *heldStep) renew(d driver.Demand) driver.Result {
	res := s.peek()
	own := s.holds.own
	if own.id == 0 || s.corrupt {
		return res
	}
	if !s.holds.isOpen(own) {
		if s.holds.units+own.units > maxHeldUnits || s.holds.open >= maxOpenHolds {
			return res
		}
		own.instant = s.instant()
	}
	return s.place(d, own, res)
}

// peek returns the numbers of a decision that is allowed in any case.
func (s *heldStep) peek() driver.Result {
	return driver.Result{Allowed: true, ResetAfter: s.ask(driver.OpPeek, 1, 0).ResetAfter}
}

// place makes own the hold of d.ID.
func (s *heldStep) place(d driver.Demand, own hold, res driver.Result) driver.Result {
	length := d.HoldTimeout
	if length == 0 {
		length = s.held.timeout
	}
	before := int64(0)
	if s.holds.isOpen(s.holds.own) {
		before = s.holds.own.deadline
	}
	s.holds.remove()
	own.deadline = max(before, s.until(length.Microseconds()))
	s.holds.put(own)
	res.Units = own.units
	return res
}

// until returns when a hold ends to count that is placed now for a number of microseconds. ask has
// been called, and is not called again.
func (s *heldStep) until(length int64) int64 {
	unit, charge := s.held.rounding(length)
	if charge != noCharge {
		_, _, res := driver.Demand{Algorithm: s.held.inner, Op: driver.OpForce, N: s.limit.Max}.
			Step(nil, s.now+length)
		length += res.ResetAfter.Microseconds()
	}
	if charge == exactCharge && len(s.holds.sums) < mostExact {
		unit = 1
	}
	return (s.holds.now + length + unit - 1) / unit * unit
}

// How what has timed out is charged.
const (
	noCharge = iota
	roundedCharge
	exactCharge // to the end of a window: many holds have one
)

// mostExact bounds the sums with exact ends: those of one window are several if the clock is set
// back.
const mostExact = 64

// rounding returns the number to whose multiples the ends of holds of a length are rounded up, so
// that there are few of them, and how they are charged.
func (h Held) rounding(length int64) (unit int64, charge int) {
	if !h.charges {
		return roundedTo(length), noCharge
	}
	window := h.inner.Limit().Window.Microseconds()
	charge = roundedCharge
	if _, ok := h.inner.(Fixed); ok && window >= roundedTo(length) {
		charge = exactCharge
	}
	return roundedTo(length + window), charge
}

// settle decides an OpSettle.
func (s *heldStep) settle(d driver.Demand) driver.Result {
	own := s.holds.own
	if own.id == 0 || d.N == 0 || s.held.inner == nil {
		s.holds.remove()
		return s.peek()
	}
	s.holds.remove()
	if _, ok := s.held.inner.(instanter); !ok {
		own.units = d.N // all count from now
	}
	res := s.ask(driver.OpForce, min(d.N, own.units), own.instant)
	if excess := d.N - own.units; excess > 0 && !s.corrupt {
		res = s.ask(driver.OpForce, excess, 0)
	}
	res.Units = d.N
	return res
}

// An instanter is an algorithm that can record units as of an earlier time.
type instanter interface {
	instant(state []byte, now int64) int64
}

// instant returns the time from which units that are held now count when they are settled.
func (s *heldStep) instant() int64 {
	if a, ok := s.held.inner.(instanter); ok {
		return a.instant(s.inner, s.now)
	}
	return s.now
}

// encode returns the new state, in the array of state if that has room, and how long to keep it.
func (s *heldStep) encode(state []byte) (next []byte, keep time.Duration) {
	if s.write {
		before := state[s.holds.size:cap(state)]
		if end := len(s.inner); end > 0 && len(before) >= end && &before[0] == &s.inner[0] {
			state = state[:s.holds.size+end] // written in place
		} else {
			state = append(state[:s.holds.size], s.inner...)
		}
	}
	ends := s.now + 1
	if len(s.inner) > 0 {
		ends = s.holds.innerEnds
	} else {
		s.holds.innerEnds = 0
	}
	next = s.holds.encode(state)
	if !s.holds.empty() {
		ends = max(ends, s.now+s.holds.ends()-s.holds.clock)
	} else if len(s.inner) == 0 {
		return nil, time.Microsecond
	}
	return next, micros(max(1, ends-s.now))
}

var (
	heldSource   = luaconst.Source(luaFiles, "held.lua")
	flightSource = "local inner\n" + heldSource
	heldTexts    sync.Map // of heldText by the name of the script inside
)

// heldText is heldSource around an inner source.
type heldText struct{ inner, source string }

// Script returns the step in Lua, which is that of the algorithm inside with holds around it. Its
// args are those of held.lua.
func (h Held) Script() driver.Script {
	script := driver.Script{Name: h.Name(), Args: heldArgs, Holds: true}
	if h.inner == nil {
		script.Source, script.HoldsOnly = flightSource, true
		return script
	}
	inner := h.inner.Script()
	if inner.Source == "" {
		return driver.Script{}
	}
	script.Name = inner.Name + "h2"
	if text, ok := heldTexts.Load(inner.Name); ok && text.(heldText).inner == inner.Source {
		script.Source = text.(heldText).source
		return script
	}
	script.Source = "local inner\ndo\n" + inner.Source + "\ninner = step\nend\n" + heldSource
	heldTexts.Store(inner.Name, heldText{inner.Source, script.Source})
	return script
}

func heldArgs(dst []int64, d driver.Demand) []int64 {
	h := d.Algorithm.(Held)
	hold := d.HoldTimeout
	if hold == 0 {
		hold = h.timeout
	}
	unit, charge := h.rounding(hold.Microseconds())
	dst = append(dst, int64(d.ID>>56), int64(d.ID&(1<<56-1)), hold.Microseconds(), unit,
		h.timeout.Microseconds(), h.Limit().Max, int64(charge))
	if h.inner == nil {
		return dst
	}
	d.Algorithm = h.inner
	return h.inner.Script().Args(dst, d)
}

// micros returns a number of microseconds as a duration.
func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
