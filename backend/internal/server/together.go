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
	refused  atomic.Int64 // demands, for want of room

	passengers sync.Pool
	flights    sync.Pool // that are not away

	tick    atomic.Int64 // a sixteenth of Timeout, counted while anybody waits
	mu      sync.Mutex
	watched []*Together // where somebody may wait; of each its mutex comes before this one
	timer   *time.Timer
	next    time.Time // tick
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
		t.Shared.refused.Add(1)
		return fmt.Errorf("%w: the client has not ended %d calls in time", ratelimit.ErrUnavailable, maxDeserted)
	}
	if !t.room() {
		t.mu.Unlock()
		t.dismiss(p)
		t.Shared.refused.Add(1)
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
