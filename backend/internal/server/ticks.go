package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/truewindow/ratelimit"
)

// watch has those who wait in ts answered in time.
func (s *Shared) watch(ts ...*Together) {
	s.mu.Lock()
	defer s.mu.Unlock()
	start := len(s.watched) == 0
	s.watched = append(s.watched, ts...)
	if !start || len(ts) == 0 {
		return
	}
	now := time.Now()
	if !s.next.After(now) { // nobody waited before
		s.next = now.Add(s.tickLength())
	}
	if wait := s.next.Sub(now); s.timer == nil {
		s.timer = time.AfterFunc(wait, s.onTick)
	} else {
		s.timer.Reset(wait)
	}
}

func (s *Shared) tickLength() time.Duration { return max(s.Timeout/timeoutTicks, 1) }

// onTick counts the ticks that are due by now: a timer is always a little late, and on a busy machine by more than a tick.
func (s *Shared) onTick() {
	length := s.tickLength()
	s.mu.Lock()
	watched := s.watched
	s.watched = nil
	due := 1 + max(0, time.Since(s.next)/length)
	s.next = s.next.Add(due * length)
	s.mu.Unlock()
	tick := s.tick.Add(int64(due))
	s.watch(slices.DeleteFunc(watched, func(t *Together) bool { return !t.onTick(tick, tick-int64(due)) })...)
}

// onTick answers those who have waited for Timeout, less a tick at most, and gives up calls that have taken as long. It reports whether there is
// anybody to watch. Who began at the tick before may have come only now, however many ticks were due.
func (t *Together) onTick(tick, before int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.postpone(before, tick-1)
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

// postpone makes those who began at one tick have begun at another.
func (t *Together) postpone(from, to int64) {
	if from == to {
		return
	}
	for i := len(t.queue) - 1; i >= 0 && t.queue[i].since == from; i-- {
		t.queue[i].since = to
	}
	for _, f := range t.away {
		for _, p := range f.passengers {
			if p.since == from {
				p.since = to
			}
		}
		if f.since == from {
			f.since = to
		}
	}
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
