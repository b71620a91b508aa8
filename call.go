package ratelimit

import (
	"context"
	"fmt"
	"reflect"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/deadline"
	"github.com/truewindow/ratelimit/internal/longkey"
)

// call is one call of a Limiter's method.
type call struct {
	op        driver.Op
	key       string
	n         int64
	admission []Result // OpGiveBack only: whose units are given back
	wait      bool     // repeat the call until it is admitted
}

func take(key string, n int64) call {
	if n == 0 {
		return call{op: driver.OpPeek, key: key, n: 1}
	}
	return call{op: driver.OpTake, key: key, n: n}
}

// scratch is the memory of one call: a demand and a result for each limit.
type scratch struct {
	demands []driver.Demand
	results []Result
}

// fill writes the demands of c to s.
func (l *Limiter) fill(c call, s *scratch) {
	for i, a := range l.algorithms {
		s.demands[i] = driver.Demand{Key: c.key, Algorithm: a, Op: c.op, N: c.n}
		if c.op == driver.OpGiveBack {
			s.demands[i].At = c.admission[i].At
		}
	}
}

// ask calls the store once, and applies the policy if the store leaves the call undecided.
func (l *Limiter) ask(ctx context.Context, c call, s *scratch) (err error) {
	l.fill(c, s)
	if len(s.demands) == 1 {
		s.results[0], err = l.take(ctx, s.demands[0])
	} else {
		err = l.store.TakeAll(ctx, s.demands, s.results)
	}
	switch {
	case err == nil:
		return nil
	case !l.admits(ctx, c.op, err):
		clear(s.results)
		return err
	}
	for i, limit := range l.limits {
		s.results[i] = open(limit)
	}
	return nil
}

// take calls the store with one demand.
func (l *Limiter) take(ctx context.Context, d driver.Demand) (res Result, err error) {
	if l.direct == nil {
		return l.store.Take(ctx, d)
	}
	res.Allowed, res.Source, res.Remaining, res.RetryAfter, res.ResetAfter, res.At, err =
		l.direct.TakeFields(ctx, d.Key, d.Algorithm, d.Op, d.N, d.At)
	if err == nil {
		res.Limit = d.Algorithm.Limit()
	}
	return res, err
}

// admits reports whether the policy admits an op that the store has left undecided with err.
func (l *Limiter) admits(ctx context.Context, op driver.Op, err error) bool {
	return l.policy == FailOpen && op <= driver.OpForce && driver.IsOutage(err) && !deadline.Passed(ctx)
}

func open(l Limit) Result { return Result{Allowed: true, Source: SourceOpen, Limit: l} }

// release clears s and returns it to the pool. The key is memory of the caller, and a store may
// leave results as they are when it fails.
func (l *Limiter) release(s *scratch) {
	clear(s.demands)
	clear(s.results)
	l.pool.Put(s)
}

// wake makes the first call of this process that waits for key try again, if l limits calls in
// flight.
func (l *Limiter) wake(key string) {
	if l.inFlight {
		l.waiting.release(longkey.Shorten(key))
	}
}

// sameStore reports whether a and b are the same store. Stores of a type that is not comparable are
// never the same.
func sameStore(a, b Store) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && a == b
}

// ended returns an error that wraps [ErrUnavailable] if ctx has ended.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// checkDistinct returns an error if two algorithms would share the history of a key.
func checkDistinct(algorithms []Algorithm) error {
	for i, a := range algorithms {
		for _, b := range algorithms[:i] {
			if a.Limit().Name == b.Limit().Name && a.Name() == b.Name() {
				return fmt.Errorf("%w demand: the limit name %q occurs twice", ErrInvalid, a.Limit().Name)
			}
		}
	}
	return nil
}
