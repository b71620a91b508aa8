package layer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// LeasedOptions are the options of [NewLeased].
type LeasedOptions struct {
	// Loss returns the part of a limit that may go unused, from 0 to 0.1: the more, the fewer calls
	// of the store. Larger numbers count as 0.1. With 0, or if the Max of the limit is less than
	// 16/Loss, the limit has no leases. What it returns for a limit may be remembered until
	// [Leased.Forget]. Nil returns 0.02.
	Loss func(driver.Limit) float64
	// Lead is the longest time from taking a unit to its use, and at most Loss/2 of the Window.
	// A longer one needs fewer calls. 0 is a second.
	Lead time.Duration
	// MaxKeys bounds the states with leases, of half a kilobyte and their key. When there are more,
	// one makes room that was not asked for during an eighth of its Window, or a minute if that is
	// shorter; else the key has no leases. 0 is 1,000.
	MaxKeys int
}

// Leased is a store that decides hot keys from leases: units that it takes from the store inside
// ahead of their use. Everything else the store inside decides. Create one with [NewLeased]. It is
// safe for concurrent use.
//
// No window has more than Max units, whichever processes use the layer, as long as all clocks run
// within a tenth of their rate, and none is set forward or stands still unnoticed, nor the store's
// back under a bucket or a fixed window. Otherwise a process admits at most Loss of its own use too
// much each time. A demand is refused only if all but about Loss of Max was used shortly before:
// within a Window and two leads. Units count up to a lead longer, so bursts a Window apart are
// refused that long.
//
// An algorithm that is a [driver.Ahead] can have leases, which decide takes and peeks, with
// [driver.SourceLease]. The store inside decides a Force and what has an ID or a Least. A TakeAll
// asks it only for what has no lease; units of leases count as used when the call begins.
//
// A Reset drops the leases of this process. Resets and lower limits reach those of others within a
// lead. Units that a killed process had ahead, or that were on their way at a Reset or in a lost
// answer, stay charged until they leave the window.
//
// At rest the layer has no goroutine and makes no call. Keys of more than 1,024 bytes have no
// leases. Put a [Breaker] inside and a [Degraded] outside.
type Leased struct {
	store      driver.Store
	loss       func(driver.Limit) float64
	lead       time.Duration
	maxKeys    int
	clock      func() instant
	background *background

	seed maphash.Seed
	heat [1 << 13]atomic.Uint64 // takes of keys without leases, by their hash; see isHot
	full atomic.Int64           // until then, by the monotonic clock, no state is added

	mu     sync.RWMutex
	closed bool
	resets int // calls of OpReset under way: no state is added
	forgot int // calls of Forget
	states map[leaseID]*leaseState
	terms  map[driver.Ahead]*leaseTerms // nil: none

	admitted, refused, calls, taken, lost atomic.Int64
}

var _ driver.Store = (*Leased)(nil)

// LeasedStats are the statistics of a [Leased] store. Keys is current; the others are counts since
// the store was made.
type LeasedStats struct {
	Keys     int64 // states that may have leases
	Admitted int64 // takes that leases have admitted
	Refused  int64 // takes refused because the store inside has refused one as large before
	Calls    int64 // calls of the store inside, for each state that may have leases
	Taken    int64 // units taken ahead of their use
	Lost     int64 // of those, what was never used
}

const (
	defaultLoss     = 0.02
	defaultLead     = time.Second
	defaultMaxKeys  = 1000
	longestLeaseKey = 1024
	// hotTakes is the number of takes in a lead from which on a key is hot.
	hotTakes = 8
	// fullPause is for how long no state is added after no other has made room.
	fullPause = 10 * time.Millisecond
	// maxTerms bounds the algorithms that are remembered, for programs that make new ones.
	maxTerms = 4096
)

// errUnanswered is the error of a call in which the store inside has panicked.
var errUnanswered = fmt.Errorf("%w: panic", driver.ErrOutcomeUnknown)

