package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
)

// Together lets concurrent demands travel in one call: the first goes at once, and those that arrive while calls are under way wait for the next. Nothing
// waits for company. The methods are safe for concurrent use; the fields are set before the first.
type Together struct {
	// Decide sends groups in one call and fills in Results, which are zero, or Err where a group alone could not be decided; of equal Takes those
	// with a Result, which has a Limit, were decided all the same. An error is that of all groups, and
	// wraps [ratelimit.ErrUnavailable] or another error of a [ratelimit.Store]. It opens gate before the first byte may be on its way, and
	// sends nothing if the gate says no. It runs in a goroutine of its own; a panic is passed on to those who wait.
	Decide func(ctx context.Context, gate *Gate, groups []Group) error
	// Late is called when a call has taken longer than Timeout.
	Late func()
	// Shared is what several Together have in common.
	Shared *Shared

	mu       sync.Mutex
	queue    []*passenger
	places   int       // in queue, of those that Shared has
	flights  int       // under way
	deserted int       // that take longer than Timeout
	away     []*flight // both
	watched  bool      // by Shared
}

// Shared bounds several Together as if they were one. Its Timeout is set before the first use.
type Shared struct {
	// Timeout is how long a demand waits, and after which a call no longer counts as under way.
	Timeout time.Duration

	waiting  atomic.Int64 // places in queues, of which at least half are taken
	deserted atomic.Int64 // calls that take longer than Timeout; a Together without any may begin calls whatever the others have

	passengers sync.Pool
	flights    sync.Pool // that are not away

	tick    atomic.Int64 // a sixteenth of Timeout, counted while anybody waits
	mu      sync.Mutex
	watched []*Together // where somebody may wait; of each its mutex comes before this one
	timer   *time.Timer
}

const (
	maxFlights = 2       // calls under way: one that the server works on, and one that comes or goes
	maxBoard   = 512     // passengers of a flight
	maxGroups  = 64      // groups of a call: a server does nothing else meanwhile
	maxQueue   = 1 << 16 // of all with one Shared

	timeoutTicks = 16 // one timer for all is cheaper than one for each
)

// A Group is what is decided together in a call: the demands of one TakeAll, or equal Takes of one key that came one after another.
type Group struct {
	Keys    []string // stored keys of Demands
	Demands []ratelimit.Demand
	Times   int                // how many equal Takes; 1 for other groups
	Results []ratelimit.Result // one for each demand, or for each of the equal Takes
	Err     error

	passengers []*passenger
	place      *place // in the deny cache
}

// passenger is who waits for an answer.
type passenger struct {
	keys    []string
	demands []ratelimit.Demand
	results []ratelimit.Result
	err     error
	panic   any
	state   atomic.Uint32
	trip    *trip // once boarded
	since   int64 // tick
	late    bool  // answered for want of time; somebody may still know it
	answer  chan struct{}

	key    [1]string // for one demand, without an allocation
	demand [1]ratelimit.Demand
	result [1]ratelimit.Result
}

// trip is one call on its way.
type trip struct {
	gate   Gate
	aboard atomic.Int32 // passengers who have not left
}

const (
	waiting = iota
	boarded // may be on the way to the server
	answered
	left
)

// Take decides one demand, whose stored key is key.
func (t *Together) Take(ctx context.Context, key string, d ratelimit.Demand) (ratelimit.Result, error) {
	p := t.passenger()
	p.key[0], p.demand[0] = key, d
	p.keys, p.demands, p.results = p.key[:], p.demand[:], p.result[:]
	if err := t.travel(ctx, p); err != nil {
		return ratelimit.Result{}, err
	}
	res := p.result[0]
	t.dismiss(p)
	return res, nil
}

// TakeAll decides ds as one. It keeps neither slice.
func (t *Together) TakeAll(ctx context.Context, keys []string, ds []ratelimit.Demand, out []ratelimit.Result) error {
	p := t.passenger()
	p.keys, p.demands, p.results = slices.Clone(keys), slices.Clone(ds), make([]ratelimit.Result, len(ds))
	if err := t.travel(ctx, p); err != nil {
		return err
	}
	copy(out, p.results)
	t.dismiss(p)
	return nil
}

