package replay

import (
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// An engine decides arrivals one by one under all proposals.
type engine struct {
	ids      map[string]uint32 // of keys, in the order of their first arrival
	keys     []key
	now      int64 // the latest time so far
	trials   []*trial
	input    Input
	timeline timeline
}

type key struct {
	name     string
	requests int64
}

func newEngine(proposals []Proposal) *engine {
	e := &engine{ids: make(map[string]uint32)}
	for _, p := range proposals {
		e.trials = append(e.trials, newTrial(p))
	}
	e.timeline.series = make([][]int64, 1+len(proposals)) // arrivals, then refusals
	return e
}

// count counts the lines of the current block of a log, and those of them that were not read.
func (e *engine) count(l *mergedLog) {
	for i := range l.current.unread {
		e.input.addUnread(l, &l.current.unread[i])
	}
	l.lines += l.current.lines
	e.input.Lines += l.current.lines
}

// arrive decides an arrival. Servers write a line when a request ends, some with the time of its
// beginning, so lines are not quite in the order of time. Here time does not go back: a line that
// is earlier than one before it is decided at the latest time so far.
func (e *engine) arrive(a *arrival) {
	if e.input.Requests == 0 {
		e.input.First = instant(a.at)
		e.now = a.at
		e.timeline.begin(a.at)
	}
	if late := e.now - a.at; late > 0 {
		e.input.Late++
		e.input.MostLate = max(e.input.MostLate, time.Duration(late)*time.Microsecond)
	} else if late < 0 {
		e.now = a.at
		e.timeline.advance(a.at)
	}
	e.input.Requests++
	e.input.Units += a.units
	e.timeline.count(0)

	id, known := e.ids[string(a.key)]
	if !known {
		id = uint32(len(e.keys))
		name := string(a.key)
		e.ids[name] = id
		e.keys = append(e.keys, key{name: name})
	}
	e.keys[id].requests++
	for i, t := range e.trials {
		if !t.decide(id, e.now, a.units, len(e.keys)) {
			e.timeline.count(1 + i)
		}
	}
}

// A trial decides arrivals under one proposal.
type trial struct {
	proposal Proposal
	max      int64
	window   int64 // µs
	tallies  []tally
	audit    *audit // nil for the exact log

	refused, refusedUnits int64
	tooLarge              int64 // requests for more than the limit
	first, last           int64 // refusals
	longest               stretch

	swept     int64 // when states were last swept
	decisions int   // since then
}

// A tally is what a trial remembers of a key.
type tally struct {
	state   []byte
	expires int64 // µs; meaningless without a state
	refused int64
	streak  streak
}

// A streak is refusals of a key without an admission between them.
type streak struct{ since, refused int64 }

// A stretch is a streak that has a key and an end.
type stretch struct {
	key     uint32
	from    int64
	to      int64
	refused int64
}

func newTrial(p Proposal) *trial {
	limit := p.Algorithm.Limit()
	return &trial{proposal: p, max: limit.Max, window: limit.Window.Microseconds(),
		audit: newAudit(p.Algorithm)}
}

// decide takes units for a key. now is not before that of the previous decision.
func (t *trial) decide(id uint32, now, units int64, keys int) (admitted bool) {
	for len(t.tallies) < keys {
		t.tallies = append(t.tallies, tally{})
	}
	if t.decisions++; t.decisions > len(t.tallies) && now-t.swept > t.window {
		t.sweep(now)
	}
	if units == 0 {
		return true
	}
	k := &t.tallies[id]
	next, keep, res := t.proposal.Algorithm.Step(k.state, now,
		driver.Demand{Algorithm: t.proposal.Algorithm, Op: driver.OpTake, N: units})
	if keep > 0 {
		k.state, k.expires = next, expiry(now, keep)
	}
	if t.audit != nil {
		t.audit.check(id, now, units, res.Allowed)
	}
	if res.Allowed {
		k.streak = streak{}
		return true
	}
	t.refuse(k, id, now, units)
	return false
}

// expiry returns the instant from which on a state may be forgotten.
func expiry(now int64, keep time.Duration) int64 {
	return now + int64((keep+time.Microsecond-1)/time.Microsecond)
}

func (t *trial) refuse(k *tally, id uint32, now, units int64) {
	if t.refused == 0 {
		t.first = now
	}
	t.last = now
	t.refused++
	t.refusedUnits += units
	if units > t.max {
		t.tooLarge++
	}
	k.refused++
	if k.streak.refused == 0 {
		k.streak.since = now
	}
	k.streak.refused++
	s := stretch{id, k.streak.since, now, k.streak.refused}
	long, longest := s.to-s.from, t.longest.to-t.longest.from
	if long > longest || long == longest && s.refused > t.longest.refused {
		t.longest = s
	}
}

// sweep forgets the states that no decision needs any more. Since the last sweep there were at
// least as many decisions as there are keys, so the cost of a decision does not grow with the
// number of keys.
func (t *trial) sweep(now int64) {
	for i := range t.tallies {
		if k := &t.tallies[i]; k.state != nil && k.expires <= now {
			k.state = nil
		}
	}
	if t.audit != nil {
		t.audit.sweep(now)
	}
	t.swept, t.decisions = now, 0
}
