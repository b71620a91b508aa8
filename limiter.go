package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Limiter decides demands under one limit, or under several at once, on one store. Limiters are immutable and cheap: many of them
// may share a store. Create one with [New].
//
// A Limiter of several limits admits a demand when all of its limits do, and then records it under each; if one refuses, none
// records it. Its methods answer with the result of the limit that binds ([Binding]); AllowEach and PeekEach answer for each limit.
//
// While the store is away, the [Policy] that it was made with decides, or that of [Limiter.With]. A demand that it admits, or decides locally, is answered
// without an error; one that it refuses, with the error and a Result of [SourceClosed]. It does not decide for a caller who has left: one whose context
// was canceled.
//
// All methods return an error that wraps [ErrInvalidDemand] for an empty key or a negative n, [ErrExceedsLimit]
// for an n that the smallest limit can never admit, and [ErrUnavailable] when the demand is undecided, the context having
// ended included; or [errors.ErrUnsupported] if the store cannot run the algorithm, as with [ErrNoScript], or cannot decide several
// limits together. A call that fails with [ErrOutcomeUnknown] may have been recorded; no other failed call was.
type Limiter struct {
	taker     taker     // the store, or all where there are several limits
	algorithm Algorithm // of the first limit: what a store is asked about, and all are not
	policy    Policy    // or 0: the store's
	all       *group
}

// taker is the half of a [Store] that decides one demand.
type taker interface {
	Take(ctx context.Context, d Demand) (Result, error)
}

// group takes under several limits as a store does under one.
type group struct {
	store      Store
	algorithms []Algorithm
	scratch    sync.Pool // of *scratch
}

type scratch struct {
	demands []Demand
	results []Result
}

// New returns a limiter of the given algorithms, one for each limit, on store. It does no I/O. An error wraps [ErrInvalidLimit]
// or, when two limits have the same name and so the same state, [ErrDuplicateDemand].
func New(store Store, algorithms ...Algorithm) (*Limiter, error) {
	if store == nil {
		return nil, fmt.Errorf("%w: no store", ErrInvalidLimit)
	}
	if len(algorithms) == 0 {
		return nil, fmt.Errorf("%w: no limit", ErrInvalidLimit)
	}
	l := &Limiter{taker: store, algorithm: algorithms[0]}
	l.all = &group{store: store, algorithms: slices.Clone(algorithms)}
	if len(algorithms) > 1 {
		l.taker = l.all
	}
	ds := make([]Demand, len(algorithms))
	for i, a := range algorithms {
		if a == nil {
			return nil, fmt.Errorf("%w: no algorithm", ErrInvalidLimit)
		}
		if err := a.Validate(); err != nil {
			return nil, err
		}
		ds[i].Algorithm = a
	}
	if err := checkDistinct(ds); err != nil {
		return nil, err
	}
	l.all.scratch.New = func() any {
		return &scratch{make([]Demand, len(algorithms)), make([]Result, len(algorithms))}
	}
	return l, nil
}

// With returns a limiter like l with a policy of its own for when the store is away. It is for a call site that needs another one than the store was
// made with. Zero is the store's, and an unknown one is [FailClosed].
func (l *Limiter) With(p Policy) *Limiter {
	if p >= numPolicies {
		p = FailClosed
	}
	with := *l
	with.policy = p
	return &with
}

// Limits returns the limits in the order in which New got them, which is that of the results of AllowEach and PeekEach.
func (l *Limiter) Limits() []Limit {
	limits := make([]Limit, len(l.all.algorithms))
	for i, a := range l.all.algorithms {
		limits[i] = a.Limit()
	}
	return limits
}

// Allow is AllowN of one unit.
func (l *Limiter) Allow(ctx context.Context, key string) (res Result, err error) {
	// Not by way of AllowN, and with named results: it saves a copy of the demand and two of the result.
	if res, err = l.taker.Take(ctx, Demand{Key: key, Algorithm: l.algorithm, N: 1, Policy: l.policy}); err != nil {
		return l.undecided(ctx, Demand{Algorithm: l.algorithm}, res, err)
	}
	return res, err
}

// AllowN takes n units for key if they may be spent now. A refusal is a Result with Allowed false, not an error.
// An n of 0 is Peek.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (Result, error) {
	if n == 0 {
		return l.Peek(ctx, key)
	}
	return l.take(ctx, Demand{Key: key, Algorithm: l.algorithm, Op: Take, N: n, Policy: l.policy})
}

