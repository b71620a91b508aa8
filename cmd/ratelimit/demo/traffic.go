package demo

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

const (
	mostWorkers = 256                    // goroutines that offer a burst
	peeks       = 5                      // requests that read the store's clock
	tick        = 100 * time.Millisecond // how often progress is shown
)

// clock shows the store's clock: how much is left of a window of more than a year.
var clock = algorithm.FixedWindow(
	ratelimit.Limit{Name: "clock", Max: driver.MaxUnits, Window: driver.MaxWindow})

// instant returns the store's clock as a result of clock shows it. near is about half a year away
// from it at most.
func instant(res ratelimit.Result, near int64) int64 {
	window := driver.MaxWindow.Microseconds()
	at := window - res.ResetAfter.Microseconds() // since the window began
	return at + int64(math.Round(float64(near-at)/float64(window)))*window
}

// traffic offers bursts to a limiter of each algorithm.
type traffic struct {
	recording
	limiters []*ratelimit.Limiter // by series; the second limit of each is clock
	key      string
	began    time.Time
	zero     int64 // began, on the store's clock
}

// newTraffic checks that the store decides, and reads its clock.
func newTraffic(
	ctx context.Context, limit ratelimit.Limit, store ratelimit.Store,
) (*traffic, error) {
	t := &traffic{
		recording: newRecording(limit),
		key:       rand.Text(), // of this run alone
		began:     time.Now(),
		zero:      math.MaxInt64,
	}
	for _, s := range t.series {
		limiter, err := ratelimit.New(store, s.algorithm, clock)
		if err != nil {
			return nil, err
		}
		t.limiters = append(t.limiters, limiter)
	}
	show, err := ratelimit.New(store, clock)
	if err != nil {
		return nil, err
	}
	// opens connections, and loads the scripts
	err = together(ctx, mostWorkers, func(ctx context.Context, call int) error {
		_, err := t.limiters[call%len(t.limiters)].Peek(ctx, t.key)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the store cannot decide: %w", err)
	}
	for range peeks {
		sent := time.Since(t.began).Microseconds()
		res, err := show.Allow(ctx, t.key)
		if err != nil {
			return nil, fmt.Errorf("the store cannot decide: %w", err)
		}
		// Only the fastest request counts, so that no burst arrives before it is due.
		t.zero = min(t.zero, instant(res, time.Now().UnixMicro())-sent)
	}
	return t, nil
}

// now returns the time on the store's clock at which a request arrives that is sent now.
func (t *traffic) now() int64 { return t.zero + time.Since(t.began).Microseconds() }

// run makes all bursts and calls progress every tick. It returns when the recording is
// complete, the context ends or a call fails.
func (t *traffic) run(ctx context.Context, progress func()) error {
	defer func() {
		t.until = t.now()
		for _, limiter := range t.limiters {
			_ = limiter.Reset(context.WithoutCancel(ctx), t.key)
		}
	}()
	window := t.limit.Window.Microseconds()
	t.start = (t.now()+window/2)/window*window + window/2
	for i := range bursts {
		if err := t.sleepUntil(ctx, t.burstAt(i), progress); err != nil {
			return err
		}
		if err := t.offer(ctx, i); err != nil {
			return err
		}
	}
	return t.sleepUntil(ctx, t.start+t.duration().Microseconds(), progress)
}

// offer makes a burst, to all algorithms at the same time.
func (t *traffic) offer(ctx context.Context, burst int) error {
	var mu sync.Mutex // guards t.series
	calls := t.burst * len(t.series)
	return together(ctx, calls, func(ctx context.Context, call int) error {
		i, at := call%len(t.series), t.now()
		results, err := ratelimit.AllowAll(ctx,
			ratelimit.Claim{Limiter: t.limiters[i], Key: t.key, N: 1})
		if err != nil {
			return err
		}
		res, shown := results[0], results[1]
		mu.Lock()
		defer mu.Unlock()
		s := &t.series[i]
		if res.Source != ratelimit.SourceCache { // a cached refusal has the time of the first
			at = instant(shown, at)
		}
		s.add(attempt{burst, at, res.Allowed})
		return nil
	})
}

// together calls f with the numbers below n, on mostWorkers goroutines. After the first error,
// which it returns, it makes no more calls.
func together(ctx context.Context, n int, f func(ctx context.Context, call int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	var calls atomic.Int64
	for range mostWorkers {
		workers.Go(func() {
			for ctx.Err() == nil {
				call := int(calls.Add(1)) - 1
				if call >= n {
					return
				}
				if err := f(ctx, call); err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

// sleepUntil keeps t.until up to date while it sleeps. It returns early, with an error, when the
// context ends.
func (t *traffic) sleepUntil(ctx context.Context, instant int64, progress func()) error {
	for {
		t.until = t.now()
		progress()
		left := time.Duration(instant-t.until) * time.Microsecond
		if left <= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(left, tick)):
		}
	}
}
