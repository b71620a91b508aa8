package transactional

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// maxBytes bounds the states that a transaction writes: when there are more, it decides no further
// call.
const maxBytes = 4 << 20

// transact decides the calls of g in one transaction. It returns those that another one has to
// decide, and when the database answered: the zero time if it has not.
func (g *group) transact() (again []*call, answered time.Time) {
	t := &transaction{group: g}
	var err error
	// While a key is locked, a call with another key may have to wait for a call with it, then for
	// a group that has both, then for a call with it again: 7/8 of the timeout.
	wait := g.lane.store.timeout * 3 / 8
	splits := !g.alone && g.hasOthers() // if it fails
	if splits {
		wait /= 3
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.lane.store.timeout)
	defer cancel()
	ctx = context.WithValue(ctx, lockWait{}, wait)
	if !guard(g.calls, func() { err = t.run(ctx) }) {
		return nil, time.Time{}
	}
	if err != nil && !t.unknown && t.loads && splits {
		for _, c := range g.calls {
			c.alone = true
			c.state.CompareAndSwap(writing, waiting)
		}
		return slices.DeleteFunc(g.calls, (*call).hasEnded), t.answered
	}
	done := g.calls
	if err == nil {
		done, again = g.calls[:t.decided], g.calls[t.decided:]
	}
	for _, c := range done {
		t.answer(c, err)
	}
	return again, t.answered
}

type lockWait struct{} // the key of a value of contexts

// LockWait returns how long a [Tx] should wait for locks, from the context of its Load: 3/8 of the
// timeout, or 1/8 if calls with other keys are then decided apart. It returns 0 for another
// context.
func LockWait(ctx context.Context) time.Duration {
	wait, _ := ctx.Value(lockWait{}).(time.Duration)
	return wait
}

// guard calls f, and reports whether it returned. If it panics, the callers do.
func guard(calls []*call, f func()) (returned bool) {
	defer func() {
		if returned {
			return
		}
		p := recover()
		if p == nil {
			p = "transactional: runtime.Goexit was called"
		}
		for _, c := range calls {
			c.answer(nil, p)
		}
	}()
	f()
	return true
}

// hasOthers reports whether calls of g have different keys.
func (g *group) hasOthers() bool {
	return slices.ContainsFunc(g.calls, func(c *call) bool {
		return !slices.Equal(c.keys, g.calls[0].keys)
	})
}

// A transaction decides the calls of a group.
type transaction struct {
	*group
	states  []state // of the keys of the group
	now     int64
	decided int // of the calls, the first ones
	bytes   int // of states that are to be written

	loads    bool // it has begun
	unknown  bool // the outcome of Commit
	answered time.Time
}

// A state is that of one key, and what becomes of it.
type state struct {
	bytes   []byte
	changed bool
	expires int64
}

func (t *transaction) run(ctx context.Context) error {
	tx, err := t.lane.store.begin(ctx)
	if err != nil {
		err = unavailable(err)
		t.noteAnswer(err)
		return err
	}
	defer tx.Rollback()
	t.loads = true
	err = t.decideAll(ctx, tx)
	t.noteAnswer(err) // before Rollback, which may wait
	return err
}

// noteAnswer notes the time if the database has answered, be it with an error.
func (t *transaction) noteAnswer(err error) {
	if err == nil || errors.Is(err, driver.ErrUnavailable) && !driver.IsOutage(err) {
		t.answered = time.Now()
	}
}

