package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/longkey"
)

// wait waits until c is the first of the queue of its first part, and then asks after each refusal,
// until c is admitted or fails.
func (c *call) wait(ctx context.Context) error {
	first := &c.parts[0]
	queues, key := first.limiter.waiting, longkey.Shorten(first.key)
	queued := false
	if !queues.enter(key) {
		if err := driver.CheckTakeAll(ctx, c.demands, c.results); err != nil {
			return err
		}
		began := time.Now()
		err := queues.await(ctx, key)
		c.waited = time.Since(began)
		if err != nil {
			return err
		}
		queued = true
	}
	defer queues.leave(key)
	defer c.unwatch()
	for failures, refusals := 0, 0; ; {
		var err error
		var least, pause time.Duration
		c.watch()
		switch {
		case c.leaves() || (queued || refusals > 0) && c.full():
			pause = releasePause(refusals)
			refusals++
		default:
			switch err = c.askPatiently(ctx); {
			case err == nil && c.allowed():
				if c.reserved != nil {
					c.reserved.countLocked(c)
				}
				return nil
			case err == nil:
				least, pause = c.pauses(refusals)
				failures = 0
				refusals++
			case c.waitsOut(err):
				pause = backoff(failures)
				least = pause
				failures++
			default:
				return err
			}
		}
		began := time.Now()
		waitErr := c.sleep(ctx, least, pause)
		c.waited += time.Since(began)
		switch {
		case waitErr != nil && err != nil:
			return fmt.Errorf("%w: %w", waitErr, err)
		case waitErr != nil:
			return waitErr
		}
	}
}

// askPatiently asks, and waits for the answer about holds even if ctx ends: units that are held
// without an answer are free at the time-out only.
func (c *call) askPatiently(ctx context.Context) error {
	if c.caller != nil {
		if err := ended(ctx); err != nil {
			return err
		}
		ctx = context.WithoutCancel(ctx)
	}
	return c.ask(ctx)
}

// full reports whether a limit has no room for c beside what this process holds, so that the store
// would refuse c. Every trustsFor it reports false all the same, so that one call asks the store.
func (c *call) full() bool {
	counted := false
	for i := range c.parts {
		p := &c.parts[i]
		if !p.limiter.holds {
			continue
		}
		full, believed := p.limiter.waiting.full(longkey.Shorten(p.key), cmp.Or(p.least, p.n),
			p.limiter.maxHeld())
		if believed {
			return true
		}
		counted = counted || full
	}
	for i := range c.parts {
		if p := &c.parts[i]; counted && p.limiter.holds {
			p.limiter.waiting.check(longkey.Shorten(p.key))
		}
	}
	return false
}

// leaves reports whether this process leaves units of c to other processes.
func (c *call) leaves() bool {
	return slices.ContainsFunc(c.parts, func(p part) bool {
		return p.limiter.holds && p.limiter.waiting.leaves(longkey.Shorten(p.key))
	})
}

// watch makes c.early receive a value when this process releases units of c.
func (c *call) watch() {
	select {
	case <-c.early: // before the store is asked
	default:
	}
	for i := range c.parts {
		if p := &c.parts[i]; p.limiter.holds && p.asleep == nil {
			if c.early == nil {
				c.early = make(chan struct{}, 1)
			}
			p.asleep = p.limiter.waiting.sleep(longkey.Shorten(p.key), c.early)
		}
	}
}

// unwatch undoes watch.
func (c *call) unwatch() {
	for i := range c.parts {
		if p := &c.parts[i]; p.asleep != nil {
			p.limiter.waiting.awake(longkey.Shorten(p.key), p.asleep)
			p.asleep = nil
		}
	}
}

// pauses returns for how long c cannot be admitted, and when to ask again. These differ if a limit
// with holds refuses c: each hold may end at any time. A result that is Allowed has no RetryAfter.
func (c *call) pauses(refusals int) (least, pause time.Duration) {
	var held time.Duration
	for _, p := range c.parts {
		for i, res := range p.results {
			if _, ok := p.limiter.algorithms[i].(driver.Holder); ok {
				held = max(held, res.RetryAfter)
			} else {
				least = max(least, res.RetryAfter)
			}
		}
	}
	if held > 0 {
		held = min(held, releasePause(refusals))
	}
	return least, max(least, held)
}

// waitsOut reports whether a wait continues after the store has returned err.
func (c *call) waitsOut(err error) bool {
	return transient(err) && !errors.Is(err, ErrOutcomeUnknown) &&
		!slices.ContainsFunc(c.parts, func(p part) bool { return p.limiter.policy != FailWait })
}

// transient reports whether the same call may be decided later although it has failed with err.
func transient(err error) bool {
	return (driver.IsOutage(err) || errors.Is(err, driver.ErrContended)) &&
		!errors.Is(err, driver.ErrClosed)
}

// The first and the longest pause between calls of an unavailable store. Each pause is shortened by
// a random part of less than half.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// releaseDoublings and lastReleasePause bound the pauses between two calls that check whether a
// hold has ended in another process: to 160 ms.
const (
	releaseDoublings = 4
	lastReleasePause = firstPause << releaseDoublings
)

// backoff returns the n-th pause, counted from 0.
func backoff(n int) time.Duration {
	pause := lastPause
	if n < 7 {
		pause = min(pause, firstPause<<n)
	}
	return pause - rand.N(pause/2)
}

// releasePause is the n-th pause until c looks whether a hold has ended.
func releasePause(n int) time.Duration { return backoff(min(n, releaseDoublings)) }

// sleep sleeps for d, or until this process releases units of c, which helps only after least. An
// error wraps the context's. It returns at once if the context's deadline is no later than the end
// of least.
func (c *call) sleep(ctx context.Context, least, d time.Duration) error {
	if at, ok := ctx.Deadline(); ok && least > 0 && time.Until(at) <= least {
		return fmt.Errorf("ratelimit: the wait of %v would not end before the deadline: %w",
			least, context.DeadlineExceeded)
	}
	var early <-chan struct{}
	timer := time.NewTimer(least)
	defer timer.Stop()
	if least == 0 {
		early = c.early
		timer.Reset(d)
	}
	for {
		select {
		case <-timer.C:
			if early != nil || d == least {
				return nil
			}
			early = c.early
			timer.Reset(d - least)
		case <-early:
			return nil
		case <-ctx.Done():
			return gaveUp(ctx)
		}
	}
}

func gaveUp(ctx context.Context) error {
	return fmt.Errorf("ratelimit: gave up waiting: %w", ctx.Err())
}

// ended returns an error that wraps [ErrUnavailable] if ctx has ended.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}
