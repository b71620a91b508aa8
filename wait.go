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

// wait waits until c is the first of its queue, and then until it is admitted.
func (l *Limiter) wait(ctx context.Context, c call, s *scratch) (time.Duration, error) {
	key := longkey.Shorten(c.key)
	var queued time.Duration
	if !l.waiting.enter(key) {
		l.fill(c, s)
		if err := driver.CheckTakeAll(ctx, s.demands, s.results); err != nil {
			return 0, err
		}
		began := time.Now()
		err := l.waiting.await(ctx, key, c.n, s.results)
		queued = time.Since(began)
		if err != nil {
			return queued, err
		}
	}
	defer l.waiting.leave(key)
	slept, err := l.askUntilAdmitted(ctx, key, c, s)
	return queued + slept, err
}

// askUntilAdmitted makes a call that is the first of its queue: it calls the store again after each
// RetryAfter, until the call is admitted or fails.
func (l *Limiter) askUntilAdmitted(
	ctx context.Context, key string, c call, s *scratch,
) (slept time.Duration, err error) {
	var released <-chan struct{} // nil unless units may be released before RetryAfter
	if l.inFlight {
		released = l.waiting.released(key)
	}
	for failures, refusals := 0, 0; ; {
		asking := ctx
		if l.inFlight { // a unit that was taken can be released only after an answer
			if err := ended(ctx); err != nil {
				return slept, err
			}
			asking = context.WithoutCancel(ctx)
		}
		err := l.ask(asking, c, s)
		var pause time.Duration
		switch {
		case err == nil:
			res := &s.results[Binding(s.results)]
			if res.Allowed {
				return slept, nil
			}
			failures, pause = 0, res.RetryAfter
			if l.inFlight {
				pause = min(pause, backoff(min(refusals, releaseDoublings)))
				refusals++
			} else {
				l.waiting.refuse(key, c.n, s.results, pause)
			}
		case l.waitsOut(err):
			pause = backoff(failures)
			failures++
		default:
			return slept, err
		}
		began := time.Now()
		waitErr := sleep(ctx, pause, released)
		slept += time.Since(began)
		switch {
		case waitErr != nil && err != nil:
			return slept, fmt.Errorf("%w: %w", waitErr, err)
		case waitErr != nil:
			return slept, waitErr
		}
	}
}

// waitAll waits until parts are the first of the queue of their first part, and then calls ask
// after each refusal's RetryAfter, until ask admits them or fails.
func waitAll(
	ctx context.Context, parts []part, ask func() error,
) (waited time.Duration, err error) {
	began := time.Now()
	queues, key := parts[0].limiter.waiting, longkey.Shorten(parts[0].key)
	if !queues.enter(key) {
		// With 0 units no refusal of the first ends this wait: other claims may be refused there.
		if err := queues.await(ctx, key, 0, nil); err != nil {
			return time.Since(began), err
		}
		waited = time.Since(began)
	}
	defer queues.leave(key)
	for failures := 0; ; {
		err := ask()
		var pause time.Duration
		switch {
		case err == nil:
			i := slices.IndexFunc(parts, func(p part) bool { return !p.allowed() })
			if i < 0 {
				return waited, nil
			}
			failures = 0
			for _, p := range parts[i:] {
				pause = max(pause, p.results[Binding(p.results)].RetryAfter)
			}
		case !slices.ContainsFunc(parts, func(p part) bool { return !p.limiter.waitsOut(err) }):
			pause = backoff(failures)
			failures++
		default:
			return waited, err
		}
		slept := time.Now()
		waitErr := sleep(ctx, pause, nil)
		waited += time.Since(slept)
		switch {
		case waitErr != nil && err != nil:
			return waited, fmt.Errorf("%w: %w", waitErr, err)
		case waitErr != nil:
			return waited, waitErr
		}
	}
}

// waitsOut reports whether a wait continues after the store has returned err.
func (l *Limiter) waitsOut(err error) bool {
	return l.policy == FailWait && driver.IsOutage(err) && !errors.Is(err, ErrOutcomeUnknown) &&
		!errors.Is(err, driver.ErrClosed)
}

// The first and the longest pause between calls of an unavailable store. Each pause is shortened by
// a random part of less than half.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// releaseDoublings bounds the pauses between two calls that check whether another process has
// released a unit in flight: to 160 ms.
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
// context's. Without early it returns at once if the context's deadline is before the end of d.
func sleep(ctx context.Context, d time.Duration, early <-chan struct{}) error {
	if at, ok := ctx.Deadline(); ok && early == nil && time.Until(at) <= d {
		return tooLate(d)
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
