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
	// Otherwise it is a list of all calls but the first: of chan struct{}, which is closed when one
	// is first.
	byKey map[string]*list.List

	held map[string]int64 // units of each key that reservations of this process hold
	// asleep has for each key the calls that sleep until units of it are released, the oldest
	// first, as chan struct{}. They may be in queues of other limiters and keys.
	asleep map[string]*list.List
}

func newWaitQueues() *waitQueues {
	return &waitQueues{byKey: make(map[string]*list.List), held: make(map[string]int64),
		asleep: make(map[string]*list.List)}
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
	behind, ok := w.byKey[key]
	switch {
	case !ok:
		w.byKey[key] = nil
		return nil, nil
	case behind == nil:
		behind = list.New()
		// The queue may outlive the first call, to which the bytes of the key belong.
		delete(w.byKey, key)
		w.byKey[strings.Clone(key)] = behind
	case behind.Len() == maxWaiting:
		return nil, ErrQueueFull
	}
	return behind.PushBack(make(chan struct{})), nil
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
	w.byKey[key].Remove(self)
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
	behind := w.byKey[key]
	if behind == nil || behind.Len() == 0 {
		delete(w.byKey, key)
		return
	}
	close(behind.Remove(behind.Front()).(chan struct{}))
}

// hold adds n to the units of key that this process holds.
func (w *waitQueues) hold(key string, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held[key] += n; w.held[key] <= 0 { // less after forget
		delete(w.held, key)
	}
}

// forget counts no units of key, and wakes a call that sleeps until some are released.
func (w *waitQueues) forget(key string) {
	w.mu.Lock()
	delete(w.held, key)
	w.mu.Unlock()
	w.release(key)
}

// holds returns the units of key that this process holds.
func (w *waitQueues) holds(key string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held[key]
}

// sleep makes early receive a value when this process releases units of key, until awake is called.
func (w *waitQueues) sleep(key string, early chan struct{}) *list.Element {
	w.mu.Lock()
	defer w.mu.Unlock()
	asleep := w.asleep[key]
	if asleep == nil {
		asleep = list.New()
		w.asleep[strings.Clone(key)] = asleep // it may outlive this call
	}
	return asleep.PushBack(early)
}

// awake undoes sleep.
func (w *waitQueues) awake(key string, self *list.Element) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if asleep := w.asleep[key]; asleep != nil {
		asleep.Remove(self) // unless release has done so
		w.tidyLocked(key, asleep)
	}
}

// release wakes the call that has slept longest for units of key.
func (w *waitQueues) release(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if asleep := w.asleep[key]; asleep != nil {
		select {
		case asleep.Remove(asleep.Front()).(chan struct{}) <- struct{}{}:
		default: // it was woken by another key
		}
		w.tidyLocked(key, asleep)
	}
}

func (w *waitQueues) tidyLocked(key string, asleep *list.List) {
	if asleep.Len() == 0 {
		delete(w.asleep, key)
	}
}
