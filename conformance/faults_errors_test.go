package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

var errorFaults = []fault{
	{name: "validation skipped", rules: "errors/validation takeall/validation",
		bugs: bugs{check: func(
			ctx context.Context, ds []driver.Demand, _ []driver.Result,
		) error {
			if slices.ContainsFunc(ds,
				func(d driver.Demand) bool { return d.Algorithm == nil }) {
				return driver.ErrInvalid
			}
			return ctx.Err()
		}}},
	{name: "duplicates allowed", rules: "takeall/validation",
		bugs: bugs{check: func(
			ctx context.Context, ds []driver.Demand, out []driver.Result,
		) error {
			err := validate(ctx, ds, out)
			if errors.Is(err, driver.ErrInvalid) {
				return nil
			}
			return err
		}}},
	{name: "closed before valid", rules: "errors/before-io",
		bugs: bugs{check: func(
			ctx context.Context, ds []driver.Demand, out []driver.Result,
		) error {
			if err := driver.CheckTake(ctx, ds[0]); err != nil {
				return driver.ErrClosed
			}
			return nil
		}}},
	{name: "context ignored", rules: "errors/ended-context",
		bugs: bugs{check: func(
			_ context.Context, ds []driver.Demand, _ []driver.Result,
		) error {
			return driver.CheckTake(context.Background(), ds[0])
		}}},
	{name: "closed store refuses", rules: "errors/closed",
		bugs: bugs{check: validate}},
	{name: "closed store is unavailable", rules: "errors/closed",
		bugs: bugs{check: func(
			ctx context.Context, ds []driver.Demand, out []driver.Result,
		) error {
			err := validate(ctx, ds, out)
			if err == nil && len(ds) > 1 {
				return driver.ErrUnavailable
			}
			return err
		}}},
	{name: "sent again when the context ends", rules: "errors/ending-context",
		bugs: bugs{take: func(r *reference, ctx context.Context, d driver.Demand) step {
			s := r.one(d)
			if _, ok := ctx.Deadline(); ok && d.Op == driver.OpTake {
				return r.one(d)
			}
			return s
		}}},
	{name: "recorded but unavailable", rules: "errors/ending-context",
		bugs: bugs{take: func(r *reference, ctx context.Context, d driver.Demand) step {
			s := r.one(d)
			if d.Op == driver.OpTake && s.res.Remaining%2 == 0 {
				return step{err: driver.ErrUnavailable}
			}
			return s
		}}},
	{name: "deadline of another kind", rules: "errors/ending-context",
		bugs: bugs{take: func(r *reference, ctx context.Context, d driver.Demand) step {
			s := r.one(d)
			if d.Op == driver.OpTake {
				s.err = context.DeadlineExceeded
			}
			return s
		}}},
	{name: "late return", rules: "errors/ending-context",
		bugs: lateReturn(100, mostSpread+lateAtMost)},
	{name: "one call of 500 late by 100 ms", rules: "errors/ending-context",
		bugs: lateReturn(500, 100*time.Millisecond)},
	{name: "one call of 20 late by 50 ms", rules: "errors/ending-context",
		bugs: lateReturn(20, 50*time.Millisecond)},
	{name: "one call of 100 late by a second", rules: "errors/ending-context",
		bugs: lateReturn(100, time.Second)},
	{name: "waits for a lock for 5 ms", rules: "errors/contended", always: true,
		bugs: waitsAtMost(5 * time.Millisecond)},
	{name: "corrupt state is an empty one", rules: "errors/corrupt-state takeall/corrupt-state",
		bugs: bugs{stepped: func(_ *reference, d driver.Demand, _ []byte, s *step) {
			if s.err != nil {
				s.err = nil
				s.next, s.keep, s.res = d.Step(nil, start)
			}
		}}},
	{name: "corrupt state is unavailable", rules: "errors/corrupt-state takeall/corrupt-state",
		bugs: bugs{stepped: func(_ *reference, _ driver.Demand, _ []byte, s *step) {
			if s.err != nil {
				s.err = driver.ErrUnavailable
			}
		}}},
	{name: "no script is unavailable", rules: "errors/no-script",
		bugs: bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
			if d.Algorithm.Script().Source == "" {
				return step{err: driver.ErrUnavailable}
			}
			return r.one(d)
		}}},
}