// decideAll decides calls, and saves the states.
func (t *transaction) decideAll(ctx context.Context, tx Tx) error {
	if err := t.load(ctx, tx); err != nil {
		return err
	}
	for ; t.decided < len(t.calls) && t.bytes < maxBytes; t.decided++ {
		t.decide(t.calls[t.decided])
	}
	var changed []State
	for i, s := range t.states {
		if s.changed {
			changed = append(changed, State{t.keys[i], s.bytes, s.expires})
		}
	}
	if len(changed) == 0 {
		return nil
	}
	if err := tx.Save(ctx, changed); err != nil {
		return unavailable(err)
	}
	err := tx.Commit(ctx)
	t.unknown = err != nil && !errors.Is(err, driver.ErrUnavailable)
	return err
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", driver.ErrUnavailable, err) }

// answer passes the outcome of the transaction to the caller of c.
func (t *transaction) answer(c *call, err error) {
	switch {
	case !t.unknown:
		c.answer(err, nil)
	case c.state.Load() == writing:
		c.answer(fmt.Errorf("%w: %w", driver.ErrOutcomeUnknown, err), nil)
	default: // it has seen states that may not be there
		c.answer(unavailable(err), nil)
	}
}

// load sets the states and the clock.
func (t *transaction) load(ctx context.Context, tx Tx) error {
	loaded, now, err := tx.Load(ctx, t.keys)
	if t.now = now; t.lane.store.now != nil {
		t.now = t.lane.store.now()
	}
	switch {
	case err != nil:
		return unavailable(err)
	case len(loaded) != len(t.keys):
		return fmt.Errorf("%w: Load returned %d states for %d keys",
			driver.ErrUnavailable, len(loaded), len(t.keys))
	case t.now < 0 || t.now >= endOfTime:
		return fmt.Errorf("%w: the clock of Load, %d µs since the epoch, is out of range",
			driver.ErrUnavailable, t.now)
	}
	t.states = make([]state, len(loaded))
	for i, bytes := range loaded {
		t.states[i].bytes = bytes
	}
	return nil
}

// decide decides c, and answers it if no outcome of the transaction changes the answer.
func (t *transaction) decide(c *call) {
	var next map[int]state
	var isFinal bool
	var err error
	if !guard([]*call{c}, func() { next, isFinal, err = t.results(c) }) {
		return
	}
	if err != nil {
		c.answer(err, nil)
		return
	}
	if len(next) == 0 {
		if isFinal {
			c.answer(nil, nil)
		}
		return
	}
	if !c.state.CompareAndSwap(waiting, writing) {
		return // the caller no longer waits
	}
	for i, s := range next {
		if t.states[i].changed {
			t.bytes -= len(t.states[i].bytes)
		}
		t.bytes += len(s.bytes)
		t.states[i] = s
	}
}

// results sets the results of c. It returns the states that c changes, by their places, and whether
// all that it has seen is in the database already.
func (t *transaction) results(c *call) (next map[int]state, isFinal bool, err error) {
	places, isFinal := make([]int, len(c.demands)), true
	for i, key := range c.stored {
		places[i], _ = slices.BinarySearch(t.keys, key)
		isFinal = isFinal && !t.states[places[i]].changed
	}
	demands := c.demands
	if len(demands) > 1 {
		var allowed bool
		next, allowed, err = t.step(c, demands, places, driver.Demand.Peek)
		if err != nil || !allowed {
			return next, isFinal, err
		}
		demands = driver.Grant(demands, c.results)
	}
	next, _, err = t.step(c, demands, places, driver.Demand.Step)
	return next, isFinal, err
}

func (t *transaction) step(c *call, demands []driver.Demand, places []int, step func(
	d driver.Demand, state []byte, now int64,
) ([]byte, time.Duration, driver.Result)) (next map[int]state, allowed bool, err error) {
	allowed = true
	for i, place := range places {
		// The bytes may be the database's own, and a step writes into them.
		bytes, keep, res := step(demands[i], slices.Clone(t.states[place].bytes), t.now)
		if keep < 0 {
			return nil, false, driver.ErrCorruptState
		}
		if keep > 0 {
			if next == nil {
				next = make(map[int]state, len(places))
			}
			next[place] = state{bytes, true, t.now + keep.Microseconds()}
		}
		c.results[i] = res
		allowed = allowed && res.Allowed
	}
	return next, allowed, nil
}
