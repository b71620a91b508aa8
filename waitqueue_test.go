package ratelimit

import (
	"container/list"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/truewindow/ratelimit/internal/testkit/leak"
)

// TestWaitQueueFull: as many calls can wait for a key as the documentation of WaitN says, and no
// more.
func TestWaitQueueFull(t *testing.T) {
	w := newWaitQueues()
	if !w.enter("k") || w.enter("k") {
		t.Fatal("the first is not the first")
	}
	var last *list.Element
	for range 10_000 - 1 {
		last = mustJoin(t, w, "k")
	}
	ended, cancel := context.WithCancel(t.Context()) // so that one that queues fails as well
	cancel()
	if err := w.await(ended, "k"); !errors.Is(err, ErrQueueFull) {
		t.Errorf("one too many: %v, want ErrQueueFull", err)
	}
	if !w.enter("another") {
		t.Error("a full queue blocks another key")
	}
	if !w.remove("k", last) {
		t.Error("the last has not left the queue")
	}
	mustJoin(t, w, "k")
}

// mustJoin puts a call behind the first of the queue of key.
func mustJoin(t *testing.T, w *waitQueues, key string) *list.Element {
	t.Helper()
	self, err := w.join(key)
	if self == nil || err != nil {
		t.Fatalf("%v, %v; want a place behind the first", self, err)
	}
	return self
}

// hasTurn reports whether a call that has joined is the first now.
func hasTurn(self *list.Element) bool {
	select {
	case <-self.Value.(chan struct{}):
		return true
	default:
		return false
	}
}

// TestWaitQueueKeys: a queue that outlives its first call does not hold the memory of that call's
// key, and no queue is left when no call waits.
func TestWaitQueueKeys(t *testing.T) {
	w := newWaitQueues()
	key := strings.Repeat("k", 10)
	held := func() string {
		w.enterLoneLocked()
		for held := range w.byKey {
			return held
		}
		return ""
	}
	w.enter(key)
	self := mustJoin(t, w, key)
	if hasTurn(self) {
		t.Fatal("two calls are the first")
	}
	w.leave(key)
	if !hasTurn(self) || held() != key || unsafe.StringData(held()) == unsafe.StringData(key) {
		t.Errorf("the queue of the second call holds %q, memory of the first", held())
	}
	w.leave(key)
	if held() != "" {
		t.Errorf("a queue without calls: %q", held())
	}

	early := make(chan struct{}, 1)
	asleep := w.sleep(key, early)
	for held := range w.held {
		if unsafe.StringData(held) == unsafe.StringData(key) {
			t.Error("those that sleep hold memory of the first")
		}
	}
	w.release(key)
	w.awake(key, asleep)
	if len(early) != 1 || len(w.held) > 0 {
		t.Errorf("%d woken, and %d keys are left", len(early), len(w.held))
	}

	// A call that finds the queue gone when it joins is the first.
	if err := w.await(t.Context(), key); err != nil || w.enter(key) {
		t.Errorf("after a queue is gone: %v", err)
	}
	w.leave(key)
	if !w.enter(key) {
		t.Error("the queue is left behind")
	}
}

// readyContext is a context that calls ready when a call begins to wait for it.
type readyContext struct {
	context.Context
	ready func()
}

func (c readyContext) Done() <-chan struct{} {
	c.ready()
	return c.Context.Done()
}

// TestWaitQueueTurnOfTheEnded: a turn that comes when the context has ended is passed on.
func TestWaitQueueTurnOfTheEnded(t *testing.T) {
	for range 100 { // because select chooses at random
		w := newWaitQueues()
		w.enter("k")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var next *list.Element
		both := readyContext{ctx, func() {
			next = mustJoin(t, w, "k")
			w.leave("k")
		}}
		if err := w.await(both, "k"); !errors.Is(err, context.Canceled) {
			t.Fatalf("%v, want the error of the context", err)
		}
		if !hasTurn(next) {
			t.Fatal("the next has not got its turn")
		}
	}
}

// TestBackoff: pauses grow, differ, and are never longer than a second.
func TestBackoff(t *testing.T) {
	for failures := range 100 {
		most := time.Second
		if failures < 7 {
			most = 10 * time.Millisecond << failures
		}
		seen := make(map[time.Duration]bool)
		for range 20 {
			d := backoff(failures)
			if d > most || d <= most/2 {
				t.Errorf("after %d failures: %v, want up to %v", failures, d, most)
			}
			seen[d] = true
		}
		if len(seen) == 1 {
			t.Errorf("after %d failures all pauses are the same", failures)
		}
	}
}

// WaitingKeys returns the keys that calls of l wait for.
func WaitingKeys(l *Limiter) (keys []string) {
	l.waiting.mu.Lock()
	defer l.waiting.mu.Unlock()
	if l.waiting.lone != "" {
		keys = append(keys, l.waiting.lone)
	}
	keys = slices.AppendSeq(keys, maps.Keys(l.waiting.byKey))
	for key, k := range l.waiting.held {
		if k.asleep.Len() > 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// HeldHere returns the units of each key that reservations of this process hold.
func HeldHere(l *Limiter) map[string]int64 {
	l.waiting.mu.Lock()
	defer l.waiting.mu.Unlock()
	held := make(map[string]int64)
	for key, k := range l.waiting.held {
		if k.units > 0 {
			held[key] = k.units
		}
	}
	return held
}

func TestMain(m *testing.M) { leak.Main(m) }
