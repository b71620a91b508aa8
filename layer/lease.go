package layer

import (
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// An instant is a reading of both clocks of the process, in ns.
type instant struct{ monotonic, wall int64 }

// since returns the time from u to t by the clock that shows more: a monotonic clock can stand
// still while a machine is suspended, and a wall clock can be set back.
func (t instant) since(u instant) time.Duration {
	return time.Duration(max(t.monotonic-u.monotonic, t.wall-u.wall))
}

func wholeMicros(d time.Duration) time.Duration { return d.Truncate(time.Microsecond) }

// A lease is units that the store inside has recorded ahead of their use.
type lease struct {
	serial int64 // differs from that of all other leases of the state
	units  int64
	asked  instant       // before the store was asked
	lasts  time.Duration // from asked
}

// leaseLasts returns how long units can be used that the store was asked for with this lead, and
// that it gave with this ResetAfter. Clocks of processes and of the server may differ in rate by a
// tenth, and the store's are in whole microseconds.
func leaseLasts(lead, resetAfter time.Duration) time.Duration {
	return (min(lead, resetAfter) - time.Microsecond) * 4 / 5
}

// A refusal is an answer of the store inside that is repeated for a while.
type refusal struct {
	units      int64 // the fewest that were refused
	asked      instant
	lasts      time.Duration // from asked
	retryAfter time.Duration // of the answer
}

// holds reports whether n units are still refused.
func (r *refusal) holds(now instant, n int64) bool {
	return r.lasts > 0 && n >= r.units && now.since(r.asked) < r.lasts
}

// leaseID identifies leases. They belong to an algorithm with its parameters: one with others has
// leases of its own, also on the same state.
type leaseID struct {
	key       string
	algorithm driver.Ahead
}

// A leaseState is a state that may have leases.
type leaseState struct {
	leaseID
	terms *leaseTerms

	mu      sync.Mutex
	leases  [2]lease // the first is used first
	serial  int64    // of the newest lease
	asked   int64    // units that the store inside is being asked for, ahead of their use, or 0
	aside   int64    // units that are put aside
	epoch   int64    // changes when leases are dropped, so that an answer on its way is too
	settles int64    // holds that have ended: what was refused before may fit now
	stopped int      // nothing is taken ahead: a reset is under way, or s is removed
	refill  int64    // with so many units left, more are taken
	refusal refusal
	usage   usage

	touched    int64         // last demand, by the monotonic clock
	newest     int64         // the last answered call of the store inside, when it began
	answered   instant       // when it ended
	remaining  int64         // in it
	resetAfter time.Duration // in it
	roundTrip  time.Duration // of the calls of the store inside, a moving average
}

// A leaseCall is a call of the store inside about a state that may have leases: a demand, or units
// that are taken ahead, or both.
type leaseCall struct {
	state *leaseState
	op    driver.Op
	units int64 // of the demand
	ahead int64 // to be taken ahead of their use
	asked instant

	epoch, settles int64 // of the state, when it began
}

// An answer is what is decided about a demand without the store inside.
type answer uint8

const (
	askStore answer = iota // nothing
	admits
	refuses
)

// decideLocked returns whether n units are in leases or refused, and sets res as a peek does.
func (s *leaseState) decideLocked(now instant, n int64, res *driver.Result) answer {
	s.touched = now.monotonic
	s.expireLocked(now)
	held := s.leases[0].units + s.leases[1].units
	switch {
	case held >= n:
		*res = driver.Result{Allowed: true, Source: driver.SourceLease, Limit: s.terms.limit,
			Remaining:  min(s.remaining+held, s.terms.limit.Max),
			ResetAfter: max(0, s.resetAfter-wholeMicros(now.since(s.answered)))}
		return admits
	case s.refusal.holds(now, n):
		retryAfter := max(s.refusal.retryAfter, s.refusal.lasts) -
			wholeMicros(now.since(s.refusal.asked))
		*res = driver.Result{Source: driver.SourceLease, Limit: s.terms.limit, Remaining: held,
			RetryAfter: retryAfter,
			ResetAfter: max(s.resetAfter-wholeMicros(now.since(s.answered)), retryAfter)}
		return refuses
	}
	return askStore
}

// expireLocked drops leases that have ended or are used up. The units of one that is used up may
// be put back.
func (s *leaseState) expireLocked(now instant) {
	for i := range s.leases {
		l := &s.leases[i]
		ended := now.since(l.asked) >= l.lasts
		if l.serial != 0 && (ended || l.units == 0 && s.aside == 0) {
			s.usage.lose(now, l.asked.monotonic+int64(l.lasts), l.units)
			s.terms.lost.Add(l.units)
			*l = lease{}
		}
	}
	if s.leases[0].serial == 0 {
		s.leases[0], s.leases[1] = s.leases[1], lease{}
	}
}

// spendLocked takes n units out of the leases, which have them, and returns how many came from
// each.
func (s *leaseState) spendLocked(n int64) (from [2]lease) {
	for i := range s.leases {
		from[i] = s.leases[i]
		from[i].units = min(n, s.leases[i].units)
		s.leases[i].units -= from[i].units
		n -= from[i].units
	}
	return from
}

// take decides n units of a take or a peek. With askStore the caller makes the call, and otherwise
// in the background if it takes units ahead.
func (s *leaseState) take(
	clock func() instant, d *driver.Demand, res *driver.Result,
) (answer, leaseCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock() // the decision: units are used now
	said := s.decideLocked(now, d.N, res)
	switch {
	case d.Op != driver.OpTake:
		return said, s.callLocked(now, d.Op, d.N, 0)
	case said == admits:
		s.spendLocked(d.N)
		s.usage.admit(now, d.N)
		res.Units = d.N
		res.Remaining -= d.N
		return said, s.moreLocked(now)
	case said == refuses:
		return said, leaseCall{}
	}
	var chunk int64
	if d.N <= s.terms.limit.Max/2 { // units that come back in a lead are not free
		chunk = s.chunkLocked(now)
	}
	return said, s.callLocked(now, driver.OpTake, d.N, chunk)
}

// call begins a call for d that takes nothing ahead.
func (s *leaseState) call(clock func() instant, d *driver.Demand) leaseCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.callLocked(clock(), d.Op, d.N, 0)
}

