package grpclimit

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/truewindow/ratelimit"
)

// waitOne waits until a claim, which is not of calls in flight, is admitted. If it cannot be
// admitted in time, the result is a refusal.
func waitOne(
	ctx context.Context, c ratelimit.Claim, dst []ratelimit.Result,
) ([]ratelimit.Result, error) {
	results, err := c.Limiter.WaitEach(ctx, c.Key, c.N, dst)
	if err != nil && (ctx.Err() != nil || len(results) == 0) {
		return nil, err
	}
	return results, nil
}

// The first and the longest pause between two attempts while calls in flight are at their limit.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 160 * time.Millisecond
)

// waitAll repeats ask, which sets d, until d is admitted, ask fails, or d cannot be admitted before
// the deadline of ctx.
func (e *edge) waitAll(ctx context.Context, d *Decision, ask func() error) error {
	for poll := firstPause; ; poll = min(2*poll, lastPause) {
		if err := ask(); err != nil || d.allowed() {
			return err
		}
		pause := d.pause()
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= pause {
			return nil // refused
		}
		if d.held() {
			pause = max(pause, poll-rand.N(poll/2))
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// pause returns the longest RetryAfter of the limits that refuse d, except those of calls in
// flight.
func (d *Decision) pause() (longest time.Duration) {
	for i, res := range d.Results {
		if res.Allowed {
			continue
		}
		if limiter, _ := d.limit(i); !limiter.InFlight() {
			longest = max(longest, res.RetryAfter)
		}
	}
	return longest
}

// held reports whether a limit of calls in flight refuses d.
func (d *Decision) held() bool {
	for i, res := range d.Results {
		if res.Allowed {
			continue
		}
		if limiter, _ := d.limit(i); limiter.InFlight() {
			return true
		}
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
