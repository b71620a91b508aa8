package ratelimit

import (
	"container/list"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// maxWaiting is how many calls may wait for a key behind the first.
const maxWaiting = 10_000 - 1

// waitQueues has a queue for each key that calls wait for. The first of a queue calls the store;
// the others wait for their turn.
type waitQueues struct {
	mu sync.Mutex
	// lone is the key of the only call that waits, until a second one begins to wait or the store
	// refuses it; otherwise it is empty. With it, such a call does not use the map.
	lone string
	// byKey has an entry for each key that calls wait for. The entry is nil while only one call
	// waits for the key and has not been refused; the bytes of the key then belong to the caller.
	byKey map[string]*waitQueue
}

func newWaitQueues() *waitQueues { return &waitQueues{byKey: make(map[string]*waitQueue)} }

// waitQueue is the queue of a key. Its list has all calls but the first.
type waitQueue struct {
	behind  list.List // of *waiter
	refusal refusal   // of the first
	// soonest is no later than the deadline of any waiter, or zero if none has one.
	soonest time.Time
	// released receives a value when units in flight are released; nil if no call waits for that.
	released chan struct{}
}

// A waiter is one call behind the first.
type waiter struct {
	n        int64
	deadline time.Time     // or zero
	results  []Result      // receives the refusal if the waiter gives up
	turn     chan error    // receives nil when the waiter is first, or why it gives up
	element  *list.Element // in the queue; nil once turn has a value
}

// refusal is the store's last refusal of the first call; zero before.
type refusal struct {
	n       int64
	results []Result
	at      time.Time
	until   time.Time // when the demand may be admitted
}

// enter reports whether no call waits for key yet. If so, it makes the caller the first.
func (w *waitQueues) enter(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lone == "" && len(w.byKey) == 0 {
		w.lone = key
		return true
	}
	w.enterLone()
	if _, ok := w.byKey[key]; ok {
		return false
	}
	w.byKey[key] = nil
	return true
}

// enterLone puts the lone key into the map.
func (w *waitQueues) enterLone() {
	if w.lone != "" {
		w.byKey[w.lone], w.lone = nil, ""
	}
}

// await returns nil when the caller is the first of the queue of key. An error is ErrQueueFull, or
// wraps the context's. If the caller gives up because the first was refused for too long, results
// has that refusal.
func (w *waitQueues) await(ctx context.Context, key string, n int64, results []Result) error {
	self := &waiter{n: n, results: results, turn: make(chan error, 1)}
	self.deadline, _ = ctx.Deadline()
	if err := w.join(key, self); err != nil {
		return err
	}
	return w.awaitTurn(ctx, key, self)
}

// awaitTurn is await for a waiter that has joined the queue.
func (w *waitQueues) awaitTurn(ctx context.Context, key string, self *waiter) (err error) {
	select {
	case err = <-self.turn:
	case <-ctx.Done():
		if w.remove(key, self) {
			return gaveUp(ctx)
		}
		err = <-self.turn
	}
	if err == nil && ctx.Err() != nil {
		w.leave(key)
		return gaveUp(ctx)
	}
	return err
}

func (w *waitQueues) join(key string, self *waiter) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enterLone()
	if _, ok := w.byKey[key]; !ok { // the queue has ended since enter
		w.byKey[key] = nil
		self.turn <- nil
		return nil
	}
	q := w.queue(key)
	if q.refusal.holdsFor(self) {
		return q.refusal.tell(self)
	}
	if q.behind.Len() == maxWaiting {
		return ErrQueueFull
	}
	self.element = q.behind.PushBack(self)
	q.expect(self)
	return nil
}

// remove removes a waiter from the queue. It reports false if the turn of the waiter has come
// already.
func (w *waitQueues) remove(key string, self *waiter) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if self.element == nil {
		return false
	}
	w.byKey[key].behind.Remove(self.element)
	return true
}

// leave ends the turn of the first call and begins that of the next.
func (w *waitQueues) leave(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lone == key {
		w.lone = ""
		return
	}
	q := w.byKey[key]
	if q == nil || q.behind.Len() == 0 {
		delete(w.byKey, key)
		return
	}
	q.refusal = refusal{results: q.refusal.results[:0]}
	q.pop(q.behind.Front()).turn <- nil
}

// refuse keeps the refusal of the first call, and ends the waits behind it that cannot succeed in
// time.
func (w *waitQueues) refuse(key string, n int64, results []Result, retryAfter time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enterLone()
	q := w.queue(key)
	now := time.Now()
	q.refusal = refusal{n, append(q.refusal.results[:0], results...), now, now.Add(retryAfter)}
	if q.soonest.IsZero() || q.soonest.After(q.refusal.until) {
		return
	}
	q.soonest = time.Time{}
	for e := q.behind.Front(); e != nil; {
		self := e.Value.(*waiter)
		next := e.Next()
		if q.refusal.holdsFor(self) {
			q.pop(e).turn <- q.refusal.tell(self)
		} else {
			q.expect(self)
		}
		e = next
	}
}

// released returns the channel that receives a value when this process releases units of key.
func (w *waitQueues) released(key string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enterLone()
	q := w.queue(key)
	if q.released == nil {
		q.released = make(chan struct{}, 1)
	}
	return q.released
}

// release wakes the first of the queue of key, if it waits for units to be released.
func (w *waitQueues) release(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.byKey[key]; q != nil && q.released != nil {
		select {
		case q.released <- struct{}{}:
		default: // the last value was not received yet
		}
	}
}

// queue returns the queue of key, and makes it if there is none. byKey has an entry for key.
func (w *waitQueues) queue(key string) *waitQueue {
	q := w.byKey[key]
	if q == nil {
		q = new(waitQueue)
		// The queue may outlive the first call, to which the bytes of the key belong.
		delete(w.byKey, key)
		w.byKey[strings.Clone(key)] = q
	}
	return q
}

// expect updates soonest for the deadline of a waiter.
func (q *waitQueue) expect(self *waiter) {
	if !self.deadline.IsZero() && (q.soonest.IsZero() || self.deadline.Before(q.soonest)) {
		q.soonest = self.deadline
	}
}

func (q *waitQueue) pop(e *list.Element) *waiter {
	self := q.behind.Remove(e).(*waiter)
	self.element = nil
	return self
}

// holdsFor reports whether a waiter behind the refused call cannot be admitted in time.
func (r *refusal) holdsFor(self *waiter) bool {
	return self.n >= r.n && !self.deadline.IsZero() && !self.deadline.After(r.until)
}

// tell writes the refusal to a waiter's results, with the time left, and returns its error.
func (r *refusal) tell(self *waiter) error {
	passed := time.Since(r.at)
	for i, res := range r.results {
		if res.Source == SourceStore {
			res.Source = SourceCache
		}
		res.RetryAfter = max(0, res.RetryAfter-passed)
		res.ResetAfter = max(0, res.ResetAfter-passed)
		res.Allowed = res.RetryAfter == 0 // of several limits, one may admit by now
		self.results[i] = res
	}
	return tooLate(time.Until(r.until))
}

func tooLate(d time.Duration) error {
	return fmt.Errorf("ratelimit: the wait of %v would not end before the deadline: %w",
		d, context.DeadlineExceeded)
}

func gaveUp(ctx context.Context) error {
	return fmt.Errorf("ratelimit: gave up waiting: %w", ctx.Err())
}
