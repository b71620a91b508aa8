// Package server has what the stores on Redis and Valkey servers share, whatever their client: the names of stored keys,
// a cluster's slots, what a server's error says of a demand, and calls that are answered by a deadline.
package server

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
)

// maxDeserted is the number of calls that clients have not ended after their callers left, from which on no more are begun. It bounds
// the goroutines of a client that hangs to this many, a few KiB each, and those of the callers that wait.
const maxDeserted = 4096

// Calls runs calls of a client apart from those who wait for them, who leave at their deadline whatever the client does. The zero
// Calls is ready for use.
type Calls struct {
	deserted atomic.Int64
	refused  atomic.Int64 // for want of room
}

// Do runs call in a goroutine of its own and returns what it returns, or leaves when ctx ends or after timeout. The error is then
// [ratelimit.ErrOutcomeUnknown] if the gate was opened, and [ratelimit.ErrUnavailable] if it was not and so stays
// shut; both wrap the context's. left tells that call still runs and may use whatever it was given. A panic of call is passed on,
// unless the caller left.
func (c *Calls) Do(ctx context.Context, timeout time.Duration, gate *Gate, call func(context.Context) error) (left bool, err error) {
	if c.deserted.Load() >= maxDeserted {
		c.refused.Add(1)
		return false, fmt.Errorf("%w: the client has not ended %d calls whose callers have left", ratelimit.ErrUnavailable, maxDeserted)
	}
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if o.panicked {
				o.value = recover()
			}
			if gate.end() {
				c.deserted.Add(-1)
			}
			done <- o // from here on the gate is the caller's
		}()
		o.panicked = true
		o.err = call(within)
		o.panicked = false
	}()

	select {
	case o := <-done:
		return false, o.result()
	case <-within.Done():
	}
	sent, running := gate.leave()
	if !running { // both at once: an answer is better than none
		return false, (<-done).result()
	}
	c.deserted.Add(1)
	kind, what := ratelimit.ErrUnavailable, "not sent"
	if sent {
		kind, what = ratelimit.ErrOutcomeUnknown, "no answer"
	}
	if err := ctx.Err(); err != nil {
		return true, fmt.Errorf("%w: %s in time: %w", kind, what, err)
	}
	return true, fmt.Errorf("%w: %s within %v: %w", kind, what, timeout, within.Err())
}

type outcome struct {
	err      error
	panicked bool
	value    any
}

func (o outcome) result() error {
	if o.panicked {
		panic(o.value)
	}
	return o.err
}

// A Gate stands between a client and the wire for the length of one call. It tells those who leave whether their demand may have been
// sent, and keeps it from being sent once they have been told that it was not. The zero Gate is shut.
type Gate struct {
	state atomic.Uint32
	of    *Gate // of the batch of calls that this one is part of, or nil
}

const (
	gateOpened = 1 << iota // bytes of the demand may be on their way
	gateLeft               // nobody waits for the answer
	gateEnded              // the client has returned
)

// Open is called before the first byte of a demand is written. If it returns false the caller has left, and the demand must not be written.
func (g *Gate) Open() bool {
	if g.of != nil && !g.of.Open() {
		return false
	}
	return g.state.Or(gateOpened)&gateLeft == 0
}

// Shut is called when a server has answered that it did not run the script. It returns false if the caller has left.
func (g *Gate) Shut() bool {
	return g.state.And(^uint32(gateOpened))&gateLeft == 0 && (g.of == nil || !g.of.Left())
}

// Opened tells whether the demand may have been sent.
func (g *Gate) Opened() bool { return g.state.Load()&gateOpened != 0 }

// Left tells that nobody waits for the answer any more.
func (g *Gate) Left() bool { return g.state.Load()&gateLeft != 0 }

// Reset makes g ready for another call. The one before must have ended.
func (g *Gate) Reset() {
	g.state.Store(0)
	g.of = nil
}

func (g *Gate) leave() (sent, running bool) {
	old := g.state.Or(gateLeft)
	return old&gateOpened != 0, old&gateEnded == 0
}

func (g *Gate) end() (deserted bool) { return g.state.Or(gateEnded)&gateLeft != 0 }