// NewLeased returns a store that decides hot keys of store from leases; nil options are the zero
// LeasedOptions. Close it when it is no longer needed. An error wraps [driver.ErrInvalid].
func NewLeased(store driver.Store, opts *LeasedOptions) (*Leased, error) {
	if opts == nil {
		opts = &LeasedOptions{}
	}
	if store == nil {
		return nil, fmt.Errorf("%w options: no store", driver.ErrInvalid)
	}
	if opts.Lead < 0 || opts.MaxKeys < 0 {
		return nil, fmt.Errorf("%w options: Lead %v or MaxKeys %d is negative",
			driver.ErrInvalid, opts.Lead, opts.MaxKeys)
	}
	s := &Leased{
		store: store, loss: opts.Loss, background: newBackground(), seed: maphash.MakeSeed(),
		lead:    cmp.Or(opts.Lead, defaultLead),
		maxKeys: cmp.Or(opts.MaxKeys, defaultMaxKeys),
		states:  make(map[leaseID]*leaseState),
		terms:   make(map[driver.Ahead]*leaseTerms),
	}
	if s.loss == nil {
		s.loss = func(driver.Limit) float64 { return defaultLoss }
	}
	start := time.Now()
	s.clock = func() instant {
		now := time.Now()
		return instant{int64(now.Sub(start)), now.UnixNano()}
	}
	return s, nil
}

// Take decides one demand. Errors are those of the store inside and of [driver.CheckTake].
func (s *Leased) Take(ctx context.Context, d driver.Demand) (res driver.Result, err error) {
	switch d.Op {
	case driver.OpReset:
		if err := driver.CheckTake(ctx, d); err != nil {
			return driver.Result{}, err
		}
		defer s.reset(d)()
	case driver.OpSettle:
		defer s.settled(d)
	}
	state := s.find(&d)
	if state == nil {
		return s.store.Take(ctx, d)
	}
	if err := driver.CheckTake(ctx, d); err != nil {
		return driver.Result{}, err
	}
	said, call := state.take(s.clock, &d, &res)
	if said == askStore {
		if call.ahead > 0 {
			d = call.demand()
		}
		return s.ask(ctx, d, call)
	}
	s.fill(call)
	s.count(d.Op, said)
	return res, nil
}

// count counts a decision from leases.
func (s *Leased) count(op driver.Op, said answer) {
	switch {
	case op != driver.OpTake:
	case said == admits:
		s.admitted.Add(1)
	case said == refuses:
		s.refused.Add(1)
	}
}

// ask makes the call, with d.
func (s *Leased) ask(
	ctx context.Context, d driver.Demand, call leaseCall,
) (res driver.Result, err error) {
	err = errUnanswered // unless the store returns
	defer func() { s.end(call, &res, err) }()
	res, err = s.store.Take(ctx, d)
	return res, err
}

func (s *Leased) end(call leaseCall, res *driver.Result, err error) {
	s.calls.Add(1)
	s.taken.Add(call.end(s.clock, res, err))
}

// fill makes the call in the background, if it takes units ahead.
func (s *Leased) fill(call leaseCall) {
	if call.ahead > 0 {
		s.start(call)
	}
}

// start is apart from fill, so that only a call allocates.
func (s *Leased) start(call leaseCall) {
	run := func() {
		defer func() { _ = recover() }() // there is no caller whom a panic of the store could reach
		_, _ = s.ask(s.background.ctx, call.demand(), call)
	}
	if !s.background.start(run) {
		call.end(s.clock, &driver.Result{}, driver.ErrClosed)
	}
}

// find returns the state that may have leases for d, or nil. It adds one if the key is hot.
func (s *Leased) find(d *driver.Demand) *leaseState {
	if d.Op > driver.OpPeek || d.Least != 0 || d.ID != 0 {
		return nil
	}
	a, ok := d.Algorithm.(driver.Ahead)
	if !ok {
		return nil
	}
	id := leaseID{d.Key, a}
	s.mu.RLock()
	state := s.states[id]
	terms, known := (*leaseTerms)(nil), false
	if state == nil && d.Op == driver.OpTake {
		terms, known = s.terms[a]
	}
	s.mu.RUnlock()
	switch {
	case state != nil, d.Op != driver.OpTake:
		return state
	case !known:
		terms = s.learn(a)
	}
	if terms == nil || len(d.Key) > longestLeaseKey || d.Key == "" {
		return nil
	}
	now := s.clock()
	if !s.isHot(d.Key, now, terms.lead) {
		return nil
	}
	return s.add(id, terms, now)
}

// learn returns the terms of a, or nil.
func (s *Leased) learn(a driver.Ahead) *leaseTerms {
	s.mu.RLock()
	forgot := s.forgot
	s.mu.RUnlock()
	terms := termsOf(a, s.loss(a.Limit()), s.lead, &s.lost)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case forgot != s.forgot: // what Loss has returned may be old
		return nil
	case len(s.terms) >= maxTerms:
		clear(s.terms)
	}
	s.terms[a] = terms
	return terms
}

