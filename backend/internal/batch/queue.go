// Package batch sends the demands of concurrent callers together: up to two batches are in flight,
// and demands that arrive meanwhile wait for the next one. No request waits for others to arrive,
// unless a batch lingers.
//
// A [Queue] holds requests. A worker takes them from it, makes groups of them and sends these as
// one batch, which the server runs as one script. A caller that no longer waits abandons its
// request, and the last one its batch. A batch that takes longer than the timeout is abandoned with
// its worker, and another worker begins.
package batch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/backend/internal/gate"
	"github.com/truewindow/ratelimit/driver"
)

// maxWorkers is the largest number of batches in flight: while the server runs one, the other is on
// the network.
const maxWorkers = 2

// A Queue batches requests. The methods are safe for concurrent use; the fields are set before the
// first call.
type Queue struct {
	// Execute sends groups in one batch and sets their Results, which are zero before, or their Err
	// or Panic. It calls g.Open before the first byte may be sent, and sends nothing if that
	// returns false. It runs in a goroutine of its own. A panic is passed on to the callers.
	Execute func(ctx context.Context, g *gate.Gate, groups []Group)
	// OnTimeout, if not nil, is called in a goroutine of its own when a batch has taken longer than
	// the timeout.
	OnTimeout func()
	// Shared is what several queues have in common.
	Shared *Shared
	// Single makes each request a batch of its own, sent at once.
	Single bool

	mu        sync.Mutex
	requests  []*request // those before head have been dequeued
	head      int
	reserved  int       // places reserved in Shared.queued
	workers   []*worker // with a batch
	running   int       // workers that are not abandoned
	abandoned int       // workers that are
	watched   bool      // by the ticker of Shared

	due   time.Time   // if batches linger: when the requests that wait are sent at the latest
	timer *time.Timer // calls onDue then
}

// Take decides one demand, whose stored key is key. It may hold d.Key after it has returned.
func (q *Queue) Take(
	ctx context.Context, key string, d driver.Demand,
) (driver.Result, error) {
	r := q.Shared.newRequest()
	r.setOne(key, d)
	if err := q.do(ctx, r); err != nil {
		return driver.Result{}, err
	}
	res := r.result[0]
	q.Shared.release(r)
	return res, nil
}

// TakeAll decides ds as one. It may hold keys and ds after it has returned.
func (q *Queue) TakeAll(
	ctx context.Context, keys []string, ds []driver.Demand, out []driver.Result,
) error {
	r := q.Shared.newRequest()
	r.keys, r.demands, r.results = keys, ds, make([]driver.Result, len(ds))
	if err := q.do(ctx, r); err != nil {
		return err
	}
	copy(out, r.results)
	q.Shared.release(r)
	return nil
}

// do enqueues r and waits until it is answered, ctx ends or the time is over. After an error the
// caller must not use r again.
func (q *Queue) do(ctx context.Context, r *request) error {
	if err := q.enqueue(ctx, r); err != nil {
		q.Shared.refused.Add(1)
		q.Shared.release(r)
		return err
	}
	done := ctx.Done()
	if done == nil { // waiting for one channel costs less than for two
		<-r.done
		return q.finish(r)
	}
	select {
	case <-r.done:
		return q.finish(r)
	case <-done:
	}
	switch r.state.Swap(abandoned) {
	case answered: // both at once: an answer is better than none
		<-r.done
		return q.finish(r)
	case sent:
		if r.batch.abandon() {
			return fmt.Errorf("%w: no answer in time: %w", driver.ErrOutcomeUnknown, ctx.Err())
		}
	}
	return fmt.Errorf("%w: not sent in time: %w", driver.ErrUnavailable, ctx.Err())
}

// finish returns the error of r, which is answered.
func (q *Queue) finish(r *request) error {
	if r.panic != nil {
		panic(r.panic)
	}
	err := r.err
	if err != nil && !r.timedOut {
		q.Shared.release(r)
	}
	return err
}

