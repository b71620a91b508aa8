package conformance

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/truewindow/ratelimit/driver"
)

// eachOnItsOwn decides the demands of a TakeAll one after the other.
func eachOnItsOwn(stop bool) bugs {
	return bugs{all: func(
		r *reference, _ context.Context, ds []driver.Demand, out []driver.Result,
	) error {
		for i, d := range ds {
			s := r.one(d)
			if s.err != nil {
				return s.err
			}
			if out[i] = s.res; stop && !s.res.Allowed {
				return nil
			}
		}
		return nil
	}}
}

// rewrites returns a bug that changes what a TakeAll is asked or answers.
func rewrites(f func(r *reference, ds []driver.Demand, out []driver.Result) error) bugs {
	return bugs{all: func(
		r *reference, _ context.Context, ds []driver.Demand, out []driver.Result,
	) error {
		return f(r, ds, out)
	}}
}

var takeAllFaults = []fault{
	{name: "part of a TakeAll charged",
		rules: "takeall/none-leaves-a-trace takeall/operations takeall/results takeall/storm " +
			"takeall/corrupt-state " +
			"takeall-keys/none-leaves-a-trace takeall-keys/results takeall-keys/storm",
		bugs: eachOnItsOwn(false)},
	{name: "TakeAll stops at the first refusal",
		rules: "takeall/results-of-a-refusal takeall/none-leaves-a-trace",
		bugs:  eachOnItsOwn(true)},
	{name: "results of a TakeAll in another order",
		rules: "takeall/admits-all takeall-keys/admits-all takeall/results",
		bugs: rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
			err := r.several(ds, out)
			slices.Reverse(out)
			return err
		})},
	{name: "a refused TakeAll answers what each would have done",
		rules: "takeall/results-of-a-refusal takeall/results",
		bugs: rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
			err := r.several(ds, out)
			if err == nil && !allowed(out) {
				r.mu.Lock()
				defer r.mu.Unlock()
				for i, d := range ds {
					out[i] = r.run(d, r.now(), driver.Demand.Step).res
				}
			}
			return err
		})},
	{name: "TakeAll of 32 demands at most", rules: "takeall/many",
		bugs: rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
			for len(ds) > 32 {
				if err := r.several(ds[:32], out[:32]); err != nil {
					return err
				}
				ds, out = ds[32:], out[32:]
			}
			return r.several(ds, out)
		})},
	{name: "clock read for each demand", rules: "takeall/one-reading",
		bugs: bugs{demand: func(
			r *reference, d driver.Demand, _ int64,
		) (driver.Demand, int64) {
			return d, r.clock()
		}}},
	{name: "state used after Step for undoing", rules: "takeall/state",
		bugs: rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			now, before := r.now(), make([]cell, len(ds))
			refused := false
			for i, d := range ds {
				before[i] = r.states[identityOf(d)]
				next, keep, res := d.Step(before[i].state, now)
				r.put(d, now, step{next: next, keep: keep})
				out[i], refused = res, refused || !res.Allowed
			}
			for i, d := range ds {
				if refused {
					r.states[identityOf(d)] = before[i]
					_, _, out[i] = d.Peek(bytes.Clone(before[i].state), now)
				}
			}
			return nil
		})},
	{name: "what a peek returned is passed to Step and not stored",
		rules: "takeall/results takeall/state takeall/two-clients takeall-keys/results",
		bugs: rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
			peeked := make([][]byte, len(ds))
			r.mu.Lock()
			defer r.mu.Unlock()
			now, refused := r.now(), false
			steps := make([]step, len(ds))
			for i, d := range ds {
				steps[i] = r.run(d, now, driver.Demand.Peek)
				if steps[i].err != nil {
					return steps[i].err
				}
				peeked[i] = r.states[identityOf(d)].state
				if steps[i].keep > 0 {
					peeked[i] = steps[i].next
				}
				out[i], refused = steps[i].res, refused || !steps[i].res.Allowed
			}
			for i, d := range driver.Grant(ds, out) {
				if !refused {
					var s step
					s.next, s.keep, s.res = d.Step(bytes.Clone(peeked[i]), now)
					steps[i], out[i] = s, s.res
				}
				r.put(d, now, steps[i])
			}
			return nil
		})},
	{name: "out written after the return", rules: "takeall/slices",
		bugs: func() bugs {
			var last []driver.Result
			return rewrites(func(
				r *reference, ds []driver.Demand, out []driver.Result,
			) error {
				clear(last)
				last = out
				return r.several(ds, out)
			})
		}()},
	{name: "TakeAll takes before it is unsupported", rules: "errors/unsupported-writes-nothing",
		bugs: rewrites(func(r *reference, ds []driver.Demand, _ []driver.Result) error {
			r.one(ds[0])
			return errors.ErrUnsupported
		})},
	{name: "second client on another state",
		rules: "step/two-clients takeall/two-clients concurrency/count-two-clients",
		bugs: bugs{second: func(r *reference) driver.Store {
			return &reference{&shared{states: make(map[identity]cell)}, r.clock, r.bugs}
		}}},
}
