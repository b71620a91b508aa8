package grpclimit

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/truewindow/ratelimit"
)

// waitOne waits until a claim that is not of calls in flight is admitted. A call that would not be
// admitted in time is refused.
func waitOne(
	ctx context.Context, c ratelimit.Claim, dst []ratelimit.Result,
) ([]ratelimit.Result, error) {
	results, err := c.Limiter.WaitEach(ctx, c.Key, c.N, dst)
	if err != nil && (ctx.Err() != nil || len(results) == 0) {
		return nil, err
	}
	return results, nil
}

// The first and the longest pause between two questions whether a call in flight has ended.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 160 * time.Millisecond
)

// waitAll calls ask, which sets d, until it admits the call, or fails, or the call would not be
// admitted before the deadline of ctx.
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

// pause returns for how long the limits that refuse d, other than those of calls in flight, refuse
// it at least.
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