func (t *Together) passenger() *passenger {
	if p, ok := t.Shared.passengers.Get().(*passenger); ok {
		return p
	}
	return &passenger{answer: make(chan struct{}, 1)}
}

// dismiss takes back a passenger that nobody else has.
func (t *Together) dismiss(p *passenger) {
	p.keys, p.demands, p.results, p.err, p.trip = nil, nil, nil, nil, nil
	p.key[0], p.demand[0] = "", ratelimit.Demand{}
	p.state.Store(waiting)
	t.Shared.passengers.Put(p)
}

// travel waits for p's answer, or until ctx ends or the time is over.
func (t *Together) travel(ctx context.Context, p *passenger) error {
	t.mu.Lock()
	if t.deserted > 0 && t.Shared.deserted.Load() >= maxDeserted {
		t.mu.Unlock()
		t.dismiss(p)
		return fmt.Errorf("%w: the client has not ended %d calls in time", ratelimit.ErrUnavailable, maxDeserted)
	}
	if !t.room() {
		t.mu.Unlock()
		t.dismiss(p)
		return fmt.Errorf("%w: %d demands wait already", ratelimit.ErrUnavailable, maxQueue)
	}
	p.since = t.Shared.tick.Load()
	t.queue = append(t.queue, p)
	if !t.watched {
		t.watched = true
		t.Shared.watch(t)
	}
	start := t.flights < maxFlights
	if start {
		t.flights++
	}
	t.mu.Unlock()
	if start {
		go t.fly()
	}

	done := ctx.Done()
	if done == nil { // waiting for one channel costs less than for two
		<-p.answer
		return t.arrive(p)
	}
	select {
	case <-p.answer:
		return t.arrive(p)
	case <-done:
	}
	switch p.state.Swap(left) {
	case answered: // both at once: an answer is better than none
		<-p.answer
		return t.arrive(p)
	case boarded:
		if p.trip.leave() {
			return fmt.Errorf("%w: no answer in time: %w", ratelimit.ErrOutcomeUnknown, ctx.Err())
		}
	}
	return fmt.Errorf("%w: not sent in time: %w", ratelimit.ErrUnavailable, ctx.Err())
}

// room makes sure that one more can wait. It takes from Shared twice what it had, so that few have to ask.
func (t *Together) room() bool {
	if len(t.queue) < t.places {
		return true
	}
	more := max(t.places, 1)
	if t.Shared.waiting.Add(int64(more)) > maxQueue {
		t.Shared.waiting.Add(int64(-more))
		return false
	}
	t.places += more
	return true
}

// dequeue takes the first n out of the queue.
func (t *Together) dequeue(n int) {
	t.queue = slices.Delete(t.queue, 0, n)
	t.Shared.waiting.Add(int64(len(t.queue) - t.places))
	t.places = len(t.queue)
}

// leave is for a passenger who does not wait any longer, and tells whether what he asked for may have been sent. Only the last to leave can
// keep a call from being sent.
func (to *trip) leave() (sent bool) {
	if to.aboard.Add(-1) > 0 {
		return true
	}
	sent, _ = to.gate.leave()
	return sent
}

// arrive returns p's error. Without one p is still the caller's.
func (t *Together) arrive(p *passenger) error {
	if p.panic != nil {
		panic(p.panic)
	}
	err := p.err
	if err != nil && !p.late {
		t.dismiss(p)
	}
	return err
}

func (s *Shared) watch(ts ...*Together) {
	s.mu.Lock()
	defer s.mu.Unlock()
	start := len(s.watched) == 0
	s.watched = append(s.watched, ts...)
	switch {
	case !start || len(ts) == 0:
	case s.timer == nil:
		s.timer = time.AfterFunc(s.Timeout/timeoutTicks, s.onTick)
	default:
		s.timer.Reset(s.Timeout / timeoutTicks)
	}
}

