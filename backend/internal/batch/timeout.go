package batch

import (
	"context"
	"fmt"
	"slices"

	"github.com/truewindow/ratelimit/driver"
)

// onTick answers requests that have waited for the timeout, less a tick at most, and abandons
// workers whose batches have taken as long. It reports whether requests or workers are left.
//
// Several ticks may be due at once, so a request or a batch with the date previous, the tick of the
// previous call, may have begun just now. It gets the date now-1.
func (q *Queue) onTick(now, previous int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.postponeLocked(previous, now-1)
	overdue := now - ticksPerTimeout
	n := 0
	for _, r := range q.waitingLocked() {
		if r.enqueued > overdue {
			break
		}
		q.failLocked(r, queued)
		n++
	}
	if n > 0 {
		q.dequeueLocked(n)
	}
	wait := len(q.waitingLocked()) > 0
	for _, w := range q.workers {
		for _, r := range w.requests {
			if r.enqueued <= overdue {
				q.failLocked(r, queued)
				q.failLocked(r, sent)
			} else {
				wait = true
			}
		}
		if w.started <= overdue && !w.abandoned {
			q.abandonLocked(w)
		}
		wait = wait || !w.abandoned
	}
	q.watched = wait
	return wait
}

// postponeLocked changes the date of requests and batches from one tick to another.
func (q *Queue) postponeLocked(from, to int64) {
	if from == to {
		return
	}
	for _, r := range slices.Backward(q.waitingLocked()) {
		if r.enqueued != from {
			break
		}
		r.enqueued = to
	}
	for _, w := range q.workers {
		for _, r := range w.requests {
			if r.enqueued == from {
				r.enqueued = to
			}
		}
		if w.started == from {
			w.started = to
		}
	}
}

// failLocked answers r with a timeout, if it is in this state.
func (q *Queue) failLocked(r *request, state uint32) {
	if !r.state.CompareAndSwap(state, answered) {
		return
	}
	kind, what := driver.ErrUnavailable, "not sent"
	if state == sent && r.batch.abandon() {
		kind, what = driver.ErrOutcomeUnknown, "no answer"
	}
	r.timedOut = true
	r.err = fmt.Errorf("%w: %s within %v: %w",
		kind, what, q.Shared.Timeout, context.DeadlineExceeded)
	r.done <- struct{}{}
}

// abandonLocked starts another worker in place of w, which ends when its batch does.
func (q *Queue) abandonLocked(w *worker) {
	w.abandoned = true
	close(w.done)
	q.running--
	q.abandoned++
	q.Shared.abandoned.Add(1)
	if q.OnTimeout != nil {
		go q.OnTimeout()
	}
	q.startWorker()
}
