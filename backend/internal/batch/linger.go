package batch

import (
	"context"
	"time"
)

// delayLocked sets when the requests that wait and the next one, of a caller with this context, are
// due: Shared.Linger after the first of them, but no later than in the middle of the time that one
// of the callers has.
func (q *Queue) delayLocked(ctx context.Context) {
	wait := q.Shared.Linger
	if wait == 0 {
		return
	}
	now := time.Now()
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, deadline.Sub(now)/2)
	}
	due := now.Add(wait)
	if len(q.waitingLocked()) > 0 && !due.Before(q.due) {
		return
	}
	q.due = due
	if q.timer == nil {
		q.timer = time.AfterFunc(wait, q.onDue)
	} else {
		q.timer.Reset(wait)
	}
}

// onDue sends the requests that wait, if they are due.
func (q *Queue) onDue() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.startWorker()
}

// readyLocked reports whether there are requests to send now: they fill a batch or are due.
// maxGroups requests count as full, even of one group: to find the groups earlier would cost each
// call a lookup.
func (q *Queue) readyLocked() bool {
	n := len(q.waitingLocked())
	return n > 0 && (n >= maxGroups || q.Shared.Linger == 0 || !time.Now().Before(q.due))
}
