package servers

import (
	"sync"
	"sync/atomic"
	"time"
)

// AnswerSlack is how much a busy machine may add to a timeout, besides the time for which it is
// known to have stood still.
const AnswerSlack = 400 * time.Millisecond

// LatestAnswer returns how long a call with a timeout may take on a machine that stood still for up
// to still.
func LatestAnswer(timeout, still time.Duration) time.Duration {
	return timeout + AnswerSlack + 2*still
}

// TimeAnswer begins to time a call with a timeout. took returns how long the call has taken, less
// how late the machine was with a timer of the same length that began with it.
func TimeAnswer(timeout time.Duration) (took func() time.Duration) {
	began := time.Now()
	var fired atomic.Int64 // after began, in nanoseconds
	timer := time.AfterFunc(timeout, func() { fired.Store(int64(time.Since(began))) })
	return func() time.Duration {
		took := time.Since(began)
		timer.Stop()
		late := time.Duration(fired.Load()) - timeout
		if late < 0 { // it has not run, so it is at least as late as the answer
			late = took - timeout
		}
		return took - max(0, late)
	}
}

// WatchStandstill watches a clock in a goroutine until stop is called. stop returns the longest
// time for which that goroutine did not run.
func WatchStandstill() (stop func() time.Duration) {
	const pace = 10 * time.Millisecond
	done, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		still := time.Duration(0)
		for last := time.Now(); ; {
			select {
			case <-done:
				longest <- still
				return
			case <-tick.C:
			}
			now := time.Now()
			still, last = max(still, now.Sub(last)-pace), now
		}
	}()
	return sync.OnceValue(func() time.Duration {
		close(done)
		return <-longest
	})
}
