package conformance

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// raceFaults last a few microseconds.
var raceFaults = []fault{
	{name: "peeks share a buffer", always: true, rules: "step/own-bytes", bugs: sharedBuffer()},
	{name: "sweep that looks before it locks", rules: "expiry/sweep-not-early",
		bugs: bugs{sweep: sweepUnlocked}},
}

// sweepUnlocked is a bug: it looks at a state under one lock, and deletes it under another three
// microseconds later.
func sweepUnlocked(r *reference) {
	r.mu.Lock()
	ids := slices.Collect(maps.Keys(r.states))
	r.mu.Unlock()
	for _, id := range ids {
		r.mu.Lock()
		gone := r.clock() >= r.states[id].until
		r.mu.Unlock()
		if gone {
			for now := time.Now(); time.Since(now) < 3*time.Microsecond; {
			}
			r.mu.Lock()
			delete(r.states, id)
			r.mu.Unlock()
		}
	}
}

// sharedBuffer returns a bug: all peeks copy their states to one buffer.
func sharedBuffer() bugs {
	buffer := make([]byte, 1<<22)
	return bugs{take: func(r *reference, _ context.Context, d driver.Demand) (s step) {
		if d.Op != driver.OpPeek {
			return r.one(d)
		}
		r.mu.Lock()
		now, state := r.now(), r.states[identityOf(d)].state
		copyUnseen(buffer, state)
		r.mu.Unlock()
		if _, s.keep, s.res = d.Step(buffer[:len(state)], now); s.keep != 0 {
			return r.one(d)
		}
		return s
	}}
}

// copyUnseen copies without telling the race detector, which would end the test.
//
//go:norace
//go:noinline
func copyUnseen(to, from []byte) {
	for len(from) > 0 {
		to[0] = from[0]
		to, from = to[1:], from[1:]
	}
}