// enqueue adds r, of a caller with this context, to the queue, and starts a worker unless enough
// are running.
func (q *Queue) enqueue(ctx context.Context, r *request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.abandoned > 0 && q.Shared.abandoned.Load() >= MaxAbandoned {
		return fmt.Errorf("%w: the client has not ended %d batches in time",
			driver.ErrUnavailable, MaxAbandoned)
	}
	if !q.reserveLocked() {
		return fmt.Errorf("%w: %d requests wait already", driver.ErrUnavailable, MaxQueued)
	}
	q.delayLocked(ctx)
	r.enqueued = q.Shared.tick.Load()
	q.requests = append(q.requests, r)
	if !q.watched {
		q.watched = true
		q.Shared.watch(q)
	}
	q.startWorker()
	return nil
}

// reserveLocked makes sure that there is room for one more request. It doubles the places of the
// queue, so that few requests touch what all queues share.
func (q *Queue) reserveLocked() bool {
	if len(q.waitingLocked()) < q.reserved {
		return true
	}
	more := max(q.reserved, 1)
	if q.Shared.queued.Add(int64(more)) > MaxQueued {
		q.Shared.queued.Add(int64(-more))
		return false
	}
	q.reserved += more
	return true
}

// waitingLocked returns the requests that have not been dequeued.
func (q *Queue) waitingLocked() []*request { return q.requests[q.head:] }

// dequeueLocked removes the first n requests that wait. It moves the others only when they fill no
// more than half of the slice, so that a long queue costs each request little.
func (q *Queue) dequeueLocked(n int) {
	clear(q.waitingLocked()[:n])
	if q.head += n; 2*q.head >= len(q.requests) {
		q.requests = slices.Delete(q.requests, 0, q.head)
		q.head = 0
	}
	left := len(q.waitingLocked())
	q.Shared.queued.Add(int64(left - q.reserved))
	q.reserved = left
}

// startWorker starts a worker if there are requests to send and fewer workers than may run. mu is
// held.
func (q *Queue) startWorker() {
	most := maxWorkers
	if q.Single {
		most = MaxAbandoned
	}
	if q.running < most && q.readyLocked() {
		q.running++
		go q.work()
	}
}

// work is a worker: it sends batches until there is nothing to send or the worker has been
// abandoned.
func (q *Queue) work() {
	growStack(false)
	w := q.Shared.newWorker()
	for q.next(w) {
		w.group()
		for groups := w.groups; len(groups) > 0; {
			n := fitting(groups)
			q.send(w, groups[:n], n == len(groups))
			groups = groups[n:]
		}
		w.clear() // keys are users' data: keep none alive
	}
}

// next gives w the first requests of the queue, and reports whether there are any for it.
func (q *Queue) next(w *worker) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.forget()
	if w.abandoned {
		q.abandoned--
		q.Shared.abandoned.Add(-1)
		q.removeLocked(w)
		return false
	}
	if !q.readyLocked() {
		q.running--
		q.removeLocked(w)
		q.Shared.workers.Put(w)
		return false
	}
	n := min(len(q.waitingLocked()), maxRequests)
	if q.Single {
		n = 1
	}
	if w.index < 0 {
		w.index = len(q.workers)
		q.workers = append(q.workers, w)
	}
	w.requests = append(w.requests, q.waitingLocked()[:n]...)
	w.started = q.Shared.tick.Load()
	q.dequeueLocked(n)
	return true
}

// removeLocked removes w from the list of workers, if it is there.
func (q *Queue) removeLocked(w *worker) {
	if w.index < 0 {
		return
	}
	last := q.workers[len(q.workers)-1]
	last.index = w.index
	q.workers[w.index] = last
	q.workers[len(q.workers)-1] = nil
	q.workers = q.workers[:len(q.workers)-1]
	w.index = -1
}

// send sends one batch of groups and delivers the outcome. last is whether w has no more groups.
func (q *Queue) send(w *worker, groups []Group, last bool) {
	b, groups := begin(groups)
	if len(groups) == 0 {
		return
	}
	ctx := batchContext{context.Background(), time.Now().Add(q.Shared.Timeout), w.done}
	panicked := guard(func() { q.Execute(ctx, &b.gate, groups) })
	q.mu.Lock()
	if last {
		w.forget()
	} else {
		w.requests = slices.DeleteFunc(w.requests, func(r *request) bool { return r.batch == b })
		w.started = q.Shared.tick.Load() // the next batch begins
	}
	q.mu.Unlock() // from here on w no longer refers to requests that may be used again
	for i := range groups {
		groups[i].deliver(panicked)
	}
}