func (s *leaseState) callLocked(now instant, op driver.Op, n, chunk int64) leaseCall {
	s.asked += chunk
	return leaseCall{s, op, n, chunk, now, s.epoch, s.settles}
}

// demand returns what the store inside is asked: the units of the demand if no more are free.
func (c *leaseCall) demand() driver.Demand {
	d := driver.Demand{Key: c.state.key, Algorithm: c.state.algorithm, Op: c.op, N: c.units}
	if c.ahead > 0 {
		d.Algorithm, d.N, d.Least = c.state.terms.ahead, c.units+c.ahead, max(c.units, 1)
	}
	return d
}

// end learns from the outcome of c, and makes of res, which is that of demand, what the caller
// gets. It returns how many units were taken ahead.
func (c *leaseCall) end(clock func() instant, res *driver.Result, err error) (taken int64) {
	s := c.state
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock()
	s.asked -= c.ahead
	if err != nil {
		if errors.Is(err, driver.ErrOutcomeUnknown) {
			s.loseLocked(now, c.ahead)
			return c.ahead
		}
		return 0
	}
	if c.op == driver.OpTake && res.Units > 0 {
		s.usage.admit(now, c.units)
		taken = res.Units - c.units
		res.Units = c.units
	}
	if res.Source != driver.SourceStore { // units of a share, or of no limit, are nobody's later
		s.loseLocked(now, taken)
		return taken
	}
	s.roundTrip += (now.since(c.asked) - s.roundTrip) / 4
	if c.asked.monotonic > s.newest {
		s.newest, s.answered = c.asked.monotonic, now
		s.remaining, s.resetAfter = res.Remaining, res.ResetAfter
	}
	res.Remaining += taken
	switch {
	case !res.Allowed:
		if c.epoch == s.epoch && c.settles == s.settles {
			s.refuseLocked(now, c, res)
		}
	case c.ahead > 0:
		s.refusal = refusal{}
		s.serial++
		l := lease{s.serial, taken, c.asked, leaseLasts(s.terms.lead, res.ResetAfter)}
		free := &s.leases[0]
		if free.serial != 0 {
			free = &s.leases[1]
		}
		if c.epoch != s.epoch || now.since(l.asked) >= l.lasts {
			s.loseLocked(now, taken)
		} else {
			*free = l
		}
		s.refill = 1 + int64(2*s.usage.rate(now)*float64(s.roundTrip))
	}
	return taken
}

// refuseLocked remembers what the store inside has refused, for at most a lead since it was asked.
// The time is partly random, so that processes that wait for the same unit do not all ask at once.
func (s *leaseState) refuseLocked(now instant, c *leaseCall, res *driver.Result) {
	if n := max(c.units, 1); !s.refusal.holds(now, n) {
		lead := s.terms.lead
		lasts := min(max(res.RetryAfter, lead/4), lead*7/8) + rand.N(lead/8+1)
		s.refusal = refusal{n, c.asked, wholeMicros(lasts), res.RetryAfter}
	}
}