// waitsAtMost returns a bug of a store in which a call has a lock for 100 µs at least: the others
// wait for it no longer than timeout, and are then unavailable.
func waitsAtMost(timeout time.Duration) bugs {
	lock := make(chan struct{}, 1)
	return bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
		select {
		case lock <- struct{}{}:
			defer func() { <-lock }()
		case <-time.After(timeout):
			return step{err: fmt.Errorf("%w: lock timeout", driver.ErrUnavailable)}
		}
		time.Sleep(100 * time.Microsecond)
		return r.one(d)
	}}
}

// lateReturn returns a bug in one call of several, if its context ends soon: it returns late.
func lateReturn(of int64, late time.Duration) bugs {
	var calls atomic.Int64
	return bugs{take: func(r *reference, ctx context.Context, d driver.Demand) step {
		s := r.one(d)
		if end, ok := ctx.Deadline(); ok && time.Until(end) < mostSpread && calls.Add(1)%of == 0 {
			<-ctx.Done()
			time.Sleep(late)
			return step{err: driver.ErrOutcomeUnknown}
		}
		return s
	}}
}

// lostUpdate reads and writes a state without a lock in between.
var lostUpdate = bugs{
	take: func(r *reference, _ context.Context, d driver.Demand) step {
		r.mu.Lock()
		now := r.now()
		s := r.run(d, now, driver.Demand.Step)
		r.mu.Unlock()
		runtime.Gosched()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.put(d, now, s)
		return s
	},
	all: func(
		r *reference, _ context.Context, ds []driver.Demand, out []driver.Result,
	) error {
		r.mu.Lock()
		now, steps := r.now(), make([]step, len(ds))
		for i, d := range ds {
			_, _, out[i] = d.Peek(bytes.Clone(r.states[identityOf(d)].state), now)
		}
		for i, d := range driver.Grant(ds, out) {
			steps[i] = r.run(d, now, driver.Demand.Step)
		}
		r.mu.Unlock()
		runtime.Gosched()
		r.mu.Lock()
		defer r.mu.Unlock()
		for i, d := range ds {
			if allowed(out) {
				r.put(d, now, steps[i])
			}
		}
		return nil
	},
}

var concurrencyFaults = []fault{
	{name: "lost update",
		rules: "concurrency/count concurrency/count-two-clients " +
			"concurrency/count-scripts-dropped concurrency/weights " +
			"concurrency/keys concurrency/rolling-window takeall/storm takeall-keys/storm",
		bugs: lostUpdate},
	{name: "panic in a call", rules: "concurrency/count op/take",
		bugs: bugs{take: func(*reference, context.Context, driver.Demand) step {
			panic("planted")
		}}},
	{name: "goroutine ended in a call", rules: "op/take",
		bugs: bugs{take: func(*reference, context.Context, driver.Demand) step {
			runtime.Goexit()
			return step{}
		}}},
}

// impure is an algorithm that does not keep its contract.
type impure struct {
	driver.Algorithm
	calls *atomic.Int64
}

func (a impure) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	d.Algorithm = a.Algorithm
	next, keep, res := a.Algorithm.Step(state, now, d)
	res.Remaining += a.calls.Add(1) % 2
	return next, keep, res
}

// overwriting is an algorithm that overwrites a state that it did not write.
type overwriting struct{ driver.Algorithm }

func (a overwriting) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	d.Algorithm = a.Algorithm
	next, keep, res := a.Algorithm.Step(state, now, d)
	if keep < 0 {
		clear(state)
	}
	return next, keep, res
}

var algorithmFaults = []fault{
	{name: "algorithm that overwrites a corrupt state", rules: "algorithm/pure",
		algorithms: []func(
			driver.Limit,
		) driver.Algorithm{func(limit driver.Limit) driver.Algorithm {
			return overwriting{slidingLog(1)(limit)}
		}}},
	{name: "algorithm with a memory", rules: "algorithm/pure algorithm/values",
		algorithms: []func(
			driver.Limit,
		) driver.Algorithm{func(limit driver.Limit) driver.Algorithm {
			return impure{slidingLog(1)(limit), new(atomic.Int64)}
		}}},
}