// isHot counts a take of key, and reports whether there were hotTakes more in this lead than of the
// other keys with the same counter. The key that holds the counter counts up and others count down,
// so that many cold keys are not a hot one. Which keys share a counter changes with each lead. A
// counter has the lead in its upper half, then bits of the key's hash and the number. A count that
// is lost in a race is no harm.
func (s *Leased) isHot(key string, now instant, lead time.Duration) bool {
	hash, period := maphash.String(s.seed, key), uint64(now.monotonic/int64(lead))
	mixed := (hash ^ period*0x9e3779b97f4a7c15 ^ uint64(lead)) * 0xbf58476d1ce4e5b9
	counter := &s.heat[mixed>>32%uint64(len(s.heat))]
	held, mine := counter.Load(), period<<32|hash>>48<<16
	count := held & (1<<16 - 1)
	switch {
	case held>>16 == mine>>16:
		count = min(count+1, 1<<16-1)
	case held>>32 == mine>>32 && count > 1:
		counter.Store(held - 1)
		return false
	default:
		count = 1
	}
	counter.Store(mine | count)
	return count >= hotTakes
}

// add returns the state with id, which it adds if there is room.
func (s *Leased) add(id leaseID, terms *leaseTerms, now instant) *leaseState {
	if now.monotonic < s.full.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.states[id]; state != nil || s.closed || s.resets > 0 {
		return state
	}
	if len(s.states) >= s.maxKeys && !s.evictLocked(now) {
		s.full.Store(now.monotonic + int64(fullPause)) // else all takes wait for the lock
		return nil
	}
	id.key = strings.Clone(id.key)
	state := &leaseState{
		leaseID: id, terms: terms, touched: now.monotonic, usage: newUsage(terms, now),
	}
	s.states[id] = state
	return state
}

// evictLocked removes a state that is idle. It looks at a few, which Go's map chooses at random.
func (s *Leased) evictLocked(now instant) bool {
	looked := 0
	for id, state := range s.states {
		if state.retire(now) {
			delete(s.states, id)
			return true
		}
		if looked++; looked == 8 {
			break
		}
	}
	return false
}

// TakeAll decides several demands as one. Errors are those of the store inside and of
// [driver.CheckTakeAll].
func (s *Leased) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	if slices.ContainsFunc(ds, resets) {
		if err := driver.CheckTakeAll(ctx, ds, out); err != nil {
			return err
		}
		defer s.reset(ds...)()
	}
	if slices.ContainsFunc(ds, settles) {
		defer s.settled(ds...)
	}
	var room [8]leasePart
	parts, leased := room[:0], false
	for i := range ds {
		state := s.find(&ds[i])
		parts = append(parts, leasePart{state: state})
		leased = leased || state != nil
	}
	if !leased {
		return s.store.TakeAll(ctx, ds, out)
	}
	if err := driver.CheckTakeAll(ctx, ds, out); err != nil {
		return err
	}
	return s.takeParts(ctx, ds, out, parts)
}

// A leasePart is what becomes of a demand of a TakeAll.
type leasePart struct {
	state *leaseState // nil: it cannot have leases
	said  answer
	from  [2]lease // units that are put aside
}

// takeParts decides ds, some of which may have leases: their units are put aside until the store
// inside has decided the rest.
func (s *Leased) takeParts(
	ctx context.Context, ds []driver.Demand, out []driver.Result, parts []leasePart,
) (err error) {
	rest, refused := 0, false
	for i := range parts {
		p := &parts[i]
		if p.state != nil {
			p.said, p.from = p.state.putAside(s.clock, &ds[i], &out[i])
		}
		switch p.said {
		case askStore:
			rest++
		case refuses:
			refused = true
		}
	}
	if refused && rest > 0 { // a call is needed anyway, so the store inside decides exactly
		for i := range parts {
			p := &parts[i]
			p.putBack(s.clock, false)
			p.said = askStore
		}
		rest, refused = len(parts), false
	}
	admitted := !refused
	if rest > 0 {
		err = errUnanswered // unless the store returns
	}
	defer func() {
		for i := range parts {
			p := &parts[i]
			switch {
			case p.said == admits && err == nil && admitted:
				s.use(p, &ds[i], &out[i])
			case p.said == admits:
				p.putBack(s.clock, errors.Is(err, driver.ErrOutcomeUnknown))
			case p.said == refuses:
				s.count(ds[i].Op, refuses)
			}
		}
	}()
	if rest > 0 {
		admitted, err = s.askRest(ctx, ds, out, parts, rest)
	}
	return err
}

