package ratelimit

import (
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
	}
	defer queues.leave(key)
	var released <-chan struct{}
	if first.limiter.holds {
		released = queues.released(key)
	}
	for failures, refusals := 0, 0; ; {
		asking := ctx
		if c.caller != nil { // units that are held without an answer are free at the time-out only
			if err := ended(ctx); err != nil {
				return err
			}
			asking = context.WithoutCancel(ctx)
		}
		err := c.ask(asking)
		var least, pause time.Duration
		switch {
		case err == nil && c.allowed():
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
		began := time.Now()
		waitErr := sleep(ctx, least, pause, released)
		c.waited += time.Since(began)
		switch {
		case waitErr != nil && err != nil:
			return fmt.Errorf("%w: %w", waitErr, err)
		case waitErr != nil:
			return waitErr
		}
	}
}

// pauses returns for how long c cannot be admitted, and when to ask again. These differ if a limit
// with holds refuses c: each hold may end at any time.
func (c *call) pauses(refusals int) (least, pause time.Duration) {
	var held time.Duration
	for _, p := range c.parts {
		for _, res := range p.results {
			if p.limiter.holds {
				held = max(held, res.RetryAfter)
			} else {
				least = max(least, res.RetryAfter)
			}
		}
	}
	if held > 0 {
		held = min(held, backoff(min(refusals, releaseDoublings)))
	}
	return least, max(least, held)
}

// waitsOut reports whether a wait continues after the store has returned err.
func (c *call) waitsOut(err error) bool {
	return driver.IsOutage(err) && !errors.Is(err, ErrOutcomeUnknown) &&
		!errors.Is(err, driver.ErrClosed) &&
		!slices.ContainsFunc(c.parts, func(p part) bool { return p.limiter.policy != FailWait })
}

// The first and the longest pause between calls of an unavailable store. Each pause is shortened by
// a random part of less than half.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// releaseDoublings bounds the pauses between two calls that check whether a hold has ended in
// another process: to 160 ms.
const releaseDoublings = 4

// backoff returns the n-th pause, counted from 0.
func backoff(n int) time.Duration {
	pause := lastPause
	if n < 7 {
		pause = min(pause, firstPause<<n)
	}
	return pause - rand.N(pause/2)
}

// sleep sleeps for d, until early has a value, or until the context ends; the error then wraps the
// context's. It returns at once if the context's deadline is no later than the end of least.
func sleep(ctx context.Context, least, d time.Duration, early <-chan struct{}) error {
	if at, ok := ctx.Deadline(); ok && least > 0 && time.Until(at) <= least {
		return fmt.Errorf("ratelimit: the wait of %v would not end before the deadline: %w",
			least, context.DeadlineExceeded)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-early:
		return nil
	case <-ctx.Done():
		return gaveUp(ctx)
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