// AllowEach is AllowN with the result of each limit appended to dst, in the order of Limits. The demand was admitted if
// all of them are Allowed. After an error dst is returned as it was.
func (l *Limiter) AllowEach(ctx context.Context, key string, n int64, dst []Result) ([]Result, error) {
	if n == 0 {
		return l.PeekEach(ctx, key, 1, dst)
	}
	return l.decideEach(ctx, key, Take, n, dst)
}

// Peek answers what Allow would and takes nothing. Remaining is what is there before taking.
func (l *Limiter) Peek(ctx context.Context, key string) (Result, error) {
	return l.take(ctx, Demand{Key: key, Algorithm: l.algorithm, Op: Look, N: 1, Policy: l.policy})
}

// PeekEach answers what AllowEach would and takes nothing. An n of 0 is an n of 1.
func (l *Limiter) PeekEach(ctx context.Context, key string, n int64, dst []Result) ([]Result, error) {
	if n == 0 {
		n = 1
	}
	return l.decideEach(ctx, key, Look, n, dst)
}

// Reset forgets what key has spent under all limits of l.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	_, err := l.taker.Take(ctx, Demand{Key: key, Algorithm: l.algorithm, Op: Reset})
	return err
}

// Wait is WaitN of one unit.
func (l *Limiter) Wait(ctx context.Context, key string) (Result, error) {
	return l.WaitN(ctx, key, 1)
}

// WaitN takes n units as soon as they may be spent. It sleeps for exactly RetryAfter and asks again, since others may have been
// admitted meanwhile; waiters are not queued. An n of 0 waits until one unit may be spent and takes nothing.
//
// When RetryAfter does not end before the context's deadline, WaitN returns at once, with the refusal and an error that wraps
// [context.DeadlineExceeded]; when the context ends in mid-wait, with the refusal and an error that wraps the context's. Nothing was taken
// in either case.
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) (Result, error) {
	for {
		res, err := l.AllowN(ctx, key, n)
		if err != nil || res.Allowed {
			return res, err
		}
		if err := sleep(ctx, res.RetryAfter); err != nil {
			return res, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return fmt.Errorf("ratelimit: the wait of %v does not end before the context: %w", d, context.DeadlineExceeded)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("ratelimit: gave up waiting: %w", ctx.Err())
	}
}

func (l *Limiter) take(ctx context.Context, d Demand) (Result, error) {
	res, err := l.taker.Take(ctx, d)
	if err != nil {
		return l.undecided(ctx, d, res, err)
	}
	return res, nil
}

// undecided returns what the policy makes of a demand for which the store has returned res and err.
func (l *Limiter) undecided(ctx context.Context, d Demand, res Result, err error) (Result, error) {
	if !errors.Is(err, ErrUnavailable) {
		return Result{}, err
	}
	if l.policy != 0 {
		res = l.policy.Undecided(d, err)
	}
	if res.Source == SourceOpen && !errors.Is(ctx.Err(), context.Canceled) {
		return res, nil
	}
	return FailClosed.Undecided(d, err), err
}

func (l *Limiter) decideEach(ctx context.Context, key string, op Op, n int64, dst []Result) ([]Result, error) {
	d := Demand{Key: key, Algorithm: l.algorithm, Op: op, N: n, Policy: l.policy}
	if len(l.all.algorithms) == 1 {
		res, err := l.take(ctx, d)
		if err != nil {
			return dst, err
		}
		return append(dst, res), nil
	}
	s := l.all.scratch.Get().(*scratch)
	defer l.all.release(s)
	if err := l.all.takeAll(ctx, s, d); err != nil {
		for i := range s.results {
			d.Algorithm = l.all.algorithms[i]
			res, err := l.undecided(ctx, d, s.results[i], err)
			if err != nil {
				return dst, err
			}
			s.results[i] = res
		}
	}
	return append(dst, s.results...), nil
}

// Take decides d under all limits, whatever its algorithm, and returns the result that binds.
func (g *group) Take(ctx context.Context, d Demand) (Result, error) {
	s := g.scratch.Get().(*scratch)
	defer g.release(s)
	err := g.takeAll(ctx, s, d)
	return s.results[Binding(s.results)], err
}

func (g *group) takeAll(ctx context.Context, s *scratch, d Demand) error {
	for i, a := range g.algorithms {
		d.Algorithm = a
		s.demands[i] = d
	}
	return g.store.TakeAll(ctx, s.demands, s.results)
}

// release drops the key before the scratch is pooled, so that the pool keeps no user's bytes alive, and results that the next caller's store
// may leave as they are.
func (g *group) release(s *scratch) {
	clear(s.demands)
	clear(s.results)
	g.scratch.Put(s)
}