// putAside is take for a TakeAll: units that it admits are used at this instant if the rest is
// admitted too. Until then they belong to nobody.
func (s *leaseState) putAside(
	clock func() instant, d *driver.Demand, res *driver.Result,
) (said answer, from [2]lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	said = s.decideLocked(clock(), d.N, res)
	if said == admits && d.Op == driver.OpTake {
		from = s.spendLocked(d.N)
		s.aside += d.N
	}
	return said, from
}

// use ends putAside: the units are used. It returns a call that takes more units ahead.
func (s *leaseState) use(clock func() instant, n int64) leaseCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock()
	s.aside -= n
	s.usage.admit(now, n)
	return s.moreLocked(now)
}

func (s *leaseState) more(clock func() instant) leaseCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moreLocked(clock())
}

// moreLocked returns a call that takes more units ahead, if it is time.
func (s *leaseState) moreLocked(now instant) (c leaseCall) {
	if s.leases[0].units+s.leases[1].units <= s.refill && !s.refusal.holds(now, 1) {
		c = s.callLocked(now, driver.OpTake, 0, s.chunkLocked(now))
	}
	return c
}

// putBack ends putAside: the units are not used, and go back into their leases, if those are still
// there. lost means that the caller may count them as used.
func (s *leaseState) putBack(clock func() instant, from [2]lease, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock()
	for _, f := range from {
		s.aside -= f.units
		switch {
		case lost:
			s.loseLocked(now, f.units)
		case f.units == 0:
		case f.serial == s.leases[0].serial:
			s.leases[0].units += f.units
		case f.serial == s.leases[1].serial:
			s.leases[1].units += f.units
		default:
			s.loseLocked(now, f.units)
		}
	}
}

// stop drops all leases, and what calls bring that have begun already. Until restart nothing is
// taken ahead. What is refused to calls that begin meanwhile is not remembered.
func (s *leaseState) stop(clock func() instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopLocked(clock())
}

func (s *leaseState) stopLocked(now instant) {
	s.stopped++
	for i := range s.leases {
		s.loseLocked(now, s.leases[i].units)
		s.leases[i] = lease{}
	}
	s.epoch++
	s.refusal = refusal{}
}

func (s *leaseState) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped--
	s.epoch++
	s.refusal = refusal{}
}

// settled forgets what was refused, since a hold has ended.
func (s *leaseState) settled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settles++
	s.refusal = refusal{}
}

// longestIdle is how long at most a state is kept that nobody asks for, if others need room:
// strangers may choose the keys.
const longestIdle = time.Minute

// retire stops s, which is to be removed, if it is idle.
func (s *leaseState) retire(now instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle := min(s.terms.limit.Window/8, longestIdle)
	if s.asked > 0 || s.aside > 0 || now.monotonic-s.touched < int64(idle) {
		return false
	}
	s.stopLocked(now)
	return true
}

func (s *leaseState) expire(clock func() instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked(clock())
}

func (s *leaseState) loseLocked(now instant, n int64) {
	s.usage.lose(now, now.monotonic, n)
	s.terms.lost.Add(n)
}

// chunkLocked returns how many units to take ahead now, or 0.
//
// At a steady rate a process uses m units in the time that a lease lasts after its answer. If calls
// are independent, the standard deviation is √m, so m − 2√m are seldom too many. What a
// process holds, asks for and has lost is at most a part of what it was admitted in a Window: so
// much can go unused, and so much too much is admitted if clocks are wrong.
func (s *leaseState) chunkLocked(now instant) int64 {
	if s.stopped > 0 || s.asked > 0 || s.leases[1].serial != 0 {
		return 0
	}
	risk := s.leases[0].units + s.aside + s.usage.lost(now)
	credit := int64(s.terms.risk*float64(s.usage.admitted(now))) - risk
	m := s.usage.rate(now) * float64(leaseLasts(s.terms.lead, s.terms.lead)-s.roundTrip)
	if m <= 0 {
		return 0
	}
	// With resets, and limits of others, it may have been admitted more than Max.
	chunk := min(int64(m-2*math.Sqrt(m)), credit, s.terms.limit.Max/2)
	if chunk >= leastChunk {
		return chunk
	}
	return 0
}

// leastChunk is the fewest units that are taken ahead.
const leastChunk = 4
