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

	held map[string]*heldKey
}

func newWaitQueues() *waitQueues {
	return &waitQueues{byKey: make(map[string]*list.List), held: make(map[string]*heldKey)}
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
	first := false
	defer func() { // also if ctx panics
		if !first && !w.remove(key, self) {
			w.leave(key)
		}
	}()
	select {
	case <-self.Value.(chan struct{}):
		first = ctx.Err() == nil
	case <-ctx.Done():
	}
	if first {
		return nil
	}
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