func (s *Shared) onTick() {
	s.mu.Lock()
	watched := s.watched
	s.watched = nil
	s.mu.Unlock()
	tick := s.tick.Add(1)
	s.watch(slices.DeleteFunc(watched, func(t *Together) bool { return !t.onTick(tick) })...)
}

// onTick answers those who have waited for Timeout, less a tick at most, and gives up calls that have taken as long. It reports whether there is
// anybody to watch.
func (t *Together) onTick(tick int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	overdue := tick - timeoutTicks
	n := 0
	for n < len(t.queue) && t.queue[n].since <= overdue {
		t.fail(t.queue[n], waiting)
		n++
	}
	if n > 0 {
		t.dequeue(n)
	}
	hopeful := len(t.queue) > 0
	for _, f := range t.away {
		for _, p := range f.passengers {
			if p.since <= overdue {
				t.fail(p, waiting)
				t.fail(p, boarded)
			} else {
				hopeful = true
			}
		}
		if f.since <= overdue && !f.deserted {
			t.desert(f)
		}
		hopeful = hopeful || !f.deserted
	}
	t.watched = hopeful
	return hopeful
}

// fail answers p, who has waited long enough in a state.
func (t *Together) fail(p *passenger, state uint32) {
	if !p.state.CompareAndSwap(state, answered) {
		return
	}
	kind, what := ratelimit.ErrUnavailable, "not sent"
	if state == boarded && p.trip.leave() {
		kind, what = ratelimit.ErrOutcomeUnknown, "no answer"
	}
	p.late = true
	p.err = fmt.Errorf("%w: %s within %v: %w", kind, what, t.Shared.Timeout, context.DeadlineExceeded)
	p.answer <- struct{}{}
}

// fly takes those who wait to the server and back, until nobody waits.
func (t *Together) fly() {
	f, ok := t.Shared.flights.Get().(*flight)
	if !ok {
		f = &flight{last: make(map[string]int), done: make(chan struct{})}
	}
	for {
		t.mu.Lock()
		f.disembark() // who have left
		if f.deserted {
			t.deserted--
			t.Shared.deserted.Add(-1)
			t.land(f)
			t.mu.Unlock()
			return
		}
		n := min(len(t.queue), maxBoard)
		if n == 0 {
			t.flights--
			t.land(f)
			t.mu.Unlock()
			t.Shared.flights.Put(f)
			return
		}
		f.passengers = append(f.passengers, t.queue[:n]...)
		f.since = t.Shared.tick.Load()
		if !f.away {
			f.away = true
			t.away = append(t.away, f)
		}
		t.dequeue(n)
		t.mu.Unlock()

		f.board()
		for groups := f.groups; len(groups) > 0; {
			n := min(len(groups), maxGroups)
			t.decide(f, groups[:n], n == len(groups))
			groups = groups[n:]
		}
		f.clear() // keys are users' data: keep none alive
	}
}

// land strikes f off the list of those away.
func (t *Together) land(f *flight) {
	if f.away {
		i := slices.Index(t.away, f)
		t.away = slices.Delete(t.away, i, i+1)
		f.away = false
	}
}

// flight is one call after the other. Its passengers, as a list, and what follows groups are guarded by the mutex of its Together.
type flight struct {
	passengers []*passenger
	groups     []Group
	last       map[string]int // index of the last group with a key
	since      int64          // tick at which the call began
	away       bool
	deserted   bool
	done       chan struct{} // closed when deserted
}

// disembark forgets the passengers.
func (f *flight) disembark() {
	clear(f.passengers)
	f.passengers = f.passengers[:0]
}

// board makes groups of those who have not left. Demands on one key stay in their order; equal Takes of it that follow each other become one.
func (f *flight) board() {
	for _, p := range f.passengers {
		if p.state.Load() == left {
			continue
		}
		single := len(p.demands) == 1
		if i, ok := f.last[p.keys[0]]; ok && single {
			g := &f.groups[i]
			if d := g.Demands[0]; d.Op == ratelimit.Take && len(g.Demands) == 1 && d == p.demands[0] {
				g.Times++
				g.passengers = append(g.passengers, p)
				continue
			}
		}
		i := len(f.groups)
		f.groups = slices.Grow(f.groups, 1)[:i+1]
		g := &f.groups[i]
		g.Keys, g.Demands, g.Times, g.Err = p.keys, p.demands, 1, nil
		g.passengers = append(g.passengers[:0], p)
		for _, key := range p.keys {
			f.last[key] = i
		}
	}
}

