package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/truewindow/ratelimit/backend/internal/batch"
	"github.com/truewindow/ratelimit/backend/internal/denycache"
	"github.com/truewindow/ratelimit/backend/internal/gate"
	"github.com/truewindow/ratelimit/backend/internal/keyspace"
	"github.com/truewindow/ratelimit/backend/lua"
)

// executor runs scripts on the servers of a store.
type executor struct {
	servers
	router  Router           // the client, if it is a Router on a cluster; else nil
	now     func() int64     // or nil for the server's clock
	cache   *denycache.Cache // or nil
	tracker Tracker          // the client of a store with a cache
	moving  movingSlots
	// slotted: a script has keys of one slot only. A cluster's client sets it, and the first
	// CROSSSLOT does. It stays set: elsewhere it only makes scripts smaller.
	slotted atomic.Bool
	calls   sync.Pool // of *call
}

// execute decides groups and sets their Results, Err or Panic. It runs one script for all of them
// or, if a script has keys of one slot only, one for each slot, all at once.
func (e *executor) execute(ctx context.Context, g *gate.Gate, groups []batch.Group) {
	var one [1][]batch.Group
	parts := append(one[:0], groups)
	if len(groups) > 1 && e.slotted.Load() {
		parts = bySlot(groups)
	}
	now := int64(0)
	if e.now != nil {
		now = e.now()
	}
	var buf [1]*scriptRun
	calls := buf[:0]
	for _, part := range parts {
		c, ok := e.calls.Get().(*scriptRun)
		if !ok {
			c = new(scriptRun)
		}
		defer e.calls.Put(c)
		defer c.clear()
		if c.load(part, now); len(c.groups) > 0 {
			calls = append(calls, c)
		}
	}
	for _, c := range calls {
		gate := g
		if len(calls) > 1 {
			c.gate.Reset(g)
			gate = &c.gate
		}
		c.prepare(gate, e.cache)
	}
	e.send(ctx, calls)
	for _, c := range calls {
		e.receive(ctx, c)
	}
}

// bySlot sorts groups by slot, those of a slot in the order in which they come, and returns the
// groups of each slot. A group whose keys are in several slots is by itself.
func bySlot(groups []batch.Group) (parts [][]batch.Group) {
	const several = keyspace.NumSlots
	slot := func(g batch.Group) int {
		if !keyspace.OneSlot(g.Keys) {
			return several
		}
		return keyspace.Slot(g.Keys[0])
	}
	slices.SortStableFunc(groups, func(a, b batch.Group) int { return slot(a) - slot(b) })
	for first, i := 0, 1; i <= len(groups); i++ {
		if i == len(groups) || slot(groups[i]) != slot(groups[first]) ||
			slot(groups[first]) == several {
			parts = append(parts, groups[first:i])
			first = i
		}
	}
	return parts
}

// send sends the commands of calls, and then the source of scripts that a server does not have.
func (e *executor) send(ctx context.Context, calls []*scriptRun) {
	e.run(ctx, calls)
	var unknown []*scriptRun
	for _, c := range calls {
		if e.hasReply(c.command.Err, "NOSCRIPT ") && c.command.Gate.Shut() {
			c.command.Verb, c.command.Script = "eval", c.program.Source
			c.command.Err = nil
			unknown = append(unknown, c)
		}
	}
	e.run(ctx, unknown)
}

// run runs the commands of calls.
func (e *executor) run(ctx context.Context, calls []*scriptRun) {
	switch len(calls) {
	case 0:
	case 1:
		e.client.Run(ctx, &calls[0].command)
	default:
		commands := make([]*Command, len(calls))
		for i, c := range calls {
			commands[i] = &c.command
		}
		e.client.RunAll(ctx, commands)
	}
}

// receive sets the outcome of the groups of c.
func (e *executor) receive(ctx context.Context, c *scriptRun) {
	err := c.command.Err
	if c.command.Redirected || e.isTryAgain(err) {
		e.moving.mark(c.groups[0].Keys[0])
	}
	if err != nil {
		e.cache.Lose(c.groups)
		if slots, _ := e.refusesSlots(err); slots {
			e.slotted.Store(true)
		}
		if len(c.groups) > 1 && e.divisible(err) && c.command.Gate.Shut() {
			e.divide(ctx, c.command.Gate, c.groups)
			return
		}
		err = e.failure(err, c.command.Gate.Opened(), c.program)
		for i := range c.groups {
			c.groups[i].Err = err
		}
		return
	}
	for i := range c.groups {
		g := &c.groups[i]
		g.Err = e.results(c, i)
		if e.cache != nil {
			g.Wrote = c.script.Wrote(c.command.Reply, i)
		}
	}
	if l := e.cache.Receive(c.sent, c.groups); l != nil {
		e.startRecheck(l)
	}
}

// results reads the results of a group from the reply to c. No error has a key in its text.
func (e *executor) results(c *scriptRun, group int) error {
	err := c.script.Results(c.command.Reply, group, c.groups[group].Results)
	var failed *lua.StepError
	if errors.As(err, &failed) {
		return fmt.Errorf("%w: the step failed: %w", failed.Unwrap(), e.keys.Scrub(err))
	}
	return err
}

// divisible reports whether the server refused a whole script without running it, and may accept
// some of its groups by themselves: their keys are in several slots, a slot moves, or one of the
// steps does not compile.
func (e *executor) divisible(err error) bool {
	slots, ran := e.refusesSlots(err)
	return slots && !ran || e.isTryAgain(err) || e.hasReply(err, "ERR Error compiling script")
}

// divide decides groups that the server refused together: those of each slot by a script or, if
// they are of one slot, each by a script of its own. In the second case it opens g first: from then
// on some groups may have been sent, so callers that stop waiting get an unknown outcome.
func (e *executor) divide(ctx context.Context, g *gate.Gate, groups []batch.Group) {
	if e.slotted.Load() && len(bySlot(groups)) > 1 {
		e.execute(ctx, g, groups)
		return
	}
	waiting := g.Open()
	for i := range groups {
		if waiting {
			e.execute(ctx, new(gate.Gate), groups[i:i+1])
		} else {
			groups[i].Err = context.Canceled // no caller waits
		}
	}
}

// runScript runs a script that decides nothing.
func (e *executor) runScript(
	ctx context.Context, program lua.Program, keys ...string,
) (string, error) {
	c := &scriptRun{program: program}
	c.command = newCommand(&c.gate, program, keys, nil)
	e.send(ctx, []*scriptRun{c})
	return c.command.Reply, c.command.Err
}
