package ratelimit

import (
	"container/list"
	"context"
	"errors"
	"strings"
	"sync"
)

// ErrQueueFull means that too many calls wait for a key already; see [Limiter.WaitN]. The store was
// not called.
var ErrQueueFull = errors.New("ratelimit: too many calls wait for the key")

// maxWaiting is how many calls may wait for a key behind the first.
const maxWaiting = 10_000 - 1

// waitQueues has a queue for each key that calls wait for. The first of a queue calls the store;
// the others wait for their turn.
type waitQueues struct {
	mu sync.Mutex
	// lone is the key of the only call that waits, until a second one begins to wait; otherwise it
	// is empty. With it, such a call does not use the map.
	lone string
	// byKey has an entry for each key that calls wait for. The entry is nil while only one call
	// waits for the key; the bytes of the key then belong to the caller.
	byKey map[string]*waitQueue
}

func newWaitQueues() *waitQueues { return &waitQueues{byKey: make(map[string]*waitQueue)} }

// waitQueue is the queue of a key.
type waitQueue struct {
	behind list.List // all but the first, of chan struct{}, which is closed when one is first
	// released receives a value when units in flight are released; nil if no call waits for that.
	released chan struct{}
}

// enter reports whether no call waits for key yet. If so, it makes the caller the first.
func (w *waitQueues) enter(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lone == "" && len(w.byKey) == 0 {
		w.lone = key
		return true
	}
	w.enterLoneLocked()
	if _, ok := w.byKey[key]; ok {
		return false
	}
	w.byKey[key] = nil
	return true
}

// enterLoneLocked puts the lone key into the map.
func (w *waitQueues) enterLoneLocked() {
	if w.lone != "" {
		w.byKey[w.lone], w.lone = nil, ""
	}
}

// await returns nil when the caller is the first of the queue of key. An error is ErrQueueFull, or
// wraps the context's.
func (w *waitQueues) await(ctx context.Context, key string) error {
	self, err := w.join(key)
	if self == nil {
		return err
	}
	turn := self.Value.(chan struct{})
	select {
	case <-turn:
		if ctx.Err() == nil {
			return nil
		}
	case <-ctx.Done():
		if w.remove(key, self) {
			return gaveUp(ctx)
		}
	}
	w.leave(key)
	return gaveUp(ctx)
}

// join puts the caller behind the others of the queue of key. It returns nil if the caller is the
// first, because the queue has ended since enter, or if the queue is full.
func (w *waitQueues) join(key string) (self *list.Element, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enterLoneLocked()
	if _, ok := w.byKey[key]; !ok {
		w.byKey[key] = nil
		return nil, nil
	}
	q := w.queueLocked(key)
	if q.behind.Len() == maxWaiting {
		return nil, ErrQueueFull
	}
	return q.behind.PushBack(make(chan struct{})), nil
}

// remove removes a caller from the queue. It reports false if the caller's turn has come already.
func (w *waitQueues) remove(key string, self *list.Element) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-self.Value.(chan struct{}):
		return false
	default:
	}
	w.byKey[key].behind.Remove(self)
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
	close(q.behind.Remove(q.behind.Front()).(chan struct{}))
}

// released returns the channel that receives a value when this process releases units of key.
func (w *waitQueues) released(key string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enterLoneLocked()
	q := w.queueLocked(key)
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

// queueLocked returns the queue of key, and makes it if there is none. byKey has an entry for key.
func (w *waitQueues) queueLocked(key string) *waitQueue {
	q := w.byKey[key]
	if q == nil {
		q = new(waitQueue)
		// The queue may outlive the first call, to which the bytes of the key belong.
		delete(w.byKey, key)
		w.byKey[strings.Clone(key)] = q
	}
	return q
}