// clear forgets the groups and keeps their arrays.
func (f *flight) clear() {
	for i := range f.groups {
		g := &f.groups[i]
		clear(g.passengers[:cap(g.passengers)])
		*g = Group{passengers: g.passengers[:0], Results: g.Results[:0]}
	}
	f.groups = f.groups[:0]
	clear(f.last)
}

// await takes aboard who has not left by now, and reports whether there is anybody.
func (g *Group) await(to *trip) bool {
	g.passengers = slices.DeleteFunc(g.passengers, func(p *passenger) bool {
		p.trip = to
		return !p.state.CompareAndSwap(waiting, boarded)
	})
	if len(g.Demands) == 1 {
		g.Times = len(g.passengers)
	}
	n := max(g.Times, len(g.Demands))
	g.Results = slices.Grow(g.Results[:0], n)[:n]
	clear(g.Results)
	return len(g.passengers) > 0
}

// decide sends the groups, which are the last of f or not, and gives everyone his answer.
func (t *Together) decide(f *flight, groups []Group, last bool) {
	asked, to := 0, new(trip)
	to.aboard.Store(maxBoard) // nobody is the last until all are aboard
	aboard := 0
	for i := range groups {
		if groups[i].await(to) {
			aboard += len(groups[i].passengers)
			groups[asked], groups[i] = groups[i], groups[asked] // their arrays are used again
			asked++
		}
	}
	if groups = groups[:asked]; asked == 0 {
		return
	}
	if to.aboard.Add(int32(aboard)-maxBoard) == 0 {
		to.gate.leave()
	}
	ctx := until{context.Background(), time.Now().Add(t.Shared.Timeout), f.done}
	panicked, err := t.guarded(ctx, &to.gate, groups)
	t.mu.Lock()
	if last {
		f.disembark()
	} else {
		f.passengers = slices.DeleteFunc(f.passengers, func(p *passenger) bool { return p.trip == to })
		f.since = t.Shared.tick.Load() // the next call begins
	}
	t.mu.Unlock() // from here on none of them is looked at who may be another's
	for i := range groups {
		g := &groups[i]
		for j, p := range g.passengers {
			if !p.state.CompareAndSwap(boarded, answered) {
				continue
			}
			switch {
			case panicked != nil:
				p.panic = panicked
			case err != nil:
				p.err = err
			case g.Err != nil && (len(g.Demands) > 1 || g.Results[j].Limit == 0):
				p.err = g.Err
			case len(g.Demands) > 1:
				copy(p.results, g.Results)
			default:
				p.results[0] = g.Results[j]
			}
			p.answer <- struct{}{}
		}
	}
}

// until is the context of a flight's call, with a deadline and without a timer: it ends when the flight is deserted. So the client gives up what it
// has not begun to send, and a server that is away holds no more calls than the client has connections to it.
type until struct {
	context.Context
	deadline time.Time
	deserted <-chan struct{}
}

func (u until) Deadline() (time.Time, bool) { return u.deadline, true }
func (u until) Done() <-chan struct{}       { return u.deserted }

func (u until) Err() error {
	select {
	case <-u.deserted:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func (t *Together) guarded(ctx context.Context, gate *Gate, groups []Group) (panicked any, err error) {
	done := false
	defer func() {
		if !done {
			panicked = recover()
		}
	}()
	err = t.Decide(ctx, gate, groups)
	done = true
	return nil, err
}

// desert lets another flight begin in place of one that takes too long, and which ends when its call does.
func (t *Together) desert(f *flight) {
	f.deserted = true
	close(f.done)
	t.deserted++
	t.Shared.deserted.Add(1)
	t.flights--
	if t.Late != nil {
		go t.Late()
	}
	if len(t.queue) > 0 {
		t.flights++
		go t.fly()
	}
}
