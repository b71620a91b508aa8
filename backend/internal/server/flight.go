package server

import (
	"context"
	"slices"
	"time"

	"github.com/truewindow/ratelimit"
)

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