// use uses the units that are put aside for d.
func (s *Leased) use(p *leasePart, d *driver.Demand, res *driver.Result) {
	s.count(d.Op, admits)
	if d.Op != driver.OpTake {
		return
	}
	res.Units = d.N
	res.Remaining -= d.N
	s.fill(p.state.use(s.clock, d.N))
}

func (p *leasePart) putBack(clock func() instant, lost bool) {
	if p.said == admits {
		p.state.putBack(clock, p.from, lost)
	}
}

// askRest asks the store inside for the demands that leases say nothing about, and reports whether
// all were admitted.
func (s *Leased) askRest(
	ctx context.Context, ds []driver.Demand, out []driver.Result, parts []leasePart, rest int,
) (admitted bool, err error) {
	demands, results := ds, out
	if rest < len(ds) {
		demands, results = make([]driver.Demand, 0, rest), make([]driver.Result, rest)
		for i := range ds {
			if parts[i].said == askStore {
				demands = append(demands, ds[i])
			}
		}
	}
	var room [8]leaseCall
	calls := room[:0]
	for i := range parts {
		if parts[i].said == askStore {
			var call leaseCall
			if state := parts[i].state; state != nil {
				call = state.call(s.clock, &ds[i])
			}
			calls = append(calls, call)
		}
	}
	err = errUnanswered
	defer func() {
		for i := range calls {
			if state := calls[i].state; state != nil {
				s.end(calls[i], &results[i], err)
				if admitted {
					s.fill(state.more(s.clock))
				}
			}
		}
	}()
	if rest == 1 {
		results[0], err = s.store.Take(ctx, demands[0])
	} else {
		err = s.store.TakeAll(ctx, demands, results)
	}
	if err != nil {
		return false, err
	}
	admitted = true
	at := 0
	for i := range parts {
		if parts[i].said == askStore {
			out[i] = results[at]
			admitted = admitted && results[at].Allowed
			at++
		}
	}
	return admitted, nil
}

func resets(d driver.Demand) bool { return d.Op == driver.OpReset }

func settles(d driver.Demand) bool { return d.Op == driver.OpSettle }

// settled forgets what was refused where ds have settled holds, so that a call that waits for the
// units gets them.
func (s *Leased) settled(ds ...driver.Demand) {
	for _, d := range ds {
		a, ok := d.Algorithm.(driver.Ahead)
		if !ok || !settles(d) {
			continue
		}
		s.mu.RLock()
		state := s.states[leaseID{d.Key, a}]
		s.mu.RUnlock()
		if state != nil {
			state.settled()
		}
	}
}

// reset drops the leases of the states that ds reset, which have none until the caller calls ended:
// the store inside may record units ahead, and then delete them.
func (s *Leased) reset(ds ...driver.Demand) (ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resets++
	var states []*leaseState
	for id, state := range s.states {
		if slices.ContainsFunc(ds, func(d driver.Demand) bool {
			return resets(d) && d.Key == id.key &&
				d.Algorithm.Name() == id.algorithm.Name() &&
				d.Algorithm.Limit().Name == id.algorithm.Limit().Name
		}) {
			state.stop(s.clock)
			states = append(states, state)
		}
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.resets--
		for _, state := range states {
			state.restart()
		}
	}
}

// Stats returns what s has done until now.
func (s *Leased) Stats() LeasedStats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, state := range s.states {
		state.expire(s.clock)
	}
	return LeasedStats{
		Keys: int64(len(s.states)), Admitted: s.admitted.Load(), Refused: s.refused.Load(),
		Calls: s.calls.Load(), Taken: s.taken.Load(), Lost: s.lost.Load(),
	}
}

// Forget drops all leases, and makes s ask Loss again. Call it after a change of what Loss returns.
func (s *Leased) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked()
	clear(s.terms)
	s.forgot++
}

func (s *Leased) forgetLocked() {
	for _, state := range s.states {
		state.stop(s.clock)
	}
	clear(s.states)
}

// Close ends the calls in the background and drops all leases. It does not close the store inside,
// which decides everything from then on. Its error is nil.
func (s *Leased) Close() error {
	s.background.stop()
	s.mu.Lock()
	s.closed = true
	s.forgetLocked()
	s.mu.Unlock()
	s.background.wait()
	return nil
}
