package conformance

import (
	"bytes"
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// reference is a simple store that keeps all rules, and in which bugs can break anything.
type reference struct {
	*shared
	clock func() int64
	bugs  bugs
}

// shared is what all clients of one store share.
type shared struct {
	mu      sync.Mutex
	states  map[identity]cell
	writes  int64
	closed  bool
	dropped bool // scripts, since the last call
	last    int64
	soonest int64 // no state is forgotten before
}

// cell is a stored state, which is forgotten when the clock reaches until.
type cell struct {
	state []byte
	until int64
}

// step is what one step returned.
type step struct {
	next []byte
	keep time.Duration
	res  driver.Result
	err  error
}

// bugs are the places in which a reference can be broken. The zero value breaks none.
type bugs struct {
	// replaces the validation
	check func(context.Context, []driver.Demand, []driver.Result) error
	// turns the clock
	clock func(r *reference, now int64) int64
	// what Step gets
	demand func(r *reference, d driver.Demand, now int64) (driver.Demand, int64)
	// what a state belongs to
	id func(driver.Demand) identity
	// when a state is forgotten
	until func(old cell, now int64, keep time.Duration) int64
	// what a step returned
	stepped func(r *reference, d driver.Demand, old []byte, s *step)
	// replaces the writing
	put func(r *reference, id identity, now int64, s step)
	// replaces Take after the validation
	take func(r *reference, ctx context.Context, d driver.Demand) step
	all  func(r *reference, ctx context.Context, ds []driver.Demand,
		out []driver.Result) error
	second  func(r *reference) driver.Store
	sweep   func(r *reference) // without it there is no Sweep
	counted bool               // a write for every call, before anything else
}

// newReference returns a harness of a reference store with everything that a harness can have.
func newReference(b bugs) NewStore {
	return func(_ testing.TB, now func() int64) Harness {
		if now == nil {
			base := time.Now()
			now = func() int64 { return base.UnixMicro() + time.Since(base).Microseconds() }
		}
		r := &reference{&shared{states: make(map[identity]cell)}, now, b}
		h := Harness{
			Store: r,
			Second: func(testing.TB) driver.Store {
				if b.second != nil {
					return b.second(r)
				}
				return &reference{r.shared, r.clock, r.bugs}
			},
			DropScripts: func() error { r.set(&r.dropped); return nil },
			Writes:      r.written,
			Close:       func() error { r.set(&r.closed); return nil },
		}
		if b.sweep != nil {
			h.Sweep = func() error { b.sweep(r); return nil }
		}
		return h
	}
}

func (r *reference) set(flag *bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*flag = true
}

func (r *reference) written() (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writes, nil
}

func (r *reference) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	if err := r.check(ctx, []driver.Demand{d}, nil); err != nil {
		return driver.Result{}, err
	}
	if r.bugs.take != nil {
		s := r.bugs.take(r, ctx, d)
		return s.res, s.err
	}
	s := r.one(d)
	return s.res, s.err
}

func (r *reference) TakeAll(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) error {
	if err := r.check(ctx, ds, out); err != nil {
		return err
	}
	if r.bugs.all != nil {
		return r.bugs.all(r, ctx, ds, out)
	}
	return r.several(ds, out)
}

func (r *reference) check(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) error {
	if r.bugs.counted {
		r.mu.Lock()
		r.writes++
		r.mu.Unlock()
	}
	if r.bugs.check != nil {
		return r.bugs.check(ctx, ds, out)
	}
	if err := validate(ctx, ds, out); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return driver.ErrClosed
	}
	return nil
}

// validate is the first thing that a store does: for Take, out is nil.
func validate(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	if out == nil {
		return driver.CheckTake(ctx, ds[0])
	}
	return driver.CheckTakeAll(ctx, ds, out)
}

func (r *reference) one(d driver.Demand) step {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	s := r.run(d, now, driver.Demand.Step)
	r.put(d, now, s)
	return s
}

func (r *reference) several(ds []driver.Demand, out []driver.Result) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	peeks := make([]step, len(ds))
	refused := false
	for i, d := range ds {
		peeks[i] = r.run(d, now, driver.Demand.Peek)
		if peeks[i].err != nil {
			return peeks[i].err
		}
		out[i] = peeks[i].res
		refused = refused || !out[i].Allowed
	}
	for i, d := range driver.Grant(ds, out) {
		s := peeks[i]
		if !refused {
			s = r.run(d, now, driver.Demand.Step)
			out[i] = s.res
		}
		r.put(d, now, s)
	}
	return nil
}

// now reads the clock, and forgets what may be forgotten.
func (r *reference) now() int64 {
	now := r.clock()
	if r.bugs.clock != nil {
		now = r.bugs.clock(r, now)
	}
	if now >= r.soonest {
		r.soonest = math.MaxInt64
		for id, c := range r.states {
			if now >= c.until {
				delete(r.states, id)
			} else {
				r.soonest = min(r.soonest, c.until)
			}
		}
	}
	return now
}

func (r *reference) id(d driver.Demand) identity {
	if r.bugs.id != nil {
		return r.bugs.id(d)
	}
	return identityOf(d)
}

// run runs one step on a copy of the state.
func (r *reference) run(
	d driver.Demand, now int64,
	f func(driver.Demand, []byte, int64) ([]byte, time.Duration, driver.Result),
) step {
	asked, old := d, bytes.Clone(r.states[r.id(d)].state)
	if r.bugs.demand != nil {
		asked, now = r.bugs.demand(r, d, now)
	}
	var s step
	s.next, s.keep, s.res = f(asked, bytes.Clone(old), now)
	if s.keep < 0 {
		s = step{err: driver.ErrCorruptState}
	}
	if r.bugs.stepped != nil {
		r.bugs.stepped(r, d, old, &s)
	}
	return s
}

// put writes what a step returned.
func (r *reference) put(d driver.Demand, now int64, s step) {
	id := r.id(d)
	switch {
	case r.bugs.put != nil:
		r.bugs.put(r, id, now, s)
	case s.err == nil && s.keep > 0:
		r.write(id, now, s)
	}
}

func (r *reference) write(id identity, now int64, s step) {
	r.writes++
	until := now + s.keep.Microseconds()
	if r.bugs.until != nil {
		until = r.bugs.until(r.states[id], now, s.keep)
	}
	if delete(r.states, id); len(s.next) > 0 {
		r.states[id] = cell{s.next, until}
		r.soonest = min(r.soonest, until)
	}
}
